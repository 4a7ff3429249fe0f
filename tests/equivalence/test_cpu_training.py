"""Kernels of training steps on a CPU equal the plain code: dropout in distribution."""

import copy

import pytest
import torch
from torch import nn

import heedful.acceleration.kernels  # noqa: F401
from heedful.acceleration import tuning
from heedful.acceleration.cpu import training
from heedful.acceleration.cpu.training import FastDropout
from heedful.acceleration.deferred_log_probs import DeferredLogProbs
from heedful.acceleration.registry import deferred_log_softmax
from heedful.attention.attention import softmax_context
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.memory import Memory
from heedful.models.output_heads import log_softmax, smoothed_cross_entropy
from heedful.tokenization.vocabulary import PAD

SHAPE = 64, 1001  # not a multiple of four


@pytest.fixture(autouse=True)
def small_thresholds(monkeypatch):
    """Thresholds that small tensors exceed, and several chunks of logits."""
    monkeypatch.setattr(tuning, "MIN_DROPOUT_ELEMENTS", 1)
    monkeypatch.setattr(tuning, "MIN_DEFERRED_LOGITS", 1)
    monkeypatch.setattr(tuning, "MAX_CPU_LOGITS", 64)


def kernel_name(op, *arguments):
    kernel = op.select_kernel(*arguments)
    return kernel and kernel.name


