"""QnA-ViT by the paper's algorithm in plain PyTorch.

The scores' exponentials and their products with the values are maps; depth-wise convolutions sum
them over the windows; the quotient, summed over the queries, is the answer of a layer. Maps are
[batch, height, width, channels] between layers.
"""

import json
import math

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

# What the configuration must say, because this file does nothing else.
FIXED = {
    "stem": "patch",
    "local_mixer": "qna",
    "downsample": "qna",
    "downsample_skip": "conv",
    "mlp_ratio": 4,
    "activation": "gelu_tanh",
    "attention_scale": "per_tap",
    "normalize_queries": True,
    "normalize_stop_gradient": False,
    "layer_scale": 0,
    "drop_path_downsample": True,
    "head": "gap",
}
FREE = ("image_size", "in_channels", "classes", "base_dim", "patch_size", "stages", "drop_path")
STAGE = ("attention_blocks", "qna_blocks", "qna_heads", "attention_heads", "kernel_size", "queries",
         "window")


def check_config(config):
    """Raises ValueError unless `config` describes a network of this file."""
    def same_keys(what, have, want):
        missing, unknown = set(want) - set(have), set(have) - set(want)
        if missing:
            raise ValueError(f"{what} lacks {', '.join(sorted(missing))}")
        if unknown:
            raise ValueError(f"{what} has unknown keys: {', '.join(sorted(unknown))}")

    same_keys("the configuration", config, (*FIXED, *FREE))
    for key, value in FIXED.items():
        if config[key] != value:
            raise ValueError(f"{key} is {config[key]!r}; only {value!r} is supported")
    for i, stage in enumerate(config["stages"]):
        same_keys(f"stage {i} of the configuration", stage, STAGE)
        if any(side % 2 == 0 for side in stage["kernel_size"]):
            raise ValueError(f"stage {i} has kernel_size {stage['kernel_size']}; only odd sides are supported")


class Folding(nn.Module):
    """A layer whose forward pass starts from tensors that depend on its parameters alone."""

    folded = False

    def from_parameters(self):
        """Those tensors by name."""
        raise NotImplementedError

    def fold(self):
        """Computes them once and for all, for inference. The parameters are then of no effect."""
        for name, tensor in self.from_parameters().items():
            self.register_buffer(name, tensor.detach().contiguous(), persistent=False)
        self.folded = True

    def constants(self, *names):
        if self.folded:
            return [getattr(self, name) for name in names]
        tensors = self.from_parameters()
        return [tensors[name] for name in names]


