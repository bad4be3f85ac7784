"""Networks without PyTorch: open a weights file, ask it about images.

    model = qna.open("classifier.safetensors")
    model.predict("church.jpg")[0].label        # "church"
    model.features(array)                       # float32 [features]
    model.logits(batch)                         # float32 [B, classes] of images that are ready

The work is done by the engine of the program `qna`, through its C interface (qna/c/qna.h). Images are
resized, cropped and normalised as the weights file says.
"""

from __future__ import annotations

import ctypes
import functools
import json
import operator
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar, Union, overload

import numpy as np

from qna._error import Error
from qna._program import program_path

if TYPE_CHECKING:
    import PIL.Image

    import qna.models

__all__ = ["Box", "Error", "Model", "Prediction", "open"]

# A path of a JPEG, PNG or WebP file, the bytes of one, pixels as uint8 [H, W, 3] or [H, W], or a Pillow image.
Image = Union[str, os.PathLike, bytes, bytearray, memoryview, np.ndarray, "PIL.Image.Image"]
Images = Union["list[Image]", "tuple[Image, ...]"]
# The path of a weights file, its bytes, or a network in PyTorch.
Weights = Union[str, os.PathLike, bytes, bytearray, memoryview, "qna.models.Network"]


class Prediction(NamedTuple):
    """A class of an image. Where the file has no names the label is "class 3"."""

    label: str
    probability: float
    index: int


class Box(NamedTuple):
    """An object in an image; its sides are in pixels of the image."""

    label: str
    score: float
    left: float
    top: float
    right: float
    bottom: float
    index: int


# ---- the C interface ----

_KINDS = ("classifier", "detector", "auto-encoder")  # in the order of qna_kind
_WEIGHT_TYPES = ("float32", "bfloat16")  # in the order of qna_weight_type
_ERROR_MODEL, _ERROR_IMAGE, _ERROR_MEMORY = 2, 3, 5  # of qna_status


class _Pixels(ctypes.Structure):
    _fields_ = [("rgb", ctypes.c_void_p), ("height", ctypes.c_int64), ("width", ctypes.c_int64),
                ("stride", ctypes.c_int64)]


class _Class(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int64), ("probability", ctypes.c_double)]


class _Box(ctypes.Structure):
    _fields_ = [("left", ctypes.c_double), ("top", ctypes.c_double), ("right", ctypes.c_double),
                ("bottom", ctypes.c_double), ("score", ctypes.c_double), ("index", ctypes.c_int64)]


class _Description(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("name", ctypes.c_char_p), ("classes", ctypes.c_int64),
                ("channels", ctypes.c_int64), ("height", ctypes.c_int64), ("width", ctypes.c_int64),
                ("features", ctypes.c_int64), ("queries", ctypes.c_int64),
                ("config", ctypes.c_char_p)]


_MODEL = ctypes.c_void_p
# What says where an image is, per ending of the functions that take one.
_SOURCES = {"pixels": [ctypes.POINTER(_Pixels)], "file": [ctypes.c_char_p],
            "memory": [ctypes.c_char_p, ctypes.c_size_t]}
# What follows it.
_RESULTS = {
    "predict": [ctypes.c_size_t, ctypes.POINTER(_Class), ctypes.POINTER(ctypes.c_size_t)],
    "features": [ctypes.c_size_t, ctypes.c_void_p],
    "detect": [ctypes.c_double, ctypes.c_size_t, ctypes.POINTER(_Box),
               ctypes.POINTER(ctypes.c_size_t)],
}


def _library_path() -> pathlib.Path:
    build = os.environ.get("QNA_PYTHON_BUILD")
    return pathlib.Path(build or pathlib.Path(__file__).parent / "_lib", "libqna.so")


@functools.cache
def _library() -> ctypes.CDLL:
    """The C library, its functions with their types."""
    path = _library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as problem:
        raise ImportError(f"the C library of qna cannot be loaded from {path}: {problem}") from None

    def declare(name: str, arguments: list, result: Any = ctypes.c_int) -> None:
        function = getattr(library, f"qna_{name}")
        function.argtypes, function.restype = arguments, result

    declare("last_error", [], ctypes.c_char_p)
    declare("open_as", [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_MODEL)])
    declare("open_memory_as", [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_MODEL)])
    declare("close", [_MODEL], None)
    declare("set_threads", [_MODEL, ctypes.c_int])
    declare("describe", [_MODEL, ctypes.POINTER(_Description)])
    declare("label", [_MODEL, ctypes.c_int64], ctypes.c_char_p)
    declare("logits", [_MODEL, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                       ctypes.c_size_t, ctypes.c_void_p])
    for operation, results in _RESULTS.items():
        for source, arguments in _SOURCES.items():
            declare(f"{operation}_{source}", [_MODEL, *arguments, *results])
    return library


