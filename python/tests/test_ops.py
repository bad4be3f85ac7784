"""The operators and functions: kernels beside the composite forms, and both beside plain loops."""

import os
import subprocess
import sys
import threading

import pytest
import reference
import torch

import qna
from qna import composite, functional, ops

FORWARD = ("qna_layer", "qna_layer_branch", "fold_qna_layer", "mlp_branch", "window_self_attention",
           "window_self_attention_branch", "window_attention", "sasa")  # fmt: skip
SAVING = ("qna_layer", "qna_layer_branch", "mlp_branch", "window_self_attention_branch")
DROP = {"qna_layer_branch": 14, "mlp_branch": 7, "window_self_attention_branch": 7}  # the place of drop_factor
MAPS = ("qna_layer", "window_attention", "sasa")

# kernel_size, stride, padding, dilation
GEOMETRIES = {
    "same": ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "stride": ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "even": ((2, 4), (1, 1), (0, 1, 1, 2), (1, 1)),
    "one_sided": ((3, 2), (2, 1), (2, 0, 0, 3), (1, 1)),
    "dilated": ((2, 3), (1, 1), (0, 2, 2, 2), (2, 2)),
    "larger_than_map": ((9, 9), (1, 1), (4, 4, 4, 4), (1, 1)),
    "valid": ((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
}


def random(*sizes, dtype=torch.float32):
    return torch.randn(sizes, dtype=torch.float64).to(dtype)


class Arguments:
    """Of one call: those that may have a gradient, and all of them in their order."""

    def __init__(self, name, *values, constant=()):
        self.name, self.values = name, values
        self.differentiable = [
            i
            for i, value in enumerate(values)
            if isinstance(value, torch.Tensor) and value.is_floating_point() and i not in constant
        ]

    def fresh(self):
        """The values, those that may have a gradient as new leaves."""
        return [
            value.detach().clone(memory_format=torch.preserve_format).requires_grad_()
            if i in self.differentiable
            else value
            for i, value in enumerate(self.values)
        ]


def layer_arguments(geometry, dtype, masked, biased, upsample=1, batch=2, sizes=(5, 6), heads=2, dim=3, queries=2):
    kernel_size = geometry[0]
    features, out, queries = 5, 4, upsample * upsample if upsample > 1 else queries
    return (
        random(batch, *sizes, features, dtype=dtype),
        random(features, queries, heads),
        random(features, heads, dim),
        random(heads, dim) if biased else None,
        random(heads, dim, out),
        random(out) if biased else None,
        random(*kernel_size, queries, heads) if biased else None,
        random(*kernel_size, queries, heads) if biased and upsample == 1 else None,
        torch.rand(batch, *sizes) > 0.4 if masked else None,
        *geometry,
    )


def make(name, dtype=torch.float32, geometry="same", masked=False, biased=True, **options):
    """Arguments of a function, which are also those of its operator."""
    torch.manual_seed(0)
    windows = GEOMETRIES[geometry]
    sizes = options.get("sizes", (5, 6))
    mask = torch.rand(2, *sizes) > 0.4 if masked else None
    if name == "qna_layer":
        return Arguments(name, *layer_arguments(windows, dtype, masked, biased, **options), options.get("upsample", 1))
    if name == "qna_layer_branch":
        x, score, value, value_bias, out, out_bias, bias, tap_weights, mask, *_ = layer_arguments(
            windows, dtype, masked, biased, **options
        )
        residual = geometry == "same"
        if residual:
            out, out_bias = random(2, 3, 5), random(5) if biased else None
        drop_factor = torch.tensor([0.0, 1.25]) if masked else None
        return Arguments(
            name, x, score, value, value_bias, out, out_bias, bias, tap_weights, mask, *windows, 1e-5, drop_factor,
            residual, constant=(14,),
        )  # fmt: skip
    if name == "fold_qna_layer":
        optional = [random(6) if biased else None, random(6) if biased else None]
        norm = [random(5), random(5)] if masked else [None, None]
        return Arguments(
            name, random(2, 6), random(5, 6), optional[0], random(5, 6), optional[1], *norm, 2, True, biased
        )
    if name == "mlp_branch":
        drop_factor = torch.tensor([0.0, 1.5]) if masked else None
        return Arguments(
            name, random(2, 3, 4, 6, dtype=dtype), random(6), random(6), random(8, 6), random(8), random(6, 8),
            random(6), drop_factor, "gelu_tanh" if biased else "silu", 1e-6, constant=(7,),
        )  # fmt: skip
    if name == "window_self_attention":
        bias = random(2, 7, 5) if biased else None
        return Arguments(name, random(2, *sizes, 18, dtype=dtype), 2, (4, 3), bias, mask)
    if name == "window_self_attention_branch":
        drop_factor = torch.tensor([0.0, 1.5]) if masked else None
        return Arguments(
            name, random(2, *sizes, 6, dtype=dtype), random(6), random(6), random(18, 6) / 4, random(6, 6) / 2,
            random(2, 7, 5) if biased else None, mask, drop_factor, 2, (4, 3), 1e-6, constant=(7,),
        )  # fmt: skip
    if name == "window_attention":
        table = (*windows[0], 2, 3)
        return Arguments(
            name, random(2, *sizes, 2, 3, dtype=dtype), random(2, *sizes, 3, 4, dtype=dtype),
            random(*table) if biased else None, random(*table) if biased else None, mask, *windows,
            options.get("separate", False),
        )  # fmt: skip
    rows, columns = reference.windows(sizes, *windows)
    maps = [random(2, *size, 4, 2, dtype=dtype).transpose(3, 4) for size in ((rows, columns), sizes, sizes)]
    return Arguments(name, *maps, random(*windows[0], 2) if biased else None, mask, *windows)


def results(outputs):
    return [output for output in ((outputs,) if isinstance(outputs, torch.Tensor) else outputs) if output is not None]


def run(function, arguments):
    """Outputs, and gradients of a fixed weighted sum of them, None where there is none."""
    values = arguments.fresh()
    outputs = results(function(*values))
    generator = torch.Generator().manual_seed(1)
    total = sum((output.double() * torch.randn(output.shape, generator=generator)).sum() for output in outputs)
    leaves = [values[i] for i in arguments.differentiable]
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    for leaf, gradient in zip(leaves, gradients):
        assert gradient is None or gradient.dtype == leaf.dtype
    return outputs, [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients)]


def assert_near(actual, expected, tolerance, what):
    assert actual.shape == expected.shape, what
    if expected.numel() == 0:
        return
    scale = max(expected.abs().max().item(), 1.0)  # some gradients are 0 but for rounding
    error = (actual.double() - expected.double()).abs().max().item()
    assert error <= tolerance * scale, f"{what}: {error} of {scale}"


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 1e-2}


