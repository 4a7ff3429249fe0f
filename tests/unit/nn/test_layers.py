"""Layers of heedful.nn: any score and alignment; compiled, exported; sizes from the first call."""

import copy
import subprocess
import sys
from typing import get_args

import pytest
import torch
from torch.overrides import TorchFunctionMode

import heedful.acceleration.kernels  # noqa: F401 - exported layers must not depend on them
from heedful.attention.additive_scores import AdditiveScoreConfig, CoverageFeatureConfig
from heedful.attention.alignments import EntmaxAlignment, SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.config import AlignmentConfig, ScoreConfig, SumScoreConfig
from heedful.attention.multi_head import MultiHeadAttention as HeadsOfModels
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.relative_scores import AlibiScoreConfig
from heedful.attention.scores import BilinearScoreConfig, CosineScore
from heedful.errors import ArgumentError
from heedful.nn import AdditiveAttention, Attention, MultiHeadAttention, MultiheadAttention
from tests.conformance.inputs import sentences

SIZE, HEADS = 4, 2


def members(union):
    """Return the configs of a union of unions."""
    parts = [part for item in get_args(union)[:1] for part in get_args(item)] or [union]
    return parts if parts == [union] else [leaf for part in parts for leaf in members(part)]


SCORES = [config() for config in members(ScoreConfig) if config is not SumScoreConfig]
SCORES += [
    SumScoreConfig(scores=(BilinearScoreConfig(), AlibiScoreConfig())),
    AdditiveScoreConfig(hidden_size=3, features=(CoverageFeatureConfig(),)),
]
ALIGNMENTS = [config() for config in members(AlignmentConfig) if config().type != "sampled"]
by_type = {"ids": lambda config: config.type}


def call(layer, **arguments):
    """Call a layer of any kind on the same queries and values."""
    torch.manual_seed(1)
    queries, values, mask = sentences(width=SIZE)
    if isinstance(layer, MultiheadAttention):
        hidden = ~mask[:, 0]
        return layer(queries, values, values, key_padding_mask=hidden, **arguments)
    if isinstance(layer, MultiHeadAttention):
        return layer(queries, values, value_mask=mask[:, 0], **arguments)
    return layer([queries, values], mask=[None, mask[:, 0]], **arguments)


def build_all(**parts):
    settings = {"dtype": torch.double, **parts}
    return [
        Attention(query_size=SIZE, **settings),
        MultiHeadAttention(HEADS, 2, query_size=SIZE, **settings),
        MultiheadAttention(SIZE, HEADS, batch_first=True, **settings),
    ]


@pytest.mark.parametrize(
    "parts",
    [*({"score": score} for score in SCORES), *({"alignment": each} for each in ALIGNMENTS)],
    ids=lambda parts: next(iter(parts.values())).type,
)
def test_every_score_and_alignment_attends_in_every_layer(parts):
    for layer in build_all(**parts):
        needs = {"need_weights": True} if isinstance(layer, MultiheadAttention) else None
        outputs, weights = call(layer.eval(), **(needs or {"return_attention_scores": True}))
        total, ones = weights.sum(dim=-1), torch.ones(weights.shape[:-1]).double()
        if "score" in parts:
            torch.testing.assert_close(total, ones)
        assert (total < 1 + 1e-6).all()
        assert (weights[1, ..., 3:] == 0).all()
        assert outputs.isfinite().all()


@pytest.mark.parametrize("score", SCORES, **by_type)
def test_attention_equals_mechanism_with_the_same_parts(score):
    layer = Attention(score=score, query_size=SIZE, alignment=EntmaxAlignment(), dtype=torch.double)
    mechanism = SingleHeadAttention(layer.attention.score, EntmaxAlignment(), WeightedSumReadout())
    context, weights = call(layer.eval(), return_attention_scores=True)
    torch.manual_seed(1)
    queries, values, mask = sentences(width=SIZE)
    expected = mechanism.eval()(queries, mechanism.build_memory(values, mask))
    torch.testing.assert_close((context, weights), (expected.context, expected.weights))


