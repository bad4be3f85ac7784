// Empty on purpose: it exists so that targets can own precompiled headers.