def compare(name, arguments, dtype):
    """The kernels' outputs and gradients beside those of the composite form in float64."""
    outputs, gradients = run(getattr(functional, name), arguments)
    wide = Arguments(
        name, *(v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in arguments.values)
    )
    wide.differentiable = arguments.differentiable
    expected, expected_gradients = run(getattr(composite, name), wide)
    for i, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_near(actual, wanted, TOLERANCE[dtype], f"output {i}")
    for i, actual, wanted in zip(arguments.differentiable, gradients, expected_gradients):
        assert_near(actual, wanted, TOLERANCE[dtype], f"gradient of argument {i}")


def variants(name):
    for masked in (False, True):
        for biased in (False, True):
            yield {"masked": masked, "biased": biased}
    if name in ("qna_layer", "qna_layer_branch", "window_attention", "sasa"):
        for geometry in GEOMETRIES:
            yield {"geometry": geometry, "masked": geometry in ("even", "dilated")}
    if name == "qna_layer":
        yield {"upsample": 2}
        yield {"upsample": 3, "masked": True, "geometry": "even"}
        yield {"sizes": (1, 9), "queries": 1, "heads": 1, "dim": 1}
        yield {"sizes": (12, 17), "heads": 8, "dim": 16, "queries": 3}
    if name == "window_attention":
        yield {"separate": True, "masked": True}
    if name in ("window_self_attention", "window_self_attention_branch"):
        yield {"sizes": (2, 2)}
        yield {"sizes": (9, 7), "masked": True}


