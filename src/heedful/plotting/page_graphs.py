"""Graphs for the interpreter of a page: ONNX graphs as JSON, and their constants as bytes.

Invariant: the operators of a graph are those of `supported_operators`, or it is refused by name.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RunError, check
from heedful.plotting.html import read_asset

Precision = Literal["fp32", "fp16", "int8"]
_MIN_STORED = 64  # numbers of a tensor; fewer stand in the JSON
_KINDS = {"f": "f32", "i": "i32", "u": "i32", "b": "u8"}
_INT32 = np.iinfo(np.int32)
_INT8_MAX = 127
_ALIGNED = 4  # bytes


@cache
def supported_operators() -> frozenset[str]:
    """Return the operators of the interpreter: the keys of OPERATORS in its modules."""
    modules = map(read_asset, ("tensor-operators.js", "interpreter.js"))
    return frozenset(
        name for text in modules for name in re.findall(r"^  ([A-Z]\w+)[:(]", text, re.M)
    )


def check_operators(written: Mapping[str, Any]) -> None:
    """Raise RunError for the operators that the interpreter does not have."""
    used = {name for graph in written.values() for name in _operators(graph)}
    missing = sorted(used - supported_operators())
    message = f"the model needs operators that the page does not have: {', '.join(missing)}"
    check(not missing, "--to page", message, "use --to onnx; nothing was written", RunError)


def _operators(graph: Mapping[str, Any]) -> Iterator[str]:
    for name, _, _, attributes in graph["nodes"]:
        yield name
        for value in attributes.values():
            if isinstance(value, Mapping) and "nodes" in value:
                yield from _operators(value)


class GraphWriter:
    """Writes graphs as JSON values, and large constants, each once, as bytes."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self.weights = bytearray()
        self._written: dict[tuple[Any, ...], dict[str, Any]] = {}

    def write_graph(self, graph: Any) -> dict[str, Any]:
        """Return a graph: names of inputs and outputs, nodes in order, constants by name."""
        from onnx import numpy_helper

        return {
            "inputs": [value.name for value in graph.input],
            "outputs": [value.name for value in graph.output],
            "nodes": [
                [node.op_type, list(node.input), list(node.output), self._attributes(node)]
                for node in graph.node
            ],
            "constants": {
                tensor.name: self._write_tensor(numpy_helper.to_array(tensor))
                for tensor in graph.initializer
            },
        }

    def _attributes(self, node: Any) -> dict[str, Any]:
        from onnx import AttributeProto, helper, numpy_helper

        attributes: dict[str, Any] = {}
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                attributes[attribute.name] = self.write_graph(attribute.g)
            elif attribute.type == AttributeProto.TENSOR:
                array = numpy_helper.to_array(attribute.t)
                attributes[attribute.name] = self._write_tensor(array)
            else:
                value = helper.get_attribute_value(attribute)
                is_list = not isinstance(value, bytes | int | float)
                value = value.decode() if isinstance(value, bytes) else value
                attributes[attribute.name] = list(value) if is_list else value
        return attributes

    def _write_tensor(self, array: NDArray[Any]) -> dict[str, Any]:
        kind = "f64" if array.dtype == np.float64 else _KINDS[array.dtype.kind]
        tensor: dict[str, Any] = {"shape": list(array.shape), "type": kind}
        if kind == "i32":
            array = array.clip(_INT32.min, _INT32.max)
        if kind != "f32" or array.size < _MIN_STORED:
            as_json = _number if kind.startswith("f") else int
            return {**tensor, "values": [as_json(value) for value in array.reshape(-1)]}
        key = (array.shape, array.tobytes())
        if key not in self._written:
            self._written[key] = self._store(array)
        return {**tensor, **self._written[key]}

    def _store(self, array: NDArray[Any]) -> dict[str, Any]:
        self.weights.extend(b"\0" * (-len(self.weights) % _ALIGNED))
        offset = len(self.weights)
        if self.precision == "fp32" or array.ndim < 2:  # vectors are small: biases and norms
            self.weights.extend(array.astype("<f4").tobytes())
            return {"offset": offset}
        if self.precision == "fp16":
            self.weights.extend(array.astype("<f2").tobytes())
            return {"offset": offset, "stored": "f16"}
        rows = array.reshape(array.shape[0], -1).astype(np.float32)
        scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12) / _INT8_MAX
        self.weights.extend(scales.astype("<f4").tobytes())
        self.weights.extend(np.round(rows / scales).astype("i1").tobytes())
        return {"offset": offset, "stored": "i8", "rows": len(rows)}


def _number(value: Any) -> float | str:
    number = float(value)
    return number if np.isfinite(number) else str(number)
