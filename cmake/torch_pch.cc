// Empty on purpose: it exists so that one target owns the precompiled headers of torch.