def all_variants(names=FORWARD):
    return [
        pytest.param(name, options, id=f"{name}-{'-'.join(f'{k}={v}' for k, v in options.items())}")
        for name in names
        for options in variants(name)
    ]


@pytest.fixture(autouse=True)
def kernels_are_there():
    assert ops.has_kernels()


@pytest.mark.parametrize(("name", "options"), all_variants())
def test_kernels_beside_composite_in_float32(name, options):
    compare(name, make(name, **options), torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "options"), all_variants(MAPS))
def test_kernels_beside_composite_in_16_bits(name, options, dtype):
    compare(name, make(name, dtype, **options), dtype)


@pytest.mark.parametrize(("name", "options"), all_variants(("window_attention", "sasa")))
def test_composite_beside_plain_loops(name, options):
    arguments = make(name, torch.float64, **options)
    actual = getattr(composite, name)(*arguments.values)
    expected = getattr(reference, name)(*arguments.values)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_branches_in_16_bits_are_layer_norm_and_layer():
    arguments = make("qna_layer_branch", torch.bfloat16, masked=True)
    expected = composite.qna_layer_branch(*arguments.values)
    actual = functional.qna_layer_branch(*arguments.values)
    assert actual.dtype == torch.bfloat16
    assert_near(actual, expected, 2e-2, "y")


# --- Gradients ---------------------------------------------------------------------------------------------------


def float64_arguments(name):
    arguments = make(name, torch.float64, masked=True, **({"sizes": (3, 2)} if name in MAPS else {}))
    values = [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in arguments.values]
    if name == "fold_qna_layer":
        values[-1] = False  # a constant that is none has no gradient to compare with
    wide = Arguments(name, *values)
    wide.differentiable = arguments.differentiable
    return wide


def as_function_of_leaves(function, arguments):
    def of_leaves(*leaves):
        values = list(arguments.values)
        for i, leaf in zip(arguments.differentiable, leaves):
            values[i] = leaf
        return tuple(results(function(*values)))

    return of_leaves


@pytest.mark.parametrize("name", FORWARD)
def test_gradcheck(name):
    arguments = float64_arguments(name)
    values = arguments.fresh()
    leaves = [values[i] for i in arguments.differentiable]
    assert torch.autograd.gradcheck(as_function_of_leaves(getattr(functional, name), arguments), leaves)


@pytest.mark.parametrize("name", FORWARD)
def test_gradgradcheck(name):
    arguments = float64_arguments(name)
    values = arguments.fresh()
    leaves = [values[i] for i in arguments.differentiable]
    function = as_function_of_leaves(getattr(functional, name), arguments)
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("name", FORWARD)
def test_double_backward_behind_kernels(name):
    def second_order(function, arguments):
        values = arguments.fresh()
        leaves = [values[i] for i in arguments.differentiable]
        total = sum(output.double().square().sum() for output in results(function(*values)))
        first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        again = sum(g.double().square().sum() for g in first if g is not None and g.requires_grad)
        second = torch.autograd.grad(again, leaves, allow_unused=True)
        return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, second)]

    arguments = make(name, masked=True)
    actual = second_order(getattr(functional, name), arguments)
    expected = second_order(getattr(composite, name), arguments)
    for i, (a, e) in enumerate(zip(actual, expected)):
        assert_near(a, e, 1e-4, f"second gradient {i}")


