"""QnA: local attention with learned queries, on CPUs and under PyTorch.

Nothing is imported before it is used: `import qna` needs neither torch nor numpy, and what runs without torch
(`open`, `Error`) works where torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_MODULES = {
    # with torch
    "QnA": "layers",
    "QnA1d": "layers",
    "SASA": "layers",
    "QnAViT": "models",
    "create_model": "models",
    "list_models": "models",
    "load": "weights",
    "save": "weights",
    "export_onnx": "onnx",
    # without torch
    "open": "engine",
    "Model": "engine",
    "Error": "_error",
}
_SUBMODULES = ("blocks", "composite", "engine", "functional", "layers", "models", "onnx", "ops", "timm", "weights")

__all__ = [*_MODULES, "functional", "__version__"]

if TYPE_CHECKING:
    from qna import functional as functional
    from qna._error import Error as Error
    from qna.engine import Model as Model
    from qna.engine import open as open
    from qna.layers import SASA as SASA
    from qna.layers import QnA as QnA
    from qna.layers import QnA1d as QnA1d
    from qna.models import QnAViT as QnAViT
    from qna.models import create_model as create_model
    from qna.models import list_models as list_models
    from qna.onnx import export_onnx as export_onnx
    from qna.weights import load as load
    from qna.weights import save as save

    __version__: str


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("qna")
    except metadata.PackageNotFoundError:
        return "0"  # used from its sources, not installed


def _import(module: str, name: str) -> Any:
    """The module of the package that holds `name`."""
    try:
        return importlib.import_module(f"qna.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"qna.{name} needs torch 2.10 or newer, which is not installed (pip install torch); "
            "qna.open works without it"
        ) from None


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _MODULES:
        value = getattr(_import(_MODULES[name], name), name)
    elif name in _SUBMODULES:
        return _import(name, name)
    else:
        raise AttributeError(f"module 'qna' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