@pytest.mark.parametrize("score", SCORES, **by_type)
def test_multihead_attention_equals_heads_of_models(score):
    layer = MultiheadAttention(SIZE, HEADS, batch_first=True, dtype=torch.double, score=score)
    sizes = {"query_size": SIZE, "memory_size": SIZE, "head_dim": SIZE // HEADS}
    heads = HeadsOfModels(layer.attention, num_heads=HEADS, bias=True, **sizes).double().eval()
    with torch.no_grad():
        parts = (heads.query_projection, heads.key_projection, heads.value_projection)
        for part, matrix, bias in zip(
            parts, layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3), strict=True
        ):
            part.weight.copy_(matrix)
            part.bias.copy_(bias)
        heads.output_projection.load_state_dict(layer.out_proj.state_dict())
    outputs, weights = call(layer.eval())
    torch.manual_seed(1)
    queries, values, mask = sentences(width=SIZE)
    expected = heads(queries, heads.build_memory(values, mask))
    torch.testing.assert_close((outputs, weights), (expected.context, expected.weights))


def test_float_mask_is_added_to_any_score():
    layer = MultiheadAttention(SIZE, HEADS, batch_first=True, score=BilinearScoreConfig())
    states = torch.randn(2, 3, SIZE)
    bias = torch.tensor([[0.0, -torch.inf, 1.0]]).expand(3, 3)
    _, plain = layer(states, states, states, average_attn_weights=False)
    _, weights = layer(states, states, states, attn_mask=bias, average_attn_weights=False)
    expected = plain * bias.exp()
    torch.testing.assert_close(weights, expected / expected.sum(dim=-1, keepdim=True))


class FunctionNames(TorchFunctionMode):
    """Records the names of the functions of torch that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.add(getattr(function, "__name__", ""))
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("has_mask", [False, True])
def test_context_without_weights_is_computed_by_fused_kernel(has_mask):
    queries, values, mask = sentences(width=SIZE)
    with FunctionNames() as functions:
        context = Attention()([queries, values], [None, mask[:, 0]] if has_mask else None)
    assert "scaled_dot_product_attention" in functions.names
    assert "softmax" not in functions.names
    _, weights = Attention()(
        [queries, values], [None, mask[:, 0]] if has_mask else None, return_attention_scores=True
    )
    torch.testing.assert_close(context, weights @ values)


EVERY_LAYER = {
    "attention": lambda: Attention(use_scale=True),
    "concat": lambda: Attention(score_mode="concat"),
    "additive": lambda: AdditiveAttention(query_size=SIZE),
    "keras heads": lambda: MultiHeadAttention(HEADS, 3, query_size=SIZE, use_gate=True),
    "torch heads": lambda: MultiheadAttention(SIZE, HEADS, batch_first=True),
    "bilinear": lambda: Attention(score=BilinearScoreConfig(), query_size=SIZE),
}
QUICK = {"additive", "keras heads", "torch heads"}
each_layer = pytest.mark.parametrize(
    "build",
    [
        pytest.param(build, id=name, marks=[] if name in QUICK else pytest.mark.wide)
        for name, build in EVERY_LAYER.items()
    ],
)


class Wrapped(torch.nn.Module):
    """A layer as a part of a model, with and without weights."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, queries, values, mask):
        if isinstance(self.layer, MultiheadAttention):
            options = {"key_padding_mask": ~mask, "is_causal": True}
            outputs, weights = self.layer(queries, values, values, **options)
            return outputs, weights, self.layer(queries, values, values, need_weights=False)[0]
        if isinstance(self.layer, MultiHeadAttention):
            options = {"value_mask": mask, "use_causal_mask": True}
            without = self.layer(queries, values, **options)
            return *self.layer(queries, values, **options, return_attention_scores=True), without
        without = self.layer([queries, values], mask=[None, mask], use_causal_mask=True)
        return *self.layer([queries, values], return_attention_scores=True), without


@each_layer
@pytest.mark.wide
def test_layer_compiles_without_graph_break(build):
    model = Wrapped(build()).double()
    queries, values, mask = sentences(width=SIZE)
    expected = model(queries, values, mask[:, 0])
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(queries, values, mask[:, 0]), expected)