def test_gradient_of_the_operator_that_saves_nothing():
    for name in SAVING:
        arguments = make(name, masked=True)
        _, expected = run(getattr(functional, name), arguments)
        _, actual = run(getattr(torch.ops.qna, name).default, arguments)
        for a, e in zip(actual, expected):
            assert torch.equal(a, e)


@pytest.mark.parametrize(("name", "place"), list(DROP.items()))
def test_gradient_of_the_drop_factor(name, place):
    arguments = make(name, masked=True)
    values = arguments.fresh()
    values[place] = values[place].clone().requires_grad_()
    gradient = torch.autograd.grad(getattr(functional, name)(*values).square().sum(), values[place])[0]
    expected = torch.autograd.grad(getattr(composite, name)(*values).square().sum(), values[place])[0]
    torch.testing.assert_close(gradient, expected)
    with pytest.raises(RuntimeError, match=f"no gradient of drop_factor; qna.functional.{name} has"):
        getattr(torch.ops.qna, name)(*values).sum().backward()


def test_one_tensor_as_two_arguments():
    arguments = make("sasa").fresh()
    q = torch.randn(2, 5, 6, 2, 4, requires_grad=True)

    def gradients(function):
        y = function(q, q, q, *arguments[3:])
        (first,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), q)[0]

    for actual, expected in zip(gradients(functional.sasa), gradients(composite.sasa)):
        assert_near(actual, expected, 1e-4, "gradient")


def test_gradients_only_where_wanted():
    values = make("qna_layer").fresh()
    values[0] = values[0].detach()  # the first layer of a network: the picture has no gradient
    functional.qna_layer(*values).sum().backward()
    assert values[1].grad is not None and values[0].grad is None


# --- What PyTorch asks of an operator ----------------------------------------------------------------------------


def backward_arguments(name, options):
    """Arguments of the operator name_backward."""
    arguments = make(name, **options)
    values = list(arguments.values)
    if name in ("qna_layer", "qna_layer_branch"):
        y, saved = getattr(torch.ops.qna, f"{name}_saving")(*values)
        x, score, value, value_bias, out, out_bias, *rest = values
        return [torch.randn_like(y), x, saved, score, value, out, *rest, True, value_bias is not None,
                out_bias is not None]  # fmt: skip
    if name == "fold_qna_layer":
        query, key_weight, _, value_weight, _, norm_scale, norm_shift, *rest = values
        grads = [torch.randn_like(output) for output in torch.ops.qna.fold_qna_layer(*values)]
        grads = grads if norm_scale is not None else [grads[0], None, None]
        return [*grads, query, key_weight, value_weight, norm_scale, norm_shift, *rest]
    if name in ("mlp_branch", "window_self_attention_branch"):
        y, saved = getattr(torch.ops.qna, f"{name}_saving")(*values)
        if values[7] is not None:
            saved.nan_to_num_()  # where a sample is dropped it holds anything, and tests compare
        return [torch.randn_like(y), saved, *values]
    out = getattr(torch.ops.qna, name)(*values)
    if name == "window_self_attention":
        return [torch.randn_like(out), values[0], out, *values[1:]]
    return [torch.randn_like(out), *values]


def opcheck_cases():
    for name in FORWARD:
        for options in variants(name):
            text = "-".join(f"{key}={value}" for key, value in options.items())
            yield pytest.param(name, "", options, id=f"{name}-{text}")
            yield pytest.param(name, "_backward", options, id=f"{name}_backward-{text}")
            if name in SAVING:
                yield pytest.param(name, "_saving", options, id=f"{name}_saving-{text}")


@pytest.mark.parametrize(("name", "ending", "options"), list(opcheck_cases()))
def test_opcheck(name, ending, options):
    if ending == "_backward":
        values = backward_arguments(name, options)
    else:
        arguments = make(name, **options)
        dropped = ending == "_saving" and name != "qna_layer" and options.get("masked")
        if dropped:  # what is saved is not written where a sample is dropped, and opcheck compares all
            arguments.values = [torch.ones(2) if v is arguments.values[DROP[name]] else v for v in arguments.values]
        values = arguments.fresh()
    torch.library.opcheck(getattr(torch.ops.qna, name + ending).default, values)