@pytest.mark.parametrize("probability", [2**-16, 0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_with_the_probability_and_keeps_the_mean(probability):
    torch.manual_seed(0)
    inputs = torch.ones(1000, 1001, dtype=torch.float64)
    outputs = FastDropout(probability)(inputs)
    kept = round((1 - probability) * 2**16) / 2**16
    assert set(outputs.unique().tolist()) <= {0.0, 1 / kept}
    error = (kept * (1 - kept) / inputs.numel()) ** 0.5
    assert (outputs > 0).double().mean().item() == pytest.approx(kept, abs=5 * error)
    for column in outputs[:, :4].T:  # the four parts of a random number
        deviation = (kept * (1 - kept) / len(column)) ** 0.5
        assert (column > 0).double().mean().item() == pytest.approx(kept, abs=5 * deviation)


def test_dropout_repeats_with_the_state_of_the_generator():
    inputs, dropout = torch.randn(SHAPE), FastDropout(0.2)
    state = torch.get_rng_state()
    first, second = dropout(inputs), dropout(inputs)
    torch.set_rng_state(state)
    assert torch.equal(dropout(inputs), first)
    assert torch.equal(dropout(inputs), second)
    assert not torch.equal(first, second)


def test_dropout_elements_uncorrelated():
    torch.manual_seed(0)
    noise = training.dropout_noise(torch.empty(2**20, dtype=torch.float64), 0.3)
    noise = (noise - noise.mean()) / noise.std()
    correlations = [(noise[lag:] * noise[:-lag]).mean().abs().item() for lag in range(1, 9)]
    assert max(correlations) < 5 / 2**10


def test_gradient_of_dropout_is_that_of_what_it_kept():
    inputs = torch.randn(SHAPE, requires_grad=True)
    outputs = FastDropout(0.3)(inputs)
    grad = torch.autograd.grad(outputs.sum(), inputs)[0]
    torch.testing.assert_close(outputs, inputs * grad)


def equals_torch(dropout, inputs):
    """Whether dropout draws as torch's."""
    outputs = []
    for form in (dropout, nn.Dropout(dropout.p).train(dropout.training)):
        torch.manual_seed(0)
        outputs.append(form(inputs))
    return torch.equal(*outputs)


def test_torch_drops_where_there_is_nothing_to_gain(monkeypatch):
    inputs = torch.ones(SHAPE)
    assert not equals_torch(FastDropout(0.1), inputs)
    assert equals_torch(FastDropout(0.1).eval(), inputs)
    assert equals_torch(FastDropout(0.0), inputs)
    assert equals_torch(FastDropout(1.0), inputs)
    monkeypatch.setattr(tuning, "MIN_DROPOUT_ELEMENTS", 10)
    assert equals_torch(FastDropout(0.5), torch.ones(9))


def heads(is_causal):
    torch.manual_seed(1)
    queries, keys = torch.randn(2, 3, 2, 6, 4, dtype=torch.float64)
    values = torch.randn(3, 2, 6, 5, dtype=torch.float64)
    mask = causal_mask(6) if is_causal else padding_mask(torch.tensor([6, 2, 0]), 6)
    return queries, Memory(values, keys, mask.unsqueeze(1))


@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_same_as_reference_where_dropout_keeps_all(monkeypatch, is_causal):
    monkeypatch.setattr(training, "dropout_noise", lambda inputs, _: torch.ones_like(inputs))
    queries, memory = heads(is_causal)
    assert kernel_name(softmax_context, queries, memory, 2.0, 0.1) == "16-bit"
    expected = softmax_context.reference(queries, memory, 2.0, 0.0)
    torch.testing.assert_close(softmax_context(queries, memory, 2.0, 0.1), expected)


def test_attention_drops_weights_and_keeps_mean():
    torch.manual_seed(0)
    queries, memory = heads(is_causal=False)
    memory = memory._replace(values=torch.eye(6, dtype=torch.float64).expand(3, 2, 6, 6))
    weights = softmax_context.reference(queries, memory, 2.0, 0.0)
    dropped = torch.stack([softmax_context(queries, memory, 2.0, 0.25) for _ in range(2000)])
    is_kept = dropped > 0
    torch.testing.assert_close(dropped[is_kept], (weights / 0.75).expand_as(dropped)[is_kept])
    torch.testing.assert_close(dropped.mean(dim=0), weights, rtol=0, atol=0.06)


def loss_and_gradients(projection, inputs, targets, label_smoothing, *, is_plain):
    inputs = inputs.clone().requires_grad_()
    projection = copy.deepcopy(projection)
    cross_entropy = smoothed_cross_entropy.reference if is_plain else smoothed_cross_entropy
    if is_plain:
        log_probs = log_softmax(projection(inputs))
    else:
        log_probs = deferred_log_softmax(inputs, projection)
        assert kernel_name(smoothed_cross_entropy, log_probs, targets, label_smoothing) == (
            "deferred on CPU"
        )
    loss = cross_entropy(log_probs, targets, label_smoothing)
    (3 * loss).backward()
    return [loss.detach(), inputs.grad, *(parameter.grad for parameter in projection.parameters())]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_padded", [0, 2, 4])
def test_deferred_loss_same_as_plain_loss(label_smoothing, bias, num_padded):
    torch.manual_seed(0)
    projection = nn.Linear(6, 11, bias=bias, dtype=torch.float64)
    inputs = 5 * torch.randn(3, 4, 6, dtype=torch.float64)
    targets = torch.randint(PAD + 1, 11, (3, 4))
    targets[:, 4 - num_padded :] = PAD
    arguments = projection, inputs, targets, label_smoothing
    expected = loss_and_gradients(*arguments, is_plain=True)
    actual = loss_and_gradients(*arguments, is_plain=False)
    torch.testing.assert_close(actual, expected)


def test_deferred_loss_of_impossible_target_is_finite():
    projection = nn.Linear(2, 3, bias=False)
    projection.weight.data = torch.tensor([[200.0, 0.0], [0.0, 0.0], [-200.0, 0.0]])
    arguments = projection, torch.tensor([[[1.0, 0.0]]]), torch.tensor([[2]]), 0.1
    expected = loss_and_gradients(*arguments, is_plain=True)
    torch.testing.assert_close(loss_and_gradients(*arguments, is_plain=False), expected)


def test_frozen_projection_gets_no_gradient():
    projection = nn.Linear(6, 11).requires_grad_(False)
    inputs = torch.randn(3, 4, 6, requires_grad=True)
    log_probs = deferred_log_softmax(inputs, projection)
    smoothed_cross_entropy(log_probs, torch.full((3, 4), 5), 0.1).backward()
    assert inputs.grad is not None
    assert projection.weight.grad is None


def test_log_probs_computed_at_once_without_gradients():
    projection = nn.Linear(6, 11)
    with torch.no_grad():
        assert type(deferred_log_softmax(torch.randn(3, 4, 6), projection)) is torch.Tensor
    inputs = torch.randn(3, 4, 6, requires_grad=True)
    assert type(deferred_log_softmax(inputs, projection)) is DeferredLogProbs
    assert type(deferred_log_softmax(inputs, projection.eval())) is torch.Tensor
