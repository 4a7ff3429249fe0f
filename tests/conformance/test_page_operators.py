"""Operators of the interpreter in pages give what onnxruntime gives, for inputs of every shape."""

import re

import numpy as np
import pytest

from heedful.plotting.html import read_asset
from heedful.plotting.page_graphs import supported_operators
from tests.page_modules import NEEDS_NODE, run_module

pytestmark = [NEEDS_NODE, pytest.mark.extras]
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
ROW, SCALAR = X[0, 0], np.float32(1.5)
BOOL = X > 0
IDS = np.array([[0, 2], [1, -1]], dtype=np.int64)
IMAGES = RANDOM.normal(size=(2, 2, 7, 6)).astype(np.float32)
KERNELS = RANDOM.normal(size=(2, 2, 3, 2)).astype(np.float32)
STATISTICS = POSITIVE[0, 0].reshape(2, 2).repeat(2, axis=0)  # scale, bias, mean, variance
SPECIAL = np.array([0.5, 1.5, -2.5, np.nan, np.inf, -np.inf, 0, -7], dtype=np.float32)


def integers(*values):
    return np.array(values, dtype=np.int64)


BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
UNARY = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Neg", "Relu")
UNARY += ("Round", "Sigmoid", "Sign", "Sin", "Softplus", "Tan", "Tanh", "Identity", "Size", "Shape")
REDUCTIONS = ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