@each_layer
@pytest.mark.wide
def test_layer_is_exported(build):
    model = Wrapped(build()).double().eval()
    queries, values, mask = sentences(width=SIZE)
    inputs = (queries, values, mask[:, 0])
    length = torch.export.Dim("length", min=2)
    shapes = ({}, {1: length}, {1: length})
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))
    longer = (queries, torch.randn(2, 9, SIZE).double(), torch.ones(2, 9, dtype=torch.bool))
    torch.testing.assert_close(program.module()(*longer), model(*longer))


@pytest.mark.parametrize(
    "build", [AdditiveAttention, lambda: MultiHeadAttention(HEADS, 3)], ids=["additive", "heads"]
)
def test_sizes_come_from_first_call_or_state_dict(build):
    layer, other = build().double(), build().double()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)  # before any size is known
    assert not layer.is_built
    before = call(layer)
    assert layer.is_built
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(call(other), before)
    torch.testing.assert_close(call(copy.deepcopy(other)), before)
    before.square().sum().backward()
    optimizer.step()
    assert not torch.allclose(call(layer), before)


def test_training_argument_overrides_mode_for_one_call():
    layer = Attention(dropout=0.5)
    assert torch.equal(call(layer, training=False), call(layer.eval()))
    assert not torch.equal(call(layer, training=True), call(layer))
    assert not layer.attention.training


def test_device_and_dtype_reach_every_parameter():
    for layer in [
        *build_all(score=BilinearScoreConfig(), device="meta"),
        AdditiveAttention(query_size=SIZE, device="meta", dtype=torch.double),
        Attention(score_mode="concat", use_scale=True, device="meta", dtype=torch.double),
    ]:
        assert all(item.is_meta for item in layer.parameters())
        assert {item.dtype for item in layer.parameters()} == {torch.double}


def test_parameters_of_a_score_are_the_only_new_keys():
    theirs = torch.nn.MultiheadAttention(SIZE, HEADS).state_dict()
    ours = MultiheadAttention(SIZE, HEADS, score=BilinearScoreConfig()).state_dict()
    assert set(ours) - set(theirs) == {
        f"attention.score.heads.{head}.projection.weight" for head in range(HEADS)
    }


def test_modules_used_as_they_are():
    score, alignment = CosineScore(), SoftmaxAlignment(temperature=0.5)
    layer = Attention(score=score, alignment=alignment)
    assert layer.attention.score is score
    assert layer.attention.alignment_function is alignment


PROGRAM = """
import sys
import heedful.nn
print(*(name for name in sys.modules if "heedful." in name))

import torch
from heedful.attention.alignments import SparsemaxAlignmentConfig
layer = heedful.nn.MultiheadAttention(4, 2, alignment=SparsemaxAlignmentConfig())
states = torch.randn(3, 2, 4)
compiled = torch.compile(layer, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(states, states, states), layer(states, states, states))
"""


@pytest.mark.wide  # another process imports torch
@pytest.mark.slow
def test_layers_import_nothing_of_models_and_compile_with_sparsemax():
    # In a process of its own: here shapes are checked, which torch.compile cannot trace.
    command = [sys.executable, "-c", PROGRAM]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    packages = {name.split(".")[1] for name in completed.stdout.split()}
    low = {"config", "errors", "ops", "openmp", "pytree", "shapes", "storage", "version"}
    assert packages <= {"nn", "attention", *low}


