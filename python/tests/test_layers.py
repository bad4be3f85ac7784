"""The modules: options, parameters, shapes, and what they compute."""

import copy
import io
import math

import pytest
import reference
import torch

import qna
from qna import blocks, functional, layers, ops


def fill(layer):
    """Random numbers in all parameters, also in those that start at 0."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return layer


def by_loops(layer, x, mask=None):
    """A QnA layer as the paper describes it, in float64."""
    p = {name: value.detach().double() for name, value in layer.named_parameters()}
    heads, dim = layer.heads, layer.features // layer.heads
    q = p["query"].view(-1, heads, dim)
    if layer.normalize_queries:
        q = q / (q.norm(dim=-1, keepdim=True) + 1e-6)
    keys = x.double() @ p["key_weight"] + p.get("key_bias", 0)
    values = x.double() @ p["value_weight"] + p.get("value_bias", 0)
    scores = torch.einsum("bijhd,lhd->bijlh", keys.unflatten(-1, (heads, dim)), q) / math.sqrt(dim)
    scale = copy.deepcopy(layer).double().tap_weights()
    z = reference.window_attention(
        scores, values.unflatten(-1, (heads, dim)), p.get("relative_bias"), scale,
        mask, *layer.geometry(), separate=layer.upsample > 1,
    )  # fmt: skip
    y = z.flatten(-2) @ p["out_weight"] + p.get("out_bias", 0)
    if layer.upsample == 1:
        return y
    s = layer.upsample
    batch, rows, columns = y.shape[:3]
    return y.view(batch, rows, columns, s, s, -1).transpose(2, 3).reshape(batch, rows * s, columns * s, -1)


OPTIONS = [
    {},
    {"bias": True},
    {"out_features": 6, "features": 8, "heads": 4},
    {"queries": 3, "kernel_size": (2, 5)},
    {"stride": 2, "attention_scale": "per_query"},
    {"attention_scale": "average", "queries": 3},
    {"attention_scale": "signed"},
    {"attention_scale": "none", "relative_bias": False},
    {"attention_scale": "ones", "dilation": (1, 2)},
    {"normalize_queries": False, "padding": (0, 1, 2, 0)},
    {"upsample": 2, "bias": True},
    {"upsample": 3, "kernel_size": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_what_it_computes(options, masked):
    torch.manual_seed(0)
    layer = fill(qna.QnA(4, heads=options.get("heads", 2), **{k: v for k, v in options.items() if k != "heads"}))
    x = torch.randn(2, 4, 5, 4)
    mask = torch.rand(2, 4, 5) > 0.4 if masked else None
    expected = by_loops(layer, x, mask)
    torch.testing.assert_close(layer(x, mask).double(), expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, mask).double(), expected, rtol=1e-5, atol=1e-5)
    with ops.use_kernels(False):
        torch.testing.assert_close(layer(x, mask).double(), expected, rtol=1e-5, atol=1e-5)
    layer.double()
    torch.testing.assert_close(layer(x.double(), mask), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_beside_composite(options):
    torch.manual_seed(0)
    layer = fill(qna.QnA(4, heads=options.get("heads", 2), **{k: v for k, v in options.items() if k != "heads"}))
    x = torch.randn(2, 4, 5, 4, requires_grad=True)

    def gradients():
        return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()], allow_unused=True)

    actual = gradients()
    with ops.use_kernels(False):
        expected = gradients()
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


def test_stop_gradient_of_the_norm():
    x = torch.randn(1, 4, 4, 4)
    layer = fill(qna.QnA(4, heads=2, normalize_stop_gradient=True))
    other = fill(qna.QnA(4, heads=2))
    layer(x).square().sum().backward()
    other(x).square().sum().backward()
    assert torch.equal(layer(x), other(x))
    assert not torch.allclose(layer.query.grad, other.query.grad)
    with ops.use_kernels(False):
        again = torch.autograd.grad(layer(x).square().sum(), layer.query)[0]
    torch.testing.assert_close(layer.query.grad, again, rtol=1e-4, atol=1e-5)


# --- Parameters --------------------------------------------------------------------------------------------------


def shapes(module):
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def test_parameters_of_qna():
    assert shapes(qna.QnA(64, kernel_size=(3, 5), queries=2, heads=8, out_features=96, features=32, bias=True)) == {
        "query": (2, 32),
        "key_weight": (64, 32),
        "key_bias": (32,),
        "value_weight": (64, 32),
        "value_bias": (32,),
        "out_weight": (32, 96),
        "out_bias": (96,),
        "relative_bias": (3, 5, 2, 8),
        "attention_scale": (3, 5, 2, 8),
    }
    assert set(shapes(qna.QnA(64))) == {
        "query", "key_weight", "value_weight", "out_weight", "relative_bias", "attention_scale"
    }  # fmt: skip
    assert shapes(qna.QnA(64, attention_scale="per_query"))["attention_scale"] == (2, 8)
    assert "attention_scale" not in shapes(qna.QnA(64, attention_scale="average"))
    assert shapes(qna.QnA(64, upsample=2))["query"] == (4, 64)
    assert shapes(qna.QnA1d(16, kernel_size=5))["relative_bias"] == (1, 5, 2, 8)


def test_parameters_of_sasa():
    assert shapes(qna.SASA(16, 32, kernel_size=5)) == {
        "relative_bias": (5, 5, 8),
        "qkv.weight": (96, 16),
        "proj.weight": (32, 32),
    }
    assert "relative_bias" not in shapes(qna.SASA(16, relative_bias=False))


def test_defaults():
    layer = qna.QnA(64)
    assert (layer.features, layer.out_features, layer.heads, layer.queries) == (64, 64, 8, 2)
    assert layer.geometry() == ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    assert qna.QnA(64, out_features=32).features == 32
    assert qna.QnA(64, features=32).out_features == 32
    assert layers.same_padding((2, 5), (1, 2)) == (0, 1, 4, 4)


def test_initialisation():
    torch.manual_seed(0)
    layer = qna.QnA(256, heads=8, queries=8, kernel_size=7, bias=True)
    assert abs(layer.key_weight.std().item() - 1 / 16) < 1e-3
    assert abs(layer.out_weight.std().item() - 1 / 16) < 1e-3
    dim = 32
    assert layer.query.abs().max().item() <= 2 / math.sqrt(dim) + 1e-6
    assert abs(layer.query.std().item() - 0.8796 / math.sqrt(dim)) < 5e-3
    assert abs(layer.attention_scale.std().item() - 0.02) < 1e-3
    for zero in (layer.key_bias, layer.value_bias, layer.out_bias, layer.relative_bias):
        assert not zero.any()
    assert (qna.QnA(16, attention_scale="ones").attention_scale == 1).all()
    assert abs(qna.SASA(256).qkv.weight.std().item() - 1 / 16) < 1e-3


def test_copies_and_files():
    x = torch.randn(1, 5, 5, 8)
    for layer in (qna.QnA(8, heads=2, attention_scale="signed"), qna.SASA(8, heads=2)):
        expected = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x), expected)
        buffer = io.BytesIO()
        torch.save(layer.state_dict(), buffer)
        buffer.seek(0)
        other = type(layer)(8, heads=2, **({"attention_scale": "signed"} if isinstance(layer, qna.QnA) else {}))
        other.load_state_dict(torch.load(buffer))
        assert torch.equal(other(x), expected)


def test_parameters_that_change_count_at_once():
    x = torch.randn(1, 5, 5, 8)
    layer = qna.QnA(8, heads=2).eval()
    with torch.no_grad():
        before = layer(x)
        layer.query.data.neg_()
        assert not torch.equal(layer(x), before)
        layer.query.neg_()
        assert torch.equal(layer(x), before)


def test_inference_mode():
    x = torch.randn(1, 5, 5, 8)
    layer = qna.QnA(8, heads=2)
    expected = layer(x)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), expected)
        made_inside = qna.QnA(8, heads=2)
        made_inside.load_state_dict(layer.state_dict())
        torch.testing.assert_close(made_inside(x), expected)


def test_device_and_dtype():
    layer = qna.QnA(8, heads=2, attention_scale="average", device="meta", dtype=torch.bfloat16)
    assert all(value.is_meta and value.dtype == torch.bfloat16 for value in (*layer.parameters(), *layer.buffers()))
    assert layer(torch.empty(1, 5, 5, 8, device="meta")).shape == (1, 5, 5, 8)


# --- Other forms of maps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda **o: qna.QnA(8, heads=2, **o), lambda **o: qna.SASA(8, heads=2, **o)])
def test_channels_first(make):
    last, first = make(stride=2), make(stride=2, channels_first=True)
    first.load_state_dict(last.state_dict())
    x = torch.randn(2, 5, 6, 8)
    mask = torch.rand(2, 5, 6) > 0.3
    expected = last(x, mask).permute(0, 3, 1, 2)
    y = first(x.permute(0, 3, 1, 2).contiguous(), mask)
    assert torch.equal(y, expected)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(first(x.permute(0, 3, 1, 2), mask), expected)  # channels_last memory


def test_sequences():
    sequence = fill(qna.QnA1d(8, heads=2, kernel_size=5, stride=2, dilation=2, bias=True))
    flat = qna.QnA(8, heads=2, kernel_size=(1, 5), stride=(1, 2), dilation=(1, 2), bias=True)
    flat.load_state_dict(sequence.state_dict())
    x, mask = torch.randn(2, 11, 8), torch.rand(2, 11) > 0.3
    expected = flat(x[:, None], mask[:, None])[:, 0]
    assert torch.equal(sequence(x, mask), expected)
    assert sequence(x).shape == (2, 6, 8)
    first = qna.QnA1d(8, heads=2, kernel_size=5, stride=2, dilation=2, bias=True, channels_first=True)
    first.load_state_dict(sequence.state_dict())
    assert torch.equal(first(x.transpose(1, 2), mask), expected.transpose(1, 2))
    causal = qna.QnA1d(8, heads=2, kernel_size=3, padding=(2, 0))
    y = causal(x)
    changed = x.clone()
    changed[:, 6:] += 1
    assert y.shape == (2, 11, 8) and torch.equal(causal(changed)[:, :6], y[:, :6])


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"kernel_size": (2, 5)}, {"padding": (0, 1, 1, 0), "stride": (1, 2)}, {"relative_bias": False}],
    ids=str,
)
@pytest.mark.parametrize("masked", [False, True])
def test_sasa(options, masked):
    torch.manual_seed(0)
    layer = fill(qna.SASA(4, 6, heads=2, **options))
    x = torch.randn(2, 5, 6, 4)
    mask = torch.rand(2, 5, 6) > 0.4 if masked else None
    pixels = x if mask is None else x * mask[..., None]
    q, k, v = (pixels.double() @ layer.qkv.weight.double().t()).unflatten(-1, (3, 2, 3)).unbind(3)
    top, bottom, left, right = (h - p for h, p in zip(layers.same_padding(layer.kernel_size), layer.padding))
    centers = q[:, top : 5 - bottom : layer.stride[0], left : 6 - right : layer.stride[1]] / math.sqrt(3)
    z = reference.sasa(
        centers, k, v, layer.relative_bias, mask, layer.kernel_size, layer.stride, layer.padding, layer.dilation
    )
    expected = z.flatten(3) @ layer.proj.weight.double().t()
    for wanted in (True, False):
        with ops.use_kernels(wanted):
            torch.testing.assert_close(layer(x, mask).double(), expected, rtol=1e-5, atol=1e-5)


def test_fold_into_a_norm():
    torch.manual_seed(0)
    layer = fill(qna.QnA(8, heads=2, bias=True))
    norm = fill(torch.nn.LayerNorm(8, eps=1e-6))
    x = torch.randn(2, 5, 6, 8)
    folded = layer.parameters_for_layer(norm.weight, norm.bias)
    y = functional.qna_layer_branch(x, *folded, None, *layer.geometry(), epsilon=1e-6)
    torch.testing.assert_close(y, x + layer(norm(x)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"window": (3, 4)}, {"window": (3, 4), "whole": True}, {"window": (9, 9)},
                                     {"window": (4, 4), "shift": (2, 2)}])  # fmt: skip
@pytest.mark.parametrize("drop_path", [0.0, 0.5])
def test_attention_blocks_are_their_modules(options, drop_path):
    torch.manual_seed(0)
    block = blocks.Block(blocks.WindowSelfAttention(16, heads=2, **options), 16, 16, layer_scale=0.5,
                         drop_path=drop_path)  # fmt: skip
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    inputs = torch.randn(4, 6, 7, 16)

    def run(forward):
        x = inputs.clone().requires_grad_()
        torch.manual_seed(1)  # the same images are dropped
        y = forward(x)
        return [y, *torch.autograd.grad(y.square().sum(), [x, *block.parameters()])]

    def by_modules(x):
        y = block._mix(x)
        mixed = block.mlp.fc2(torch.nn.functional.gelu(block.mlp.fc1(block.norm2(y)), approximate="tanh"))
        factors = block._drop_factors(y)
        mixed = mixed * block.scale2
        return y + (mixed if factors is None else mixed * factors[:, None, None, None])

    for actual, expected in zip(run(block), run(by_modules), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_training_learns():
    torch.manual_seed(0)
    layer = qna.QnA(8, heads=2, kernel_size=3)
    target = fill(qna.QnA(8, heads=2, kernel_size=3)).requires_grad_(False)
    optimiser = torch.optim.Adam(layer.parameters(), 1e-2)
    x = torch.randn(4, 8, 8, 8)
    losses = []
    for _ in range(60):
        loss = (layer(x) - target(x)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_texts():
    assert "64 -> 32, heads=8, queries=4, kernel_size=3x3, stride=1x1, upsample=2" in repr(
        qna.QnA(64, out_features=32, upsample=2)
    )
    assert "64 -> 64, heads=8, kernel_size=3x3" in repr(qna.SASA(64))


# --- Wrong input -------------------------------------------------------------------------------------------------

WRONG = [
    (lambda: qna.QnA(0), r"QnA: in_features must be at least 1, got 0"),
    (lambda: qna.QnA(64, heads=7), r"QnA: heads must be at least 1 and divide features \(64\), got 7"),
    (lambda: qna.QnA(64, features=-8), r"QnA: features must be at least 1 \(or None\), got -8"),
    (lambda: qna.QnA(64, queries=0), r"QnA: queries must be at least 1, got 0"),
    (lambda: qna.QnA(64, kernel_size=0), r"QnA: kernel_size must be at least 1, got 0"),
    (lambda: qna.QnA(64, kernel_size=(3, 3, 3)), r"QnA: kernel_size must have 2 numbers, got \[3, 3, 3\]"),
    (lambda: qna.QnA(64, stride=1.5), r"QnA: stride"),
    (lambda: qna.QnA(128 / 2), r"QnA: in_features must be a whole number, got 64.0"),
    (lambda: qna.QnA("64"), r"QnA: in_features must be a whole number, got '64'"),
    (lambda: qna.QnA(64, heads=8.0), r"QnA: heads must be a whole number, got 8.0"),
    (lambda: qna.QnA(64, upsample=2.0), r"QnA: upsample must be a whole number, got 2.0"),
    (lambda: qna.SASA(64.0), r"SASA: in_features must be a whole number, got 64.0"),
    (lambda: qna.QnA(64, padding=(1, 1)), r"QnA: padding must have 4 numbers, got \[1, 1\]"),
    (lambda: qna.QnA(64, upsample=2, queries=3), r"QnA: up-sampling by 2 needs 4 queries, got 3"),
    (lambda: qna.QnA(64, upsample=0), r"QnA: upsample must be from 1 to 64, got 0"),
    (lambda: qna.QnA(64, attention_scale="mean"), r"attention_scale must be one of per_tap.*got 'mean'"),
    (lambda: qna.QnA(3, heads=3, queries=1, attention_scale="signed"), r"even number of queries x heads, got 1 x 3"),
    (lambda: qna.QnA(64)(torch.zeros(1, 64, 5, 5)), r"x must be \[batch, height, width, 64\], got \[1, 64, 5, 5\]"),
    (lambda: qna.QnA(64)(torch.zeros(5, 5, 64)), r"x must be \[batch, height, width, 64\], got \[5, 5, 64\]"),
    (lambda: qna.QnA(64, channels_first=True)(torch.zeros(1, 5, 5, 64)), r"x must be \[batch, 64, height, width\]"),
    (lambda: qna.QnA(64)(torch.zeros(1, 5, 5, 64).long()), r"x must be float32.*got torch.int64"),
    (lambda: qna.QnA(64)(torch.zeros(1, 0, 5, 64)), r"the map must be at least 1 x 1, got 0 x 5"),
    (lambda: qna.QnA(64, padding=0)(torch.zeros(1, 2, 5, 64)), r"window must fit the padded map.*3 x 3 .*on 2 x 5"),
    (lambda: qna.QnA(8)(torch.zeros(1, 5, 5, 8), torch.ones(1, 5, 4).bool()), r"mask must be .*got \[1, 5, 4\]"),
    (lambda: qna.QnA1d(8)(torch.zeros(1, 5, 5, 8)), r"QnA1d: x must be \[batch, time, 8\], got \[1, 5, 5, 8\]"),
    (lambda: qna.QnA1d(8, kernel_size=(3, 3)), r"QnA1d: kernel_size must be a whole number, got \[3, 3\]"),
    (lambda: qna.SASA(64, heads=7), r"SASA: heads must be at least 1 and divide features \(64\), got 7"),
    (lambda: qna.SASA(64, padding=2), r"SASA: padding must be from 0 to half the window \(1\), got 2"),
    (lambda: qna.SASA(8)(torch.zeros(1, 5, 5, 9)), r"SASA: x must be \[batch, height, width, 8\]"),
]


@pytest.mark.parametrize("make", [lambda: qna.QnA(16, heads=4), lambda: qna.SASA(16, heads=4)])
def test_func(make):
    """torch.func sees into the layers, for each sample too."""
    from torch.func import functional_call, grad, jvp, vmap

    torch.manual_seed(0)
    layer, x = fill(make()), torch.randn(3, 6, 7, 16)
    layer(x).square().sum().backward()
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    for name, ours in grad(lambda p: functional_call(layer, p, (x,)).square().sum())(parameters).items():
        torch.testing.assert_close(ours, layer.get_parameter(name).grad, rtol=1e-3, atol=1e-2)
    loss = lambda p, one: functional_call(layer, p, (one[None],)).square().sum()  # noqa: E731
    for name, ours in vmap(grad(loss), in_dims=(None, 0))(parameters, x).items():
        torch.testing.assert_close(ours.sum(0), layer.get_parameter(name).grad, rtol=1e-3, atol=1e-2)
    tangent = torch.randn_like(x)
    y, along = jvp(layer, (x,), (tangent,))
    torch.testing.assert_close(y, layer(x), rtol=1e-5, atol=1e-5)
    step = 1e-3
    moved = (layer.double()(x.double() + step * tangent) - layer(x.double() - step * tangent)) / (2 * step)
    torch.testing.assert_close(along.double(), moved, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("scale", ["average", "signed"])
def test_made_on_the_meta_device(scale):
    layer = fill(qna.QnA(16, heads=4, attention_scale=scale))
    with torch.device("meta"):
        other = qna.QnA(16, heads=4, attention_scale=scale)
    other = other.to_empty(device="cpu")
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, 5, 6, 16)
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize(("act", "message"), WRONG)
def test_wrong_input(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_no_tensor():
    with pytest.raises(TypeError, match=r"QnA: x must be a tensor .*got list"):
        qna.QnA(8)([1.0])