def test_every_operator_is_checked():
    checked = {name + ending for name, ending, _ in (case.values for case in opcheck_cases())}
    assert checked == set(ops._SHAPES)


@pytest.mark.parametrize("name", FORWARD)
def test_compiled(name):
    torch.compiler.reset()
    arguments = make(name, masked=True)
    function = getattr(functional, name)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    expected, actual = run(function, arguments), run(compiled, arguments)
    for a, e in zip([*actual[0], *actual[1]], [*expected[0], *expected[1]]):
        assert torch.equal(a, e)


def test_compiled_for_all_sizes():
    torch.compiler.reset()
    layer = qna.QnA(16, heads=4, stride=2)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=True)
    for batch, height, width in ((2, 9, 12), (3, 14, 8), (1, 21, 33)):
        x = torch.randn(batch, height, width, 16)
        torch.testing.assert_close(compiled(x), layer(x))
    assert len(graphs) <= 2  # a batch of 1 may have its own


def test_compiled_by_inductor():
    torch.compiler.reset()
    torch.manual_seed(0)
    network = torch.nn.Sequential(qna.QnA(8, heads=2), torch.nn.GELU(), qna.SASA(8, heads=2), torch.nn.Linear(8, 3))
    compiled = torch.compile(network, fullgraph=True)
    x = torch.randn(2, 6, 7, 8)
    expected, actual = network(x), compiled(x)
    torch.testing.assert_close(actual, expected)
    expected.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    actual.square().sum().backward()
    for parameter, gradient in zip(network.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wanted", [True, False], ids=["kernels", "standard"])
def test_exported(wanted):
    layer = qna.QnA(8, heads=2).eval()
    height, width = torch.export.Dim("height", min=3), torch.export.Dim("width", min=3)
    with ops.use_kernels(wanted), torch.no_grad():
        program = torch.export.export(layer, (torch.randn(1, 8, 9, 8),), dynamic_shapes=({1: height, 2: width},))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert any(name.startswith("qna.") for name in names) == wanted
    x = torch.randn(1, 12, 5, 8)
    torch.testing.assert_close(program.module()(x), layer(x))


def test_meta_tensors():
    for name in FORWARD:
        arguments = make(name, masked=True)
        expected = results(getattr(functional, name)(*arguments.values))
        meta = [v.to("meta") if isinstance(v, torch.Tensor) else v for v in arguments.values]
        for a, e in zip(results(getattr(functional, name)(*meta)), expected, strict=True):
            assert a.device.type == "meta" and a.shape == e.shape and a.dtype == e.dtype


# --- Autocast, determinism, threads ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_autocast_lowers_maps_alone(name):
    maps = {"qna_layer": 1, "window_attention": 2, "sasa": 3}[name]
    values = make(name).values
    lowered = [v.bfloat16() if i < maps else v for i, v in enumerate(values)]
    expected = getattr(functional, name)(*lowered)
    for function in (getattr(functional, name), getattr(torch.ops.qna, name).default):
        with torch.autocast("cpu", torch.bfloat16):
            actual = function(*values)
        assert actual.dtype == torch.bfloat16 and torch.equal(actual, expected)


def test_autocast_in_training():
    values = make("qna_layer").fresh()
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.qna_layer(*values)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert values[0].grad.dtype == torch.float32 and values[1].grad.dtype == torch.float32


def test_branches_under_autocast():
    for name in ("qna_layer_branch", "mlp_branch", "window_self_attention", "window_self_attention_branch"):
        values = make(name).values
        expected = getattr(functional, name)(*values)
        with torch.autocast("cpu", torch.bfloat16):
            actual = getattr(functional, name)(*values)
        assert_near(actual, expected, 3e-2, name)
    values = make("fold_qna_layer", masked=True).values
    with torch.autocast("cpu", torch.bfloat16):
        actual = functional.fold_qna_layer(*values)
    for a, e in zip(actual, functional.fold_qna_layer(*values)):
        assert torch.equal(a, e)


def test_same_bits_for_every_number_of_threads():
    before = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    try:
        for name in FORWARD:
            options = {"sizes": (33, 21)} if name in ("qna_layer", "window_attention", "sasa") else {}
            arguments = make(name, masked=True, **options)
            runs = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                outputs, gradients = run(getattr(functional, name), arguments)
                runs.append([*outputs, *gradients])
            for other in runs[1:]:
                assert all(torch.equal(a, b) for a, b in zip(runs[0], other)), name
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)