MESSAGES = {
    "inputs: must be [query, value] or [query, value, key], but is a Tensor\n"
    "  pass a list of two or three tensors": lambda: Attention()(torch.ones(1, 2, 3)),
    "inputs: must be [query, value] or [query, value, key], but is a list of 1\n"
    "  pass a list of two or three tensors": lambda: Attention()([torch.ones(1, 2, 3)]),
    "mask: must be [query mask, value mask], but is a Tensor\n"
    "  pass a list of two masks; None masks nothing": lambda: Attention()(
        [torch.ones(1, 2, 3)] * 2, mask=torch.ones(1, 2)
    ),
    "value mask: has dtype torch.float32, but must be Boolean or integer, true where attention is "
    "allowed\n  pass mask == 0 for summands (0 and -inf), mask != 0 for factors": lambda: (
        Attention()([torch.ones(1, 2, 3)] * 2, mask=[None, torch.ones(1, 2)])
    ),
    "score_mode: no score mode is called 'concatt'; did you mean 'concat'?\n"
    "  choose from: concat, dot": lambda: Attention(score_mode="concatt"),
    "score: replaces the score, but score_mode or use_scale is set\n"
    "  leave out score_mode and use_scale, or score": lambda: Attention(
        use_scale=True, score=CosineScore()
    ),
    "query_size: is needed to build the parameters of 'bilinear'\n"
    "  pass query_size, and key_size if keys have another size; or pass a module": lambda: (
        Attention(score=BilinearScoreConfig())
    ),
    "alignment: learns from the likelihood of target tokens, which a layer does not see\n"
    "  choose 'gumbel-softmax' or 'straight-through'": lambda: MultiheadAttention(
        4, 2, alignment=next(c() for c in members(AlignmentConfig) if c().type == "sampled")
    ),
    "dropout: is 1.5\n  choose a number from 0 to 1": lambda: Attention(dropout=1.5),
    "AdditiveAttention: has no sizes yet\n  call the layer or its method build once, or pass "
    "query_size to the constructor": lambda: AdditiveAttention().get_weights(),
    "weights: have the shapes [(3,)], but must have [(4,)]\n"
    "  pass get_weights() of a Keras layer with the same options": lambda: AdditiveAttention(
        query_size=4
    ).set_weights([torch.ones(3).numpy()]),
    "key_dim: is 0\n  choose 1 or more": lambda: MultiHeadAttention(2, 0),
    "inputs: query, value and key have the shapes (1, 2, 3), (2, 2, 3), (2, 2, 3)\n  they may "
    "differ in the last axis, and the query in the axes that are attended "
    "over": lambda: MultiHeadAttention(2, 2)(torch.ones(1, 2, 3), torch.ones(2, 2, 3)),
    "value_mask: has 3 dimensions, and inputs have 3\n  pass (B, T) with inputs (B, T, D), or an "
    "attention_mask": lambda: MultiHeadAttention(2, 2)(
        *[torch.ones(1, 2, 3)] * 2, value_mask=torch.ones(1, 2, 3).bool()
    ),
    "attention_axes: attention over 2 axes has no order of positions\n  pass attention_axes with "
    "one axis, or leave out use_causal_mask and sliding_window": lambda: MultiHeadAttention(2, 2)(
        *[torch.ones(1, 2, 3, 4)] * 2, use_causal_mask=True
    ),
    "query: query, key and value have the shapes (2, 3, 4), (2, 3, 5), (2, 3, 4)\n  pass "
    "(positions, batch, size) or (positions, size), of the sizes 4, 4, 4": lambda: (
        MultiheadAttention(4, 2)(torch.ones(2, 3, 4), torch.ones(2, 3, 5), torch.ones(2, 3, 4))
    ),
    "query: is a nested tensor\n  pass padded tensors and a key_padding_mask": lambda: (
        MultiheadAttention(4, 2)(*[torch.nested.nested_tensor([torch.ones(2, 4)])] * 3)
    ),
    "attn_mask: has the shape (2, 3), but must have (2, 2) or (2, 2, 2)\n  see the shapes of query "
    "and key": lambda: MultiheadAttention(4, 2)(
        *[torch.ones(2, 4)] * 3, attn_mask=torch.ones(2, 3).bool()
    ),
    "mask: has dtype torch.int64\n  pass a Boolean or a floating-point mask": lambda: (
        MultiheadAttention(4, 2)(*[torch.ones(2, 4)] * 3, key_padding_mask=torch.ones(2).long())
    ),
    "mask: numbers cannot be added to a score that depends on earlier queries\n  pass a Boolean "
    "mask, or a score without features": lambda: MultiheadAttention(4, 2, score=SCORES[-1])(
        *[torch.ones(2, 4)] * 3, attn_mask=torch.ones(2, 2)
    ),
}


@pytest.mark.parametrize(("message", "cause"), MESSAGES.items(), ids=range(len(MESSAGES)))
def test_wrong_argument_raises(message, cause):
    with pytest.raises(ArgumentError) as raised:
        cause()
    assert str(raised.value) == message