CASES = [
    *((name, [X, other], {}) for name in BINARY for other in (POSITIVE, ROW, SCALAR, X[:, :1])),
    *((name, [ROW, X], {}) for name in (*BINARY, *COMPARISONS)),
    *((name, [X, X[:, :, :1]], {}) for name in COMPARISONS),
    ("Div", [integers(7, -7, 8), integers(2, 2, -3)], {}),
    ("Mod", [integers(7, -7, 8), integers(2, 2, -3)], {}),
    ("Mod", [X, POSITIVE], {"fmod": 1}),
    ("Pow", [POSITIVE, X], {}),
    ("Equal", [integers(1, 2, 3), integers(1, 0, 3)], {}),
    *((name, [BOOL, BOOL[0]], {}) for name in ("And", "Or", "Xor")),
    ("Not", [BOOL], {}),
    *((name, [X], {}) for name in UNARY),
    *((name, [SPECIAL], {}) for name in ("Round", "IsNaN", "IsInf", "Relu", "Sign")),
    *((name, [POSITIVE], {}) for name in ("Sqrt", "Log", "Reciprocal")),
    *(("Gelu", [X], {"approximate": kind}) for kind in ("none", "tanh")),
    ("Erf", [np.linspace(-7, 7, 200, dtype=np.float32)], {}),
    ("Clip", [X, np.float32(-0.5), np.float32(0.5)], {}),
    ("Clip", [X, np.float32(-0.5)], {}),
    ("Shape", [X], {"start": 1, "end": -1}),
    ("ConstantOfShape", [integers(2, 3)], {}),
    ("Range", [integers(2), integers(9), integers(3)], {}, "scalars"),
    *(("Cast", [values], {"to": to}) for values in (X, BOOL) for to in (1, 7, 9, 11)),
    ("Squeeze", [X[:1, :, :1], integers(0, -1)], {}),
    ("Squeeze", [X[:1, :, :1]], {}),
    ("Unsqueeze", [X, integers(0, -1)], {}),
    ("Reshape", [X, integers(0, -1)], {}),
    ("Transpose", [X], {"perm": [2, 0, 1]}),
    ("Transpose", [X], {}),
    ("Concat", [X, X[:, :1], X[:, :0]], {"axis": -2}),
    ("Split", [X, integers(1, 3)], {"axis": -1}, 2),
    ("Split", [X], {"axis": 1, "num_outputs": 2}, 2),
    ("Slice", [X, integers(-2), integers(2**62), integers(-1)], {}),
    ("Slice", [X, integers(0, 1), integers(2, 3)], {}),
    ("Slice", [X, integers(0, -1), integers(3, -(2**62)), integers(1, 2), integers(2, -1)], {}),
    ("Gather", [X, IDS], {"axis": 1}),
    ("Gather", [X, np.array(1)], {"axis": -1}),
    ("GatherElements", [X[0], IDS], {"axis": 1}),
    ("GatherElements", [X[0], IDS], {"axis": 0}),
    ("GatherND", [X, integers(0, 1).reshape(1, 2)], {}),
    ("GatherND", [X, IDS], {"batch_dims": 1}, "rows"),
    *(
        ("ScatterElements", [X[0], IDS, X[0, :2, :2]], {"axis": 1, "reduction": reduction})
        for reduction in ("none", "add", "max")
    ),
    ("ScatterND", [X, IDS, X[0, :2]], {"reduction": "add"}),
    ("Pad", [X, integers(1, 0, 0, 2), np.float32(9), integers(0, 2)], {}),
    ("Pad", [X, integers(0, -1, 0, 1, 0, 0)], {}),
    ("Expand", [ROW, integers(2, 3, 1)], {}),
    ("Tile", [X, integers(2, 1, 3)], {}),
    ("Where", [BOOL, X, SCALAR], {}),
    ("Where", [BOOL[:, :, :1], ROW, X], {}),
    ("MatMul", [X, X.transpose(0, 2, 1)], {}),
    ("MatMul", [X, X[0].T], {}),
    ("MatMul", [ROW, X[0].T], {}),
    ("MatMul", [X, ROW], {}),
    ("MatMul", [X[:, None], X.transpose(0, 2, 1)], {}),
    ("Gemm", [X[0], X[1], SCALAR], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [X[0], X[1], ROW], {"transA": 1}),
    ("Gemm", [X[0, :, :3], X[1], ROW], {}),
    *(("Softmax", [X], {"axis": axis}) for axis in (-1, 1)),
    *(("LogSoftmax", [X], {"axis": axis}) for axis in (-1, 0)),
    ("LayerNormalization", [X, ROW, ROW], {"axis": -1, "epsilon": 1e-3}),
    ("LayerNormalization", [X, X[0]], {"axis": 1}),
    *((f"Reduce{name}", [X, integers(-1, 0)], {"keepdims": 0}) for name in REDUCTIONS),
    *((f"Reduce{name}", [X], {}) for name in REDUCTIONS),
    ("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    ("ReduceMax", [integers(3, 7, 1), integers(0)], {}),
    *((name, [X], {"axis": 1, "keepdims": 0}) for name in ("ArgMax", "ArgMin")),
    ("ArgMax", [np.ones((2, 3), np.float32)], {"axis": 1, "select_last_index": 1}),
    *(("TopK", [X, integers(2)], {"axis": axis, "largest": 1}, 2) for axis in (-1, 1)),
    ("TopK", [X, integers(2)], {"largest": 0}, 2),
    ("CumSum", [X, np.array(1)], {}),
    ("CumSum", [X, np.array(-1)], {"exclusive": 1, "reverse": 1}),
    ("Trilu", [X], {"upper": 0}),
    *(("EyeLike", [X[0]], {"k": offset}) for offset in (-1, 0, 2)),
    ("EyeLike", [X[0]], {"dtype": 7}),
    ("Trilu", [X, np.array(1)], {"upper": 1}),
    ("Conv", [X, X[:, :, :3], X[0, 0, :2]], {"pads": [2, 0], "dilations": [1]}),
    ("Conv", [X, X[:, :, :2]], {"strides": [2], "pads": [1, 1]}),
    ("Conv", [X[:, :2], X[:, :1, :2]], {"group": 2}),
    ("Conv", [IMAGES, KERNELS, X[0, 0, :2]], {"pads": [1, 0, 1, 2]}),
    ("Conv", [IMAGES, KERNELS], {"strides": [2, 3], "dilations": [2, 1], "pads": [1, 1, 1, 1]}),
    ("Conv", [IMAGES, KERNELS[:, :1, :1, :1]], {"group": 2}),
    ("BatchNormalization", [IMAGES, *STATISTICS], {"epsilon": 1e-3}),
    *(
        (
            "MaxPool",
            [IMAGES],
            {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": mode, **pads},
        )
        for mode in (0, 1)
        for pads in ({}, {"pads": [1, 1, 0, 1]})
    ),
]
MODULE = """import { OPERATORS } from "./tensor-operators.js";
import { toTyped } from "./tensors.js";
const read = (value) => ({ ...value, values: toTyped(value.values.map(Number), value.type) });
answer(input.map(([name, inputs, attributes, count]) => {
  const results = [OPERATORS[name](inputs.map(read), attributes, count)].flat();
  return results.map((result) => ({ ...result, values: [...result.values].map(String) }));
}));
"""
TYPES = {"float32": "f32", "float64": "f64", "int64": "i32", "bool": "u8"}


def arrange(case):
    """Return the name, inputs, attributes and the number of outputs of a case."""
    name, inputs, attributes, *others = case
    form = others[0] if others else 1
    inputs = [np.asarray(value) for value in inputs]
    if form == "scalars":
        inputs = [value.reshape(()) for value in inputs]
    if form == "rows":
        inputs = [inputs[0], np.abs(inputs[1])]
    return name, inputs, attributes, form if isinstance(form, int) else 1


def run_onnx(name, inputs, attributes, count):
    names, outputs = [f"x{index}" for index in range(len(inputs))], [f"y{k}" for k in range(count)]
    node = onnx.helper.make_node(name, names, outputs, **attributes)
    infos = [
        onnx.helper.make_tensor_value_info(
            key, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for key, value in zip(names, inputs, strict=True)
    ]
    graph = onnx.helper.make_graph(
        [node], "one", infos, [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9
    )
    session = onnxruntime.InferenceSession(
        onnx.shape_inference.infer_shapes(model).SerializeToString(),
        providers=["CPUExecutionProvider"],
    )
    return session.run(None, dict(zip(names, inputs, strict=True)))


def to_json(value):
    clipped = value.clip(-(2**31), 2**31 - 1) if value.dtype == np.int64 else value
    values = [str(number) for number in clipped.reshape(-1).astype(float)]
    values = [text.replace("inf", "Infinity").replace("nan", "NaN") for text in values]
    return {"shape": list(value.shape), "type": TYPES[str(value.dtype)], "values": values}


def test_operators_match_onnxruntime():
    cases = list(map(arrange, CASES))
    requests = [
        (name, list(map(to_json, inputs)), attributes, count)
        for name, inputs, attributes, count in cases
    ]
    for case, actual in zip(cases, run_module(MODULE, requests), strict=True):
        for expected, result in zip(run_onnx(*case), actual, strict=True):
            described = (case[0], case[2], [value.shape for value in case[1]])
            assert (result["shape"], result["type"]) == (
                list(expected.shape),
                TYPES[str(expected.dtype)],
            ), described
            numbers = np.array([float(text) for text in result["values"]]).reshape(expected.shape)
            np.testing.assert_allclose(
                numbers, expected.astype(float), rtol=2e-6, atol=2e-6, err_msg=str(described)
            )


def test_each_operator_has_a_test_case():
    keys = re.findall(r"^  ([A-Z]\w+):", read_asset("tensor-operators.js"), re.MULTILINE)
    assert {case[0] for case in CASES} == set(keys)
    others = {"Scan", "EditMask", "EditWeights"}
    assert supported_operators() == {*keys, *others}