def test_calls_from_many_threads():
    arguments = make("qna_layer", sizes=(20, 20))
    expected = functional.qna_layer(*arguments.values)
    wrong = []

    def work():
        for _ in range(20):
            values = arguments.fresh()
            y = functional.qna_layer(*values)
            y.sum().backward()
            if not torch.equal(y, expected):
                wrong.append(y)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- Edges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_windows_without_taps_give_0(name):
    values = make(name, masked=True, biased=False).fresh()
    place = {"qna_layer": 8, "window_attention": 4, "sasa": 4}[name]
    values[place] = torch.zeros_like(values[place])
    for function in (getattr(functional, name), getattr(composite, name)):
        y = function(*values)
        y.sum().backward()
        assert not y.any()
        for value in values:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                assert not value.grad.any()
                value.grad = None


def test_masked_pixels_may_hold_anything():
    for name, maps in (("qna_layer", (0,)), ("window_attention", (0, 1)), ("sasa", (1, 2))):
        arguments = make(name, masked=True)
        mask = next(v for v in arguments.values if isinstance(v, torch.Tensor) and v.dtype == torch.bool)
        expected = run(getattr(functional, name), arguments)
        spoiled = make(name, masked=True)
        for i in maps:
            spoiled.values[i][~mask] = float("nan")
        for function in (getattr(functional, name), getattr(composite, name)):
            outputs, gradients = run(function, spoiled)
            for a, e in zip([*outputs, *gradients], [*expected[0], *expected[1]]):
                assert_near(a, e, 1e-5, name)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_large_scores_are_exact(size):
    values = list(make("window_attention").values)
    values[0] = values[0] * size
    expected = reference.window_attention(*values)
    for function in (functional.window_attention, composite.window_attention):
        assert_near(function(*values), expected, 1e-4, "out")


def test_batch_of_none():
    for name in MAPS:
        values = [
            v[:0] if isinstance(v, torch.Tensor) and i < {"qna_layer": 1, "window_attention": 2, "sasa": 3}[name] else v
            for i, v in enumerate(make(name).values)
        ]
        assert getattr(functional, name)(*values).shape[0] == 0
        assert getattr(composite, name)(*values).shape[0] == 0


def test_memory_in_any_order():
    values = list(make("qna_layer").values)
    expected = functional.qna_layer(*values)
    values[0] = values[0].permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    values[2] = values[2].transpose(0, 2).contiguous().transpose(0, 2)
    assert torch.equal(functional.qna_layer(*values), expected)
    values = list(make("sasa").values)
    expected = functional.sasa(*values)
    assert expected.stride(3) == 1  # heads are the fast index, as those of q
    values = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in values]
    other = functional.sasa(*values)
    assert other.is_contiguous()
    torch.testing.assert_close(other, expected)


def test_uint8_masks():
    values = list(make("qna_layer", masked=True).values)
    expected = functional.qna_layer(*values)
    values[8] = values[8].to(torch.uint8) * 7
    assert torch.equal(functional.qna_layer(*values), expected)


def test_numbers_for_both_axes():
    values = make("qna_layer").values
    assert torch.equal(functional.qna_layer(*values[:9], 3, 1, 1), functional.qna_layer(*values))