class QnA(Folding):
    """One QnA layer. `layout` is that of the maps inside it; the answer is the same."""

    def __init__(self, inputs, features, heads, kernel_size, queries, stride, layout):
        super().__init__()
        self.features, self.heads, self.queries = features, heads, queries
        self.stride, self.padding = stride, [(side - 1) // 2 for side in kernel_size]
        self.layout = layout
        self.query = nn.Parameter(torch.empty(queries, features))
        self.key_weight = nn.Parameter(torch.empty(inputs, features))
        self.value_weight = nn.Parameter(torch.empty(inputs, features))
        self.out_weight = nn.Parameter(torch.empty(features, features))
        self.relative_bias = nn.Parameter(torch.empty(*kernel_size, queries, heads))
        self.attention_scale = nn.Parameter(torch.empty(*kernel_size, queries, heads))

    def from_parameters(self):
        depth = self.features // self.heads
        query = self.query.view(self.queries, self.heads, depth)
        query = query / (query.norm(dim=-1, keepdim=True) + 1e-6) / math.sqrt(depth)
        key = self.key_weight.view(-1, self.heads, depth)
        score_weight = torch.einsum("chd,lhd->clh", key, query).flatten(1)
        bias = self.relative_bias.flatten(2).permute(2, 0, 1).unsqueeze(1).exp()
        scale = self.attention_scale.flatten(2).permute(2, 0, 1).unsqueeze(1)
        return {
            "score_weight": score_weight,  # [inputs, queries * heads]
            "denominator_kernel": bias,  # [queries * heads, 1, kh, kw]
            "numerator_kernel": (bias * scale).repeat_interleave(depth, 0),  # [queries * features, ...]
        }

    def forward(self, x):
        return self.channels_first(x) if self.layout == "NCHW" else self.channels_last(x)

    def window_sum(self, map, kernel):
        return F.conv2d(map, kernel, stride=self.stride, padding=self.padding, groups=kernel.shape[0])

    def channels_first(self, x):
        score_weight, denominator_kernel, numerator_kernel = self.constants(
            "score_weight", "denominator_kernel", "numerator_kernel")
        batch, height, width, _ = x.shape
        x = x.flatten(1, 2).transpose(1, 2)
        scores = torch.matmul(score_weight.t(), x).exp()
        values = torch.matmul(self.value_weight.t(), x)
        weighted = (scores.view(batch, self.queries, self.heads, 1, -1) *
                    values.view(batch, 1, self.heads, -1, height * width))
        numerator = self.window_sum(weighted.view(batch, -1, height, width), numerator_kernel)
        denominator = self.window_sum(scores.view(batch, -1, height, width), denominator_kernel)
        height, width = numerator.shape[2:]
        numerator = numerator.view(batch, self.queries, self.heads, -1, height * width)
        factor = denominator.reciprocal().view(batch, self.queries, self.heads, 1, height * width)
        z = numerator[:, 0] * factor[:, 0]
        for query in range(1, self.queries):
            z = torch.addcmul(z, numerator[:, query], factor[:, query])
        z = z.view(batch, self.features, height * width).transpose(1, 2)
        return torch.matmul(z, self.out_weight).view(batch, height, width, -1)

    def channels_last(self, x):
        score_weight, denominator_kernel, numerator_kernel = self.constants(
            "score_weight", "denominator_kernel", "numerator_kernel")
        batch, height, width, _ = x.shape
        scores = torch.matmul(x, score_weight).exp()
        values = torch.matmul(x, self.value_weight)
        weighted = (scores.view(batch, height, width, self.queries, self.heads, 1) *
                    values.view(batch, height, width, 1, self.heads, -1))
        numerator = self.window_sum(weighted.flatten(3).permute(0, 3, 1, 2), numerator_kernel)
        denominator = self.window_sum(scores.permute(0, 3, 1, 2), denominator_kernel)
        height, width = numerator.shape[2:]
        numerator = numerator.permute(0, 2, 3, 1).view(batch, height, width, self.queries, self.heads, -1)
        factor = denominator.permute(0, 2, 3, 1).reciprocal()
        factor = factor.view(batch, height, width, self.queries, self.heads, 1)
        z = numerator[:, :, :, 0] * factor[:, :, :, 0]
        for query in range(1, self.queries):
            z = torch.addcmul(z, numerator[:, :, :, query], factor[:, :, :, query])
        return torch.matmul(z.flatten(3), self.out_weight)


class WindowAttention(Folding):
    """Self-attention inside windows that do not overlap, with Swin's relative bias."""

    def __init__(self, features, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.proj = nn.Linear(features, features, bias=False)
        self.relative_bias = nn.Parameter(torch.empty(2 * window - 1, 2 * window - 1, heads))
        rows, columns = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        offset = [axis.reshape(-1, 1) - axis.reshape(1, -1) + window - 1 for axis in (rows, columns)]
        self.register_buffer("index", offset[0] * (2 * window - 1) + offset[1], persistent=False)

    def from_parameters(self):
        table = self.relative_bias.flatten(0, 1)[self.index]
        return {"bias": table.permute(2, 0, 1).unsqueeze(0)}  # [1, heads, window^2, window^2]

    def forward(self, x):
        bias, = self.constants("bias")
        batch, height, width, features = x.shape
        side = self.window
        if height % side or width % side:
            raise ValueError(f"a map of {height} x {width} does not divide into windows of {side}")
        whole = height == side and width == side
        if not whole:
            x = x.view(batch, height // side, side, width // side, side, features).transpose(2, 3)
        qkv = self.qkv(x.reshape(-1, side * side, features))
        q, k, v = qkv.view(-1, side * side, 3, self.heads, features // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = self.proj(x.transpose(1, 2).flatten(2))
        if not whole:
            x = x.view(batch, height // side, width // side, side, side, features).transpose(2, 3)
        return x.reshape(batch, height, width, features)


class Mlp(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc1 = nn.Linear(features, 4 * features)
        self.fc2 = nn.Linear(4 * features, features)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Skip(nn.Module):
    """1 x 1 convolution with stride 2."""

    def __init__(self, inputs, features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, inputs, 1, 1))

    def forward(self, x):
        return F.linear(x[:, ::2, ::2].contiguous(), self.weight.flatten(1))


class Block(nn.Module):
    """x = skip + mix(norm1(x)); x = x + mlp(norm2(x))"""

    def __init__(self, inputs, features, mix_name, mix, drop_path):
        super().__init__()
        self.norm1 = nn.LayerNorm(inputs, eps=1e-6)
        self.mix_name = mix_name
        self.add_module(mix_name, mix)
        self.norm2 = nn.LayerNorm(features, eps=1e-6)
        self.mlp = Mlp(features)
        self.skip = Skip(inputs, features) if inputs != features else None
        self.drop_path = drop_path

    def drop(self, x):
        if not self.training or self.drop_path == 0:
            return x
        keep = 1 - self.drop_path
        return x * (x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(keep) / keep)

    def forward(self, x):
        mixed = getattr(self, self.mix_name)(self.norm1(x))
        x = x + self.drop(mixed) if self.skip is None else self.skip(x) + mixed
        return x + self.drop(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    def __init__(self, config, features, last, drop_path, layout):
        super().__init__()

        def qna(outputs):
            stride = outputs // features
            mix = QnA(features, outputs, config["qna_heads"] * stride, config["kernel_size"],
                      config["queries"], stride, layout)
            return Block(features, outputs, "qna", mix, next(drop_path))

        def attention():
            mix = WindowAttention(features, config["attention_heads"], config["window"])
            return Block(features, features, "attention", mix, next(drop_path))

        blocks = [attention() for _ in range(config["attention_blocks"])]
        blocks += [qna(features) for _ in range(config["qna_blocks"])]
        self.blocks = nn.Sequential(*blocks)
        self.downsample = nn.Identity() if last else qna(2 * features)

    def forward(self, x):
        return self.downsample(self.blocks(x))


class Stem(nn.Module):
    def __init__(self, inputs, features, patch):
        super().__init__()
        self.conv = nn.Conv2d(inputs, features, patch, stride=patch, bias=False)

    def forward(self, x):
        return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Head(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=1e-6)
        self.fc = nn.Linear(features, classes)

    def forward(self, x):
        return self.fc(self.norm(x).mean((1, 2)))


class QnAViT(nn.Module):
    """Images [batch, height, width, channels] to logits [batch, classes]."""

    def __init__(self, config, layout="NCHW"):
        super().__init__()
        check_config(config)
        stages, dim = config["stages"], config["base_dim"]
        count = sum(s["attention_blocks"] + s["qna_blocks"] for s in stages) + len(stages) - 1
        drop_path = iter(torch.linspace(0, config["drop_path"], count).tolist())
        self.stem = Stem(config["in_channels"], dim, config["patch_size"])
        self.stages = nn.Sequential(*[
            Stage(stage, dim << i, i == len(stages) - 1, drop_path, layout)
            for i, stage in enumerate(stages)
        ])
        self.head = Head(dim << (len(stages) - 1), config["classes"])

    def forward(self, x):
        return self.head(self.stages(self.stem(x)))

    def for_inference(self):
        """Computes what depends on parameters alone; the parameters must not change any more."""
        for module in self.modules():
            if isinstance(module, Folding):
                module.fold()
        return self.eval().requires_grad_(False)


def read_config(path):
    """The configuration in the metadata of a safetensors file."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
    if "config" not in metadata:
        raise ValueError(f"{path} has no `config` in its metadata")
    config = json.loads(metadata["config"])
    for stage in config["stages"]:  # equal sides may be written as one number
        if isinstance(stage["kernel_size"], int):
            stage["kernel_size"] = [stage["kernel_size"]] * 2
    return config


def load(path, layout="NCHW"):
    """The network in a safetensors file, and its configuration. Every tensor must be used."""
    config = read_config(path)
    model = QnAViT(config, layout)
    with safe_open(path, "pt") as file:
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
    return model, config