def _check(status: int) -> None:
    """Raises what a status of the C library stands for, in the library's words."""
    if status == 0:
        return
    message = _text(_library().qna_last_error())
    if status == _ERROR_MEMORY:
        raise MemoryError(message)
    if status == _ERROR_MODEL:
        message = f"weights must be a safetensors file of qna: {message}"
    if status == _ERROR_IMAGE:
        message = f"image must be a JPEG, PNG or WebP picture: {message}"
    raise Error(message)


def _text(characters: bytes) -> str:
    return characters.decode("utf-8", "replace")


class _Handle:
    """A model of the C library, closed when nobody refers to it any more.

    Every call holds a reference while it runs, so closing a model never takes it from another thread.
    A forked process does not have the threads that belong to it and leaves it alone.
    """

    def __init__(self, library: ctypes.CDLL, pointer: ctypes.c_void_p):
        self.pointer = pointer
        self.process = os.getpid()
        self._close = library.qna_close

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if getpid() == self.process:
            self._close(self.pointer)


def _default_weights() -> pathlib.Path:
    """The small classifier that comes with the program."""
    path = program_path().parent / "share" / "qna" / "classifier.safetensors"
    if not path.exists():
        raise Error(f"weights must be given where the package has none of its own, got None and no file {path}")
    return path


def _open_handle(weights: Weights | None, weight_type: str) -> _Handle:
    library = _library()
    if weight_type not in _WEIGHT_TYPES:
        raise Error(f"weight_type must be one of {', '.join(_WEIGHT_TYPES)}, got {weight_type!r}")
    kept_as = _WEIGHT_TYPES.index(weight_type)
    weights = _default_weights() if weights is None else weights
    pointer = ctypes.c_void_p()
    if isinstance(weights, (str, os.PathLike)):
        _check(library.qna_open_as(_encoded_path("weights", weights), kept_as, ctypes.byref(pointer)))
    else:
        data = _bytes_of(weights)
        _check(library.qna_open_memory_as(data, len(data), kept_as, ctypes.byref(pointer)))
    return _Handle(library, pointer)


def _bytes_of(weights: Any) -> bytes:
    if isinstance(weights, (bytes, bytearray, memoryview)):
        return bytes(weights)
    weights = getattr(weights, "_orig_mod", weights)  # what torch.compile stands before
    if "qna.models" in sys.modules and isinstance(weights, sys.modules["qna.models"].Network):
        from qna.weights import to_bytes

        return to_bytes(weights)
    raise Error(f"weights must be a path, bytes or a network of qna, got {_type_name(weights)}")


# ---- arguments ----


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _encoded_path(argument: str, path: str | os.PathLike) -> bytes:
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as problem:
        raise Error(f"{argument} must be a path the system can write, got {path!r}: {problem}") from None
    if b"\0" in encoded:
        raise Error(f"{argument} must be a path without null characters, got {path!r}")
    return encoded