# --- Wrong input -------------------------------------------------------------------------------------------------


def replaced(name, **changes):
    """Arguments of a call with some changed, by their place: a3=... is argument 3."""
    values = list(make(name, masked=changes.pop("masked", False)).values)
    for place, value in changes.items():
        values[int(place[1:])] = value
    return values


WRONG = [
    ("qna_layer", {"a0": torch.zeros(5, 6, 5)}, r"x must have 4 dimensions .*got 3 with shape \[5, 6, 5\]"),
    ("qna_layer", {"a0": torch.zeros(2, 5, 6, 5, dtype=torch.int32)}, r"x must be float32.*got torch.int32"),
    ("qna_layer", {"a0": torch.zeros(2, 5, 6, 7)}, r"score_weight must be .*\[7, 2, 2\], got \[5, 2, 2\]"),
    ("qna_layer", {"a2": torch.zeros(5, 3, 3)}, r"score_weight must be .*\[5, 2, 3\], got \[5, 2, 2\]"),
    ("qna_layer", {"a3": torch.zeros(2, 4)}, r"value_bias must be .*\[2, 3\], got \[2, 4\]"),
    ("qna_layer", {"a4": torch.zeros(3, 2, 4)}, r"out_weight must be .*\[2, 3, 4\], got \[3, 2, 4\]"),
    ("qna_layer", {"a6": torch.zeros(3, 3, 2, 1)}, r"bias must be .*\[3, 3, 2, 2\], got \[3, 3, 2, 1\]"),
    ("qna_layer", {"a8": torch.ones(2, 5, 7, dtype=torch.bool)}, r"mask must be .*\[2, 5, 6\], got \[2, 5, 7\]"),
    ("qna_layer", {"a8": torch.ones(2, 5, 6)}, r"mask must be bool or uint8.*got torch.float32"),
    ("qna_layer", {"a9": (3, 3, 3)}, r"kernel_size must have 2 numbers, got \[3, 3, 3\]"),
    ("qna_layer", {"a9": (0, 3)}, r"kernel_size must be at least 1, got 0"),
    ("qna_layer", {"a9": (3, 2.5)}, r"kernel_size must have whole numbers, got 2.5"),
    ("qna_layer", {"a10": (0, 1)}, r"stride must be at least 1, got 0"),
    ("qna_layer", {"a11": (-1, 0, 0, 0)}, r"padding must be at least 0, got -1"),
    ("qna_layer", {"a11": (0, 0, 0, 0), "a12": (3, 1)}, r"window must fit the padded map.*7 x 3 .*on 5 x 6"),
    ("qna_layer", {"a13": 2}, r"up-sampling by 2 needs 2 x 2 queries, got 2"),
    ("qna_layer", {"a1": torch.zeros(5, 2, 2, device="meta")}, r"score_weight must be on the device of x \(cpu\)"),
    ("qna_layer_branch", {"a14": torch.zeros(3)}, r"drop_factor must be \[batch\] = \[2\], got \[3\]"),
    ("qna_layer_branch", {"a10": (2, 2)}, r"with a residual the outputs must be like x, \[5, 6, 5\], got \[3, 3, 5\]"),
    ("fold_qna_layer", {"a7": 4}, r"heads must divide the features \(6\), got 4"),
    ("fold_qna_layer", {"a5": torch.zeros(5)}, r"norm_scale and norm_shift must both be given"),
    ("mlp_branch", {"a3": torch.zeros(8, 5)}, r"weight1 must be .*\[8, 6\], got \[8, 5\]"),
    ("mlp_branch", {"a8": "tanh"}, r"activation must be one of none, gelu_tanh.*got 'tanh'"),
    ("window_self_attention", {"a1": 4}, r"qkv must be .*3 x 4 heads x dim\], got \[2, 5, 6, 18\]"),
    ("window_self_attention", {"a3": torch.zeros(2, 6, 5)}, r"bias must be \[2, at least 7, at least 5\]"),
    ("window_self_attention", {"a2": (0, 3)}, r"window must be at least 1, got 0"),
    ("window_self_attention_branch", {"a8": 4}, r"heads must divide the features \(6\), got 4"),
    ("window_self_attention_branch", {"a3": torch.zeros(6, 18)}, r"qkv_weight must be .*\[18, 6\], got \[6, 18\]"),
    ("window_self_attention_branch", {"a5": torch.zeros(2, 6, 5)}, r"bias must be \[2, at least 7, at least 5\]"),
    ("window_self_attention_branch", {"a7": torch.zeros(3)}, r"drop_factor must be \[batch\] = \[2\], got \[3\]"),
    ("window_attention", {"a0": torch.zeros(2, 5, 6, 2, 4)}, r"scores must be .*\[2, 5, 6, 2, 3\]"),
    ("window_attention", {"a0": torch.zeros(2, 5, 6, 2, 3).half()}, r"scores must have the dtype of values"),
    ("sasa", {"a0": torch.zeros(2, 5, 5, 2, 4)}, r"q must be .*\[2, 5, 6, 2, 4\], got \[2, 5, 5, 2, 4\]"),
    ("sasa", {"a2": torch.zeros(2, 5, 6, 2, 3)}, r"v must be .*\[2, 5, 6, 2, 4\], got \[2, 5, 6, 2, 3\]"),
]


