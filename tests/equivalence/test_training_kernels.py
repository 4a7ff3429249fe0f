"""Kernels of training steps equal the plain code, in value and in gradient.

They run on a GPU, or in Triton's interpreter where there is none.
"""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

import heedful.acceleration.kernels  # noqa: F401
from heedful.acceleration import tuning
from heedful.acceleration.cuda import training
from heedful.acceleration.deferred_log_probs import DeferredLogProbs
from heedful.acceleration.registry import accelerate_for_training, deferred_log_softmax
from heedful.attention.attention import softmax_context
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.memory import Memory
from heedful.layers.sublayers import FeedForward, SublayerConnection
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.output_heads import (
    log_softmax,
    negative_log_likelihood,
    smoothed_cross_entropy,
)
from heedful.pytree import map_tensors
from heedful.training.objectives import CrossEntropyObjective
from tests.catalogue import batch, build, store

pytest.importorskip("triton", reason="Triton is not installed")

from heedful.acceleration.triton import attention as triton_attention_module
from heedful.acceleration.triton import cross_entropy, feed_forward, layer_norm
from heedful.acceleration.triton.attention import triton_attention
from heedful.acceleration.triton.cross_entropy import linear_cross_entropy
from heedful.acceleration.triton.feed_forward import linear_relu
from heedful.acceleration.triton.layer_norm import triton_residual_norm

pytestmark = pytest.mark.extras

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter multiplies matrices of bfloat16 as integers.
NARROW = torch.bfloat16 if torch.cuda.is_available() else torch.float16
TOLERANCE = {torch.float32: 1e-5, NARROW: 0.03}


@pytest.fixture(autouse=True)
def every_device(monkeypatch):
    """Let kernels run where the tests run, in blocks that small tensors fill more than once."""
    monkeypatch.setattr(training, "TRITON_DEVICE_TYPE", DEVICE)
    monkeypatch.setattr(tuning, "TRITON_NORM_ELEMENTS", 64)
    monkeypatch.setattr(tuning, "TRITON_NORM_GRADIENT_ELEMENTS", 64)
    monkeypatch.setattr(tuning, "TRITON_ATTENTION_QUERIES", 16)
    monkeypatch.setattr(tuning, "MIN_ATTENTION_BLOCK", 16)
    monkeypatch.setattr(tuning, "TRITON_LOGITS_BLOCK", 16)


def for_gpu(module):
    """Replace modules as on a GPU, wherever the tests run."""
    return accelerate_for_training(module, "cuda")


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE).to(dtype).requires_grad_()


def with_gradients(form, inputs):
    """Return what a function computes, and gradients of a sum with other weights everywhere."""
    outputs = form(*inputs)
    weights = torch.linspace(-1, 1, outputs.numel(), device=DEVICE).view(outputs.shape)
    grads = torch.autograd.grad((outputs.float() * weights).sum(), inputs)
    return [outputs.detach().float(), *(grad.float() for grad in grads)]


def assert_same(fused, plain, inputs):
    """Compare with the plain form in float32; the error is relative to the largest element."""
    dtype = inputs[0].dtype
    exact = [tensor.detach().float().requires_grad_() for tensor in inputs]
    expected = with_gradients(plain, exact)
    for actual, wanted in zip(with_gradients(fused, inputs), expected, strict=True):
        scale = wanted.abs().max().item() if wanted.numel() else 0.0
        torch.testing.assert_close(actual, wanted, rtol=0, atol=TOLERANCE[dtype] * (0.1 + scale))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(2, 3, 24), (1, 5), (4, 32), (0, 8)])
def test_residual_norm_equals_layer_norm_of_the_sum(shape, dtype):
    inputs = [normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)]
    parameters = [normal(shape[-1]), normal(shape[-1])]

    def fused(x, u, w, b):
        return triton_residual_norm(x, u, w, b, eps=1e-5, dtype=dtype)

    def plain(x, u, w, b):
        return functional.layer_norm(x + u, x.shape[-1:], w, b, 1e-5)

    assert_same(fused, plain, inputs + parameters)


def test_norm_without_update_supports_inputs_of_any_layout():
    transposed = normal(6, 5).detach().T.requires_grad_()

    def fused(x, w, b):
        return triton_residual_norm(x, None, w, b, eps=1e-3, dtype=torch.float32)

    def plain(x, w, b):
        return functional.layer_norm(x, x.shape[-1:], w, b, 1e-3)

    assert_same(fused, plain, [transposed, normal(6), normal(6)])


