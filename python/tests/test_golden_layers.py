"""The QnA layer against numbers made with the authors' JAX code: outputs and all gradients.

Run as a program it checks every file once, by the kernels that the environment variable QNA_KERNEL names.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open

import qna
from qna import _program, ops

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
FILES = sorted(path.name for path in GOLDEN.glob("layer_*.safetensors"))

# Ours and the authors' name of each parameter. Their tables are [taps, L * heads], query-major, which is our
# [kh, kw, L, heads] flattened: only the shape differs.
NAMES = {
    "query": "query",
    "key_weight": "Wk",
    "key_bias": "Wk_b",
    "value_weight": "to_v.kernel",
    "value_bias": "to_v.bias",
    "out_weight": "to_out.kernel",
    "out_bias": "to_out.bias",
    "relative_bias": "rpe_bias",
    "attention_scale": "attn_scale_weights",
}

# The golden numbers are float32 themselves, sums of up to some thousand terms: 1e-5 of a tensor's largest element,
# also in float64. In bfloat16 a number has 8 bits.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def read(name):
    """Tensors and configuration of a golden file."""
    with safe_open(GOLDEN / name, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        return tensors, json.loads(file.metadata()["config"])


def make_layer(golden, config):
    layer = qna.QnA(
        config["in_features"],
        features=config["features"],
        heads=config["heads"],
        queries=config["n_queries"],
        kernel_size=config["kernel_size"],
        stride=config["stride"],
        padding=config["padding"],
        normalize_queries=config["normalize_q"],
        attention_scale={"normal": "per_tap", "avg": "average"}[config["attn_scale"]],
        bias=config["use_bias"],
    )
    state = layer.state_dict()
    loaded = {name: golden[f"param.{NAMES[name]}"].view(value.shape) for name, value in state.items()}
    assert len(loaded) == sum(name.startswith("param.") for name in golden)  # nothing is left out
    layer.load_state_dict(loaded)
    return layer


def assert_near(actual, expected, tolerance, what):
    expected = expected.double().view(actual.shape)
    error = (actual.double() - expected).abs().max().item()
    scale = expected.abs().max().item()
    assert error <= tolerance * scale, f"{what}: {error} of {scale}"


def check(name, dtype, layer_dtype):
    golden, config = read(name)
    layer = make_layer(golden, config).to(layer_dtype)
    tolerance = TOLERANCE[dtype]
    x = golden["x"].to(dtype).requires_grad_()
    y = layer(x)
    assert y.dtype == dtype
    assert_near(y, golden["y"], tolerance, "y")
    with torch.no_grad():
        assert_near(layer(x), golden["y"], tolerance, "y without gradients")
    y.backward(golden["dy"].to(dtype))
    assert_near(x.grad, golden["grad.x"], tolerance, "grad.x")
    for ours, parameter in layer.named_parameters():
        if ours == "key_bias":  # it shifts all scores of a softmax alike
            assert not parameter.grad.any()
        else:
            assert_near(parameter.grad, golden[f"grad.{NAMES[ours]}"], tolerance, f"grad.{ours}")


def test_there_are_files():
    assert len(FILES) == 6


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("dtype", "layer_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
    ],
    ids=["float32", "float64", "bfloat16", "bfloat16_weights"],
)
def test_golden(name, dtype, layer_dtype):
    check(name, dtype, layer_dtype)


@pytest.mark.parametrize("name", FILES)
def test_golden_by_composite(name):
    with ops.use_kernels(False):
        check(name, torch.float32, torch.float32)


def implementations():
    """Those this machine can run."""
    done = subprocess.run([_program.program_path(), "kernels"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return [row[0] for row in rows if "yes" in row]


@pytest.mark.parametrize("implementation", implementations())
def test_golden_by_every_implementation(implementation):
    done = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "QNA_KERNEL": implementation}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    assert ops.has_kernels()
    torch.set_num_threads(1)  # the maps are tiny
    for each in FILES:
        check(each, torch.float32, torch.float32)