@pytest.mark.parametrize(("name", "changes", "message"), WRONG)
def test_wrong_input(name, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        getattr(functional, name)(*replaced(name, **changes))
    assert str(error.value).startswith(f"{name}: ")
    assert isinstance(error.value, qna.Error)


def test_no_tensor():
    with pytest.raises(TypeError, match=r"qna_layer: x must be a tensor \[batch.*got list"):
        functional.qna_layer(*replaced("qna_layer", a0=[1.0]))


@pytest.mark.parametrize(("name", "changes", "_"), WRONG)
def test_operators_refuse_wrong_input_themselves(name, changes, _):
    on_other_device = any(isinstance(v, torch.Tensor) and v.is_meta for v in changes.values())
    if on_other_device:
        pytest.skip("the dispatcher's business")
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        getattr(torch.ops.qna, name)(*replaced(name, **changes))
    assert "Fatal" not in str(error.value)


def test_operators_say_what_they_lack():
    values = [
        v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in make("qna_layer").values
    ]
    with pytest.raises(RuntimeError, match=r"qna::qna_layer: x must be float32, bfloat16 or float16, got Double"):
        torch.ops.qna.qna_layer(*values)


# --- Loading -----------------------------------------------------------------------------------------------------


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_second_registration_is_refused():
    done = run_python(
        "import torch\n"
        "torch.library.define('qna::qna_layer', '(Tensor x) -> Tensor')\n"
        "try:\n"
        "    import qna.ops\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "torch.ops.qna.* are there already" in done.stdout


def test_without_the_library(tmp_path):
    done = run_python(
        "import warnings, torch\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    import qna.ops\n"
        "print([str(each.message) for each in seen if 'qna' in str(each.message)])\n"
        "import qna\n"
        "print(qna.QnA(8)(torch.randn(1, 4, 4, 8)).shape, qna.ops.has_kernels())\n",
        QNA_PYTHON_BUILD=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "built without torch's headers" in done.stdout and "torch.Size([1, 4, 4, 8]) False" in done.stdout


def test_import_is_lazy():
    done = run_python("import sys, qna; print('torch' in sys.modules, 'numpy' in sys.modules, qna.__version__)")
    assert done.stdout.startswith("False False "), done.stderr


def test_without_torch():
    done = run_python(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import qna\n"
        "try:\n"
        "    qna.QnA\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert "qna.QnA needs torch 2.10 or newer, which is not installed" in done.stdout, done.stderr