def draw_mask(shape, p, seed=0):
    """Return the factors with which dropout multiplies, taken from a sum without a norm."""
    torch.manual_seed(seed)
    zeros, ones = torch.zeros(shape, device=DEVICE), torch.ones(shape, device=DEVICE)
    return triton_residual_norm(zeros, ones, None, None, dropout=p, dtype=torch.float32)


def test_dropout_of_residual_has_the_same_mask_in_both_directions():
    shape, p = (5, 24), 0.4
    factors = draw_mask(shape, p)

    def fused(x, u, w, b):
        torch.manual_seed(0)
        return triton_residual_norm(x, u, w, b, eps=1e-5, dropout=p, dtype=torch.float32)

    def plain(x, u, w, b):
        return functional.layer_norm(x + factors * u, (24,), w, b, 1e-5)

    assert_same(fused, plain, [normal(*shape), normal(*shape), normal(24), normal(24)])


def test_dropout_keeps_share_and_differs_between_calls():
    shape, p = (16, 64), 0.25
    first, again, other = (draw_mask(shape, p, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert first.unique().tolist() == pytest.approx([0, 1 / (1 - p)])
    for factors in (first, other, (first * other) ** 0.5):  # independent of one another
        kept = (factors > 0).double()
        share = (1 - p) ** (2 if factors is not first and factors is not other else 1)
        for means in (kept.mean(), kept.mean(dim=0), kept.mean(dim=1)):
            deviation = (share * (1 - share) * means.numel() / kept.numel()) ** 0.5
            assert ((means - share).abs() < 5 * deviation).all()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("num_rows", [0, 5])
def test_relu_of_a_linear_layer_equals_two_modules(num_rows, dtype, monkeypatch):
    monkeypatch.setattr(tuning, "TRITON_RELU_TILE", (2, 4))
    monkeypatch.setattr(tuning, "TRITON_RELU_PROGRAMS", 2)

    def fused(x, w, b):
        return linear_relu(x, w, b, dtype=dtype)

    def plain(x, w, b):
        return (x @ w.T + b).relu()

    assert_same(fused, plain, [normal(1, num_rows, 3, dtype=dtype), normal(6, 3), normal(6)])


MASKS = {
    "padding": padding_mask(torch.tensor([7, 3]), 7),
    "nothing visible": padding_mask(torch.tensor([7, 0]), 7),
    "causal": causal_mask(20)[:, :, :7],
    "of each row": torch.arange(2 * 20 * 7).view(2, 20, 7) % 3 > 0,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_short_attention_equals_softmax_context(mask, dtype):
    # 20 queries are more than a block; two heads share keys and values.
    mask = mask.unsqueeze(1).to(DEVICE)
    queries = normal(2, 20, 2, 5, dtype=dtype).transpose(1, 2)  # not contiguous
    keys, values = normal(2, 1, 7, 5, dtype=dtype), normal(2, 1, 7, 6, dtype=dtype)
    arguments = [tensor.detach().requires_grad_() for tensor in (queries, keys, values)]

    def fused(q, k, v):
        return triton_attention(q, k, v, mask, scale=0.7)

    def plain(q, k, v):
        return softmax_context.reference(q, Memory(v, k, mask), 1 / 0.7, 0.0)

    assert_same(fused, plain, arguments)


@pytest.mark.parametrize("mask", ["causal", "padding"])
def test_attention_in_blocks_equals_softmax_context(mask, monkeypatch):
    monkeypatch.setattr(tuning, "MAX_TRITON_KEYS", 16)
    monkeypatch.setattr(tuning, "TRITON_LONG_TILE", (16, 16))
    is_visible = causal_mask(36) if mask == "causal" else padding_mask(torch.tensor([0, 17]), 36)
    is_visible = is_visible[:, -20:].unsqueeze(1).to(DEVICE)
    batch_size = len(is_visible)
    arguments = [normal(batch_size, 2, 20, 5), normal(batch_size, 1, 36, 5)]
    arguments.append(normal(batch_size, 1, 36, 6))

    def fused(q, k, v):
        return triton_attention(q, k, v, is_visible, scale=0.7)

    def plain(q, k, v):
        return softmax_context.reference(q, Memory(v, k, is_visible), 1 / 0.7, 0.0)

    assert_same(fused, plain, arguments)


def test_short_attention_writes_heads_side_by_side():
    context = triton_attention(
        *(normal(2, 3, 4, 5) for _ in range(3)), torch.ones(1, 1, 1, 4, device=DEVICE) > 0, scale=1
    )
    assert context.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("max_keys", [16, 4])
def test_dropout_of_attention_has_the_same_mask_in_both_directions(max_keys, monkeypatch):
    monkeypatch.setattr(tuning, "MAX_TRITON_KEYS", max_keys)
    p, mask = 0.3, torch.ones(1, 1, 1, 6, dtype=torch.bool, device=DEVICE)
    queries, keys, values = normal(1, 2, 20, 4), normal(1, 2, 6, 4), normal(1, 2, 6, 5)

    def fused(q, k, v):
        torch.manual_seed(3)
        return triton_attention(q, k, v, mask, scale=1.0, dropout=p)

    identity = torch.eye(6, device=DEVICE).expand(1, 2, 6, 6)  # so that contexts are weights
    factors = fused(queries, keys, identity).detach() / (queries @ keys.mT).softmax(dim=-1).detach()
    kept = factors > 0
    torch.testing.assert_close(factors, kept / (1 - p), rtol=1e-4, atol=1e-5)
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=0.1)

    def plain(q, k, v):
        return ((q @ k.mT).softmax(dim=-1) * kept / (1 - p)) @ v

    assert_same(fused, plain, [queries, keys, values])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("chunk_size", [37, 4 * 37, 2**20])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_linear_cross_entropy_equals_that_of_log_probs(dtype, chunk_size, smoothing, monkeypatch):
    monkeypatch.setattr(tuning, "MAX_LOGITS", chunk_size)
    targets = torch.tensor([[5, 1, 36, 0], [0, 0, 7, 7]], device=DEVICE)  # 0 is padding

    def fused(x, w, b):
        return linear_cross_entropy(x, w, b, targets, label_smoothing=smoothing, dtype=dtype)

    def plain(x, w, b):
        return negative_log_likelihood((x @ w.T + b).log_softmax(dim=-1), targets, smoothing)

    assert_same(fused, plain, [normal(2, 4, 8, dtype=dtype), normal(37, 8), normal(37)])


def test_linear_cross_entropy_of_extreme_logits_is_finite():
    weight = 1e4 * torch.eye(37, device=DEVICE)
    inputs = torch.eye(37, device=DEVICE)[:2].requires_grad_()
    targets = torch.tensor([1, 1], device=DEVICE)  # of the second row, and not of the first
    loss = linear_cross_entropy(
        inputs, weight, None, targets, label_smoothing=0.0, dtype=torch.float32
    )
    assert loss.item() == pytest.approx(1e4)
    assert torch.autograd.grad(loss, inputs)[0].isfinite().all()


def test_deferred_log_probs_computed_by_any_use():
    projection = nn.Linear(8, 37, device=DEVICE)
    inputs = normal(2, 4, 8)
    expected = log_softmax(projection(inputs))
    deferred = deferred_log_softmax(inputs, projection)
    assert (deferred.shape, deferred.dtype) == (expected.shape, expected.dtype)
    assert not deferred.is_computed
    torch.testing.assert_close(deferred.exp().sum(dim=-1), torch.ones(2, 4, device=DEVICE))
    assert deferred.is_computed
    torch.testing.assert_close(torch.stack([deferred, expected])[0], expected)
    targets = torch.ones(2, 4, dtype=torch.long, device=DEVICE)
    loss = negative_log_likelihood(deferred, targets, 0.1)
    torch.testing.assert_close(loss, smoothed_cross_entropy.reference(expected, targets, 0.1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_deferred_log_probs_computed_under_the_autocast_of_their_time(dtype):
    projection, inputs = nn.Linear(8, 37, device=DEVICE), normal(2, 8, dtype=dtype)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        expected = log_softmax(projection(inputs))
        deferred = deferred_log_softmax(inputs, projection)
    assert not deferred.is_computed
    assert deferred.dtype == expected.dtype
    assert torch.equal(deferred + 0, expected)


def test_kernels_skip_meta_tensors():
    projection = nn.Linear(8, 37, device="meta")
    inputs = torch.empty(2, 8, device="meta", requires_grad=True)
    assert type(deferred_log_softmax(inputs, projection)) is torch.Tensor
    connection = SublayerConnection(nn.LayerNorm(8), norm_order="post", dropout=0.1).to("meta")
    assert for_gpu(connection).add_residual(inputs, inputs).is_meta


def test_log_probs_not_deferred_in_evaluation():
    projection = nn.Linear(8, 37, device=DEVICE)
    with torch.no_grad():
        assert type(deferred_log_softmax(normal(2, 8), projection)) is torch.Tensor
    assert type(deferred_log_softmax(normal(2, 8), projection.eval())) is torch.Tensor


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("name", ["norm", "dropout"])
def test_modules_with_hooks_called(name, norm_order):
    connection = SublayerConnection(nn.LayerNorm(8), norm_order=norm_order, dropout=0.1).to(DEVICE)
    calls = []
    connection.get_submodule(name).register_forward_hook(lambda *_: calls.append(name))
    fused, inputs = for_gpu(connection), normal(2, 8)
    fused.add_residual(fused.sublayer_input(inputs), inputs)
    assert calls == [name]


def test_hooked_feed_forward_layers_called():
    layer, calls = FeedForward(8, 16).to(DEVICE), []
    layer.activation.register_forward_hook(lambda *_: calls.append("activation"))
    for_gpu(layer)(normal(2, 3, 8))
    assert calls == ["activation"]


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_normalized_outputs_have_the_precision_of_products(norm_order):
    connection = SublayerConnection(nn.LayerNorm(8), norm_order=norm_order, dropout=0.1).to(DEVICE)
    connection, inputs = for_gpu(connection), normal(2, 3, 8)
    with torch.autocast(DEVICE, dtype=NARROW):
        entered = connection.sublayer_input(inputs)
        outputs = connection.add_residual(inputs, inputs.to(NARROW))
    # With pre-norm sums are not normalized, so they are not rounded.
    wanted = (NARROW, torch.float32) if norm_order == "pre" else (torch.float32, NARROW)
    assert (entered.dtype, outputs.dtype) == wanted


@pytest.mark.parametrize("name", ["transformer over convolutions", "transformer, pre-norm"])
def test_model_with_kernels_has_the_plain_loss_and_gradients(name, monkeypatch):
    model = copy.deepcopy(build(name)).to(DEVICE, torch.float32).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    examples = map_tensors(lambda tensor: tensor.to(DEVICE), batch(store(), [0, 1]))
    objective = CrossEntropyObjective(label_smoothing=0.1)
    results = []
    for device_type in ("none", DEVICE):
        monkeypatch.setattr(training, "TRITON_DEVICE_TYPE", device_type)
        loss = objective(for_gpu(model), examples, 1, model).main_loss
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        results.append([loss, *(grad for grad in grads if grad is not None)])
    assert isinstance(for_gpu(model)(examples).log_probs, DeferredLogProbs)
    for actual, wanted in zip(*reversed(results), strict=True):
        tolerance = 1e-4 * (0.1 + wanted.abs().max().item())
        torch.testing.assert_close(actual, wanted, rtol=0, atol=tolerance)


class LaunchRecorder:
    """Records for which arguments Triton would compile a kernel, and does not run it."""

    def __init__(self, kernel):
        self.names = list(inspect.signature(kernel.fn).parameters)
        options = getattr(kernel, "kwargs", None) or vars(kernel)  # of the interpreter, or not
        self.shared = set(options["do_not_specialize"] or ())
        self.variants = set()

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *args, **constants):
        named = [*zip(self.names, args, strict=False), *constants.items()]
        self.variants.add(tuple((name, self.specialize(name, value)) for name, value in named))

    def specialize(self, name, value):
        if isinstance(value, torch.Tensor):
            return value.dtype, value.data_ptr() % 16 == 0
        if name.isupper() or name == "num_warps" or value is None:
            return value
        if isinstance(value, float) or name in self.shared:
            return type(value)
        return value == 1, value % 16 == 0


def test_kernels_compiled_for_few_of_many_batch_shapes(monkeypatch):
    monkeypatch.undo()  # tiles as they are
    monkeypatch.setattr(training, "TRITON_DEVICE_TYPE", DEVICE)
    kernels = {}
    for module in (triton_attention_module, cross_entropy, feed_forward, layer_norm):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            kernels[module.__name__, name] = LaunchRecorder(getattr(module, name))
            monkeypatch.setattr(module, name, kernels[module.__name__, name])
    side = {"type": "transformer", "hidden_size": 32, "num_layers": 1}
    side |= {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}
    config = EncoderDecoderConfig.model_validate({"encoder": side, "decoder": side})
    model = config.build(source_vocab_size=32, target_vocab_size=32)
    model = for_gpu(model.to(DEVICE).train())
    objective = CrossEntropyObjective(label_smoothing=0.1)
    corpus = store()
    for extra in range(8):
        for rows in ([0, 1], [3, 4, 5, 6]):
            examples = map_tensors(lambda x: x.to(DEVICE), batch(corpus, rows, extra))
            objective(model, examples, 1, model).main_loss.backward()
    counts = {name: len(kernel.variants) for name, kernel in kernels.items()}
    # Queries have a gradient kernel of their own only over long memories.
    assert [name for (_, name), count in counts.items() if not count] == ["_query_gradient_kernel"]
    # Masks of self-attention differ between queries, and those of cross-attention do not.
    assert max(counts.values()) <= 2, counts