def _whole_number(argument: str, value: Any, least: int, most: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{argument} must be a whole number, got {value!r}") from None
    if number < least or (most is not None and number > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise Error(f"{argument} must be {limits}, got {number}")
    return number


def _number(argument: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Error(f"{argument} must be a number, got {value!r}") from None


class _Source(NamedTuple):
    """Where an image is: which of the C functions takes it, what it gets, whom the memory belongs to."""

    ending: str
    arguments: tuple
    owner: object = None


def _as_array(value: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    torch = sys.modules.get("torch")
    return value.detach().cpu().numpy() if torch is not None and isinstance(value, torch.Tensor) else value


def _is_pillow(image: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def _source(image: Image) -> _Source:
    if isinstance(image, (str, os.PathLike)):
        return _Source("file", (_encoded_path("image", image),))
    if isinstance(image, (bytes, bytearray, memoryview)):
        data = bytes(image)
        return _Source("memory", (data, len(data)))
    image = _as_array(image)
    if isinstance(image, np.ndarray):
        return _source_of_array(image)
    if _is_pillow(image):
        return _source_of_pillow(image)
    raise Error("image must be a path, the bytes of a JPEG, PNG or WebP file, a numpy array, a Pillow image or "
                f"a list of these, got {_type_name(image)}")


def _source_of_array(array: np.ndarray) -> _Source:
    """array: uint8 [H, W, 3], or [H, W] for grey."""
    colour = array.ndim == 3 and array.shape[2] == 3
    if array.dtype != np.uint8 or not (colour or array.ndim == 2) or array.size == 0:
        raise Error("image must be an array of uint8 [height, width, 3] or [height, width], no side 0, "
                    f"got {array.dtype} {list(array.shape)}")
    if not colour:
        array = np.repeat(array[:, :, np.newaxis], 3, axis=2)
    if array.strides[1:] != (3, 1) or array.strides[0] < 3 * array.shape[1]:
        array = np.ascontiguousarray(array)
    pixels = _Pixels(array.ctypes.data, array.shape[0], array.shape[1], array.strides[0])
    return _Source("pixels", (ctypes.byref(pixels),), array)


def _source_of_pillow(image: PIL.Image.Image) -> _Source:
    if image.mode[0] in "IF":
        raise Error(f"image must have 8 bits per channel, got a Pillow image of mode {image.mode}")
    if 0 in image.size:
        raise Error(f"image must have at least one pixel, got a Pillow image of size {image.size}")
    try:
        rgb = image.convert("RGB")  # reads the file, if that has not been done
    except (OSError, SyntaxError, ValueError) as problem:
        raise Error(f"image must be a whole Pillow image: {problem}") from None
    return _source_of_array(np.asarray(rgb))


Answer = TypeVar("Answer")


def _each(image: Image | Images, answer: Callable[[Image], Answer]) -> Answer | list[Answer]:
    """The answer for an image, or the list of those for a list."""
    if not isinstance(image, (list, tuple)):
        return answer(image)
    answers = []
    for i, one in enumerate(image):
        try:
            answers.append(answer(one))
        except Error as problem:
            raise Error(f"image {i} of {len(image)}: {problem}") from None
    return answers


# ---- models ----


class Model:
    """A weights file, opened to be used. It does not change: any number of threads may use one at once.

    An `image` is a path, the bytes of a JPEG, PNG or WebP file, an array of uint8 [H, W, 3] (red, green, blue)
    or [H, W], or a Pillow image. A list of images gives the list of their answers.
    """

    def __init__(self, weights: Weights | None = None, weight_type: str = "float32"):
        """As for `open`."""
        self._handle: _Handle | None = _open_handle(weights, weight_type)
        self._threads = 0
        self._read_description(_library(), self._handle.pointer)

    def _read_description(self, library: ctypes.CDLL, pointer: ctypes.c_void_p) -> None:
        d = _Description()
        _check(library.qna_describe(pointer, ctypes.byref(d)))
        self._config = json.loads(d.config)
        self._description = {
            "kind": _KINDS[d.kind], "name": _text(d.name), "classes": d.classes,
            "channels": d.channels, "height": d.height, "width": d.width, "features": d.features,
            "queries": d.queries}
        labels = (library.qna_label(pointer, i) for i in range(d.classes))
        self._labels = tuple(_text(label) for label in labels if label is not None)

    @property
    def kind(self) -> str:
        """"classifier", "detector" or "auto-encoder"."""
        return self._description["kind"]

    @property
    def name(self) -> str:
        """The network's name; may be empty."""
        return self._description["name"]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; empty where the file has none."""
        return self._labels

    @property
    def config(self) -> dict[str, Any]:
        """The network's configuration, as the program writes it."""
        return self._config

    def describe(self) -> dict[str, Any]:
        """kind, name, classes, channels, height and width of what the network sees (0: as the image,
        resized), features of a classifier, queries of a detector."""
        return dict(self._description)

    @property
    def threads(self) -> int:
        """How many threads compute one image; 0, the default: one per core. Where many threads call the
        model, each with its own images, 1 is fastest. The answers are the same to the last bit."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        count = _whole_number("threads", count, 0, 1024)
        _check(_library().qna_set_threads(self._opened().pointer, count))
        self._threads = count

    @overload
    def predict(self, image: Images, top: int = 5) -> list[list[Prediction]]: ...
    @overload
    def predict(self, image: Image, top: int = 5) -> list[Prediction]: ...

    def predict(self, image, top=5):
        """The `top` most probable classes of an image, the best first."""
        top = _whole_number("top", top, 1)
        return _each(image, lambda one: self._predict(one, top))

    @overload
    def detect(self, image: Images, threshold: float = 0.5) -> list[list[Box]]: ...
    @overload
    def detect(self, image: Image, threshold: float = 0.5) -> list[Box]: ...

    def detect(self, image, threshold=0.5):
        """The objects in an image whose score is at least `threshold` (0 to 1), the best first."""
        threshold = _number("threshold", threshold)
        return _each(image, lambda one: self._detect(one, threshold))

    @overload
    def features(self, image: Images) -> list[np.ndarray]: ...
    @overload
    def features(self, image: Image) -> np.ndarray: ...

    def features(self, image):
        """What a classifier takes its last product of: float32 [features]."""
        return _each(image, self._features)

    def logits(self, images: np.ndarray) -> np.ndarray:
        """What a classifier's probabilities are made of: float32 [B, classes].

        images: float32 [B, H, W, channels] of any one size, an array or a tensor, resized and normalised already.
        """
        channels = self._description["channels"]
        images = _as_array(images)
        if (not isinstance(images, np.ndarray) or images.dtype != np.float32 or images.ndim != 4
                or images.shape[3] != channels or images.size == 0):
            got = f"{images.dtype} {list(images.shape)}" if isinstance(images, np.ndarray) else _type_name(images)
            raise Error(f"images must be an array of float32 [batch, height, width, {channels}], no side 0, got {got}")
        images = np.ascontiguousarray(images)
        batch, height, width = images.shape[:3]
        values = np.empty((batch, self._description["classes"]), np.float32)
        _check(_library().qna_logits(self._opened().pointer, images.ctypes.data, batch, height, width,
                                     values.size, values.ctypes.data))
        return values

    def close(self) -> None:
        """Gives everything back, at the latest when calls that are running have ended. `kind`, `name`,
        `labels` and `config` stay; a second close does nothing."""
        self._handle = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        d = self._description
        state = "" if self._handle else ", closed"
        return f"<qna.Model {d['name']!r}: {d['kind']}, {d['classes']} classes{state}>"

    def __reduce__(self) -> Any:
        raise TypeError("a qna.Model cannot be copied or pickled: open its file again")

    def _opened(self) -> _Handle:
        handle = self._handle
        if handle is None:
            raise Error("the model must be open, it has been closed: open its file again")
        if handle.process != os.getpid():
            raise Error("a model must be used in the process that opened it, "
                        f"got one of process {handle.process} after a fork: open its file again")
        return handle

    def _run(self, operation: str, image: Image, *arguments: Any) -> None:
        handle = self._opened()
        source = _source(image)
        function = getattr(_library(), f"qna_{operation}_{source.ending}")
        _check(function(handle.pointer, *source.arguments, *arguments))

    def _predict(self, image: Image, top: int) -> list[Prediction]:
        capacity = min(top, max(self._description["classes"], 1))
        best, count = (_Class * capacity)(), ctypes.c_size_t()
        self._run("predict", image, capacity, best, ctypes.byref(count))
        return [Prediction(self._label(c.index), c.probability, c.index) for c in best[:count.value]]

    def _detect(self, image: Image, threshold: float) -> list[Box]:
        capacity = max(self._description["queries"], 1)
        boxes, count = (_Box * capacity)(), ctypes.c_size_t()
        self._run("detect", image, threshold, capacity, boxes, ctypes.byref(count))
        return [Box(self._label(b.index), b.score, b.left, b.top, b.right, b.bottom, b.index)
                for b in boxes[:count.value]]

    def _features(self, image: Image) -> np.ndarray:
        values = np.empty(self._description["features"], np.float32)
        self._run("features", image, values.size, values.ctypes.data)
        return values

    def _label(self, index: int) -> str:
        return self._labels[index] if index < len(self._labels) else f"class {index}"


def open(weights: Weights | None = None, weight_type: str = "float32") -> Model:
    """Opens a weights file of any kind the program writes, without PyTorch.

    weights: its path or its bytes; a network of `create_model` or `load`, whose weights as they are now are taken;
    None: the small classifier of ImageNet's 1,000 classes that comes with the package.
    weight_type: how the weights are kept in memory, "float32" or "bfloat16", which takes half of it and
    rounds them to 8 bits of precision.
    """
    return Model(weights, weight_type)
