"""A small builder of ONNX graphs: values with arithmetic, and sizes that are known only when the graph runs.

    graph = Graph(opset=20)
    x = graph.input("images", ["batch", 3, "height", "width"])
    y = (x.transpose(0, 2, 3, 1) @ graph.constant(weight)).softmax(-1)
    model = graph.model({"probabilities": (y, ["batch", "height", "width", 8])}, metadata={})
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

Size = Union[int, "Value"]  # a number, or one that the graph computes: int64 [1]
_END = (1 << 63) - 1  # of an axis, for Slice


class Graph:
    """Nodes, constants and inputs, in the order they were made."""

    def __init__(self, opset: int):
        self.opset = opset
        self._nodes: list[Any] = []
        self._constants: dict[Any, str] = {}  # names by what they hold
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []
        self._count = 0

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def input(self, name: str, sizes: Sequence[Union[str, int]]) -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(sizes)))
        return Value(self, name)

    def constant(self, tensor: Tensor) -> Value:
        """float32 or int64."""
        name = self._name("constant")
        array = tensor.detach().cpu().contiguous().numpy()
        self._initializers.append(numpy_helper.from_array(array, name))
        return Value(self, name)

    def integers(self, *values: int) -> Value:
        """int64 [n]; equal ones are stored once."""
        if values not in self._constants:
            self._constants[values] = self.constant(torch.tensor(values, dtype=torch.int64)).name
        return Value(self, self._constants[values])

    def number(self, value: float) -> Value:
        """float32 []; equal ones are stored once."""
        key = ("float", value)
        if key not in self._constants:
            self._constants[key] = self.constant(torch.tensor(value, dtype=torch.float32)).name
        return Value(self, self._constants[key])

    def sizes(self, *values: Size) -> Value:
        """int64 [n]"""
        if all(isinstance(value, int) for value in values):
            return self.integers(*values)
        return self.concat([self.integers(value) if isinstance(value, int) else value for value in values], 0)

    def op(self, kind: str, *inputs: Union[Value, None], outputs: int = 1, **attributes: Any) -> Any:
        """A node; its value, or the list of them."""
        names = [self._name(kind) for _ in range(outputs)]
        arguments = ["" if value is None else value.name for value in inputs]
        self._nodes.append(helper.make_node(kind, arguments, names, name=names[0], **attributes))
        values = [Value(self, name) for name in names]
        return values[0] if outputs == 1 else values

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return self.op("Concat", *values, axis=axis)

    def sum(self, values: Sequence[Value]) -> Value:
        return self.op("Sum", *values) if len(values) > 1 else values[0]

    def filled(self, value: float, *sizes: Size) -> Value:
        """float32 of these sizes."""
        number = helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
        return self.op("ConstantOfShape", self.sizes(*sizes), value=number)

    def range(self, size: Size) -> Value:
        """0, 1, ...: int64 [size]"""
        if isinstance(size, int):
            return self.integers(*range(size))
        return self.op("Range", self.integer(0), size.reshape(), self.integer(1))

    def integer(self, value: int) -> Value:
        """int64 []"""
        key = ("integer", value)
        if key not in self._constants:
            self._constants[key] = self.constant(torch.tensor(value, dtype=torch.int64)).name
        return Value(self, self._constants[key])

    def model(self, outputs: Mapping[str, tuple[Value, Sequence[Union[str, int]]]],
              metadata: Mapping[str, str]) -> Any:
        """The onnx.ModelProto; outputs by name with their sizes."""
        results = []
        for name, (value, sizes) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [value.name], [name], name=name))
            results.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(sizes)))
        graph = helper.make_graph(self._nodes, "qna", self._inputs, results, self._initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, producer_name="qna", opset_imports=opsets,
                                  ir_version=helper.find_min_ir_version_for(opsets))
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        return model


class Value:
    """A tensor of a graph. Arithmetic with a number is that of float32, or of sizes where it is an int."""

    def __init__(self, graph: Graph, name: str):
        self.graph, self.name = graph, name

    def _with(self, kind: str, other: Union[Value, int, float], swapped: bool = False) -> Value:
        if isinstance(other, int):
            other = self.graph.integers(other)
        elif isinstance(other, float):
            other = self.graph.number(other)
        return self.graph.op(kind, other, self) if swapped else self.graph.op(kind, self, other)

    def __add__(self, other: Union[Value, int, float]) -> Value:
        return self._with("Add", other)

    def __sub__(self, other: Union[Value, int, float]) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: Union[int, float]) -> Value:
        return self._with("Sub", other, swapped=True)

    def __mul__(self, other: Union[Value, int, float]) -> Value:
        return self._with("Mul", other)

    def __truediv__(self, other: Union[Value, float]) -> Value:
        return self._with("Div", other)

    def __floordiv__(self, other: Union[Value, int]) -> Value:
        """Of sizes, which are not negative."""
        return self._with("Div", other)

    def __rfloordiv__(self, other: int) -> Value:
        return self._with("Div", other, swapped=True)

    def __mod__(self, other: int) -> Value:
        return self._with("Mod", other)

    def __matmul__(self, other: Value) -> Value:
        return self._with("MatMul", other)

    __radd__, __rmul__ = __add__, __mul__

    def size(self, axis: int) -> Value:
        """int64 [1]"""
        return self.graph.op("Shape", self, start=axis, end=axis + 1)

    def floats(self) -> Value:
        return self.graph.op("Cast", self, to=TensorProto.FLOAT)

    def reshape(self, *sizes: Size) -> Value:
        """0 is the size that the axis has, -1 what is left."""
        if not sizes:
            return self.graph.op("Squeeze", self)
        return self.graph.op("Reshape", self, self.graph.sizes(*sizes))

    def transpose(self, *order: int) -> Value:
        return self.graph.op("Transpose", self, perm=list(order))

    def unsqueeze(self, *axes: int) -> Value:
        return self.graph.op("Unsqueeze", self, self.graph.integers(*axes))

    def expand(self, *sizes: Size) -> Value:
        return self.graph.op("Expand", self, self.graph.sizes(*sizes))

    def slice(self, starts: Mapping[int, Size], ends: Mapping[int, Size], steps: Mapping[int, int] = {}) -> Value:
        """By axis. An axis that has a start has an end too: None is the last, and negative ends count from there."""
        axes = list(starts)
        arguments = [self.graph.sizes(*starts.values()),
                     self.graph.sizes(*(_END if ends[axis] is None else ends[axis] for axis in axes)),
                     self.graph.integers(*axes)]
        if any(steps.get(axis, 1) != 1 for axis in axes):
            arguments.append(self.graph.integers(*(steps.get(axis, 1) for axis in axes)))
        return self.graph.op("Slice", self, *arguments)

    def pad(self, rank: int, sides: Mapping[int, tuple[Size, Size]], value: float = 0.0) -> Value:
        """By axis: how much before and behind."""
        if all(side == (0, 0) for side in sides.values()):
            return self
        none = (0, 0)
        pads = [sides.get(axis, none)[end] for end in range(2) for axis in range(rank)]
        return self.graph.op("Pad", self, self.graph.sizes(*pads), self.graph.number(value))

    def split(self, parts: int, axis: int) -> list[Value]:
        """Into equal parts."""
        if parts == 1:
            return [self]
        return self.graph.op("Split", self, outputs=parts, axis=axis, num_outputs=parts)

    def gather(self, indices: Value, axis: int) -> Value:
        return self.graph.op("Gather", self, indices, axis=axis)

    def softmax(self, axis: int) -> Value:
        return self.graph.op("Softmax", self, axis=axis)

    def sum(self, axis: int, keep: bool = False) -> Value:
        return self.graph.op("ReduceSum", self, self.graph.integers(axis), keepdims=int(keep))

    def mean(self, *axes: int) -> Value:
        return self.graph.op("ReduceMean", self, self.graph.integers(*axes), keepdims=0)

    def sigmoid(self) -> Value:
        return self.graph.op("Sigmoid", self)

    def relu(self) -> Value:
        return self.graph.op("Relu", self)
