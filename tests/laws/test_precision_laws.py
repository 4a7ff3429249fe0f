"""Losses and gradients in 16 bits are finite and close to fp32 for every model."""

import pytest
import torch

from heedful.acceleration import tuning
from heedful.acceleration.chunked_attention import attend_in_chunks, chunked_additive_score
from heedful.attention.additive_scores import additive_score
from heedful.attention.alignments import entmax
from heedful.layers.convolution import scale_gradient
from heedful.models.output_heads import negative_log_likelihood
from heedful.tasks.tagging.model import SequenceTagger
from heedful.training.trainer import MixedPrecision
from tests.catalogue import SYSTEMS, TAGGERS, batch, build, store, tagged_store

# Every alignment, every custom gradient, and some of each other family.
QUICK = ("alignment ", "score additive", "score cosine", "marginal over softmax")
QUICK += ("transformer, span both", "convolutional", "dilated", "experts", "feature coverage")
QUICK += ("tagger, ",)
all_systems = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith(QUICK) else pytest.mark.slow)
        for name in SYSTEMS | TAGGERS
    ],
)
BATCH, TAGGED = (batch(corpus, [0, 1, 2, 3]) for corpus in (store(), tagged_store()))


def loss_and_gradient(model, precision):
    """Return the loss and the flattened gradients, retried until the loss scale fits."""
    torch.manual_seed(0)
    model.zero_grad()
    if isinstance(model, SequenceTagger):
        with precision.autocast():
            loss = -model(TAGGED).log_probs.float().sum() / TAGGED.num_targets
    else:
        with precision.autocast():
            log_probs = model(BATCH).log_probs
        loss = negative_log_likelihood(log_probs.float(), BATCH.targets) / BATCH.num_targets
    precision.backward(loss)
    precision.unscale_gradients(torch.optim.SGD(model.parameters(), 0.1))
    parts = [weight.grad for weight in model.parameters() if weight.grad is not None]
    gradient = torch.cat([part.flatten() for part in parts])
    if not gradient.isfinite().all() and precision.handle_overflow():
        return loss_and_gradient(model, precision)
    return loss.item(), gradient


def check_close_to_fp32(name, precision):
    model = build(name).float()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(
                0.5
            )  # as initialized: with larger ones rounding errors grow with every layer
    loss, gradient = loss_and_gradient(model, MixedPrecision("fp32", "cpu"))
    narrow_loss, narrow_gradient = loss_and_gradient(model, MixedPrecision(precision, "cpu"))
    assert narrow_gradient.isfinite().all()
    assert narrow_loss == pytest.approx(loss, rel=0.01)
    cosine = torch.nn.functional.cosine_similarity(gradient, narrow_gradient, dim=0)
    assert cosine > 0.98  # a ReLU near zero may flip in the eight bits of bf16


@all_systems
def test_bf16_gradients_are_close_to_fp32(name):
    check_close_to_fp32(name, "bf16")


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS | TAGGERS)
def test_fp16_gradients_are_close_to_fp32(name):
    check_close_to_fp32(name, "fp16")


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_cells_train_in_fp16_on_cpu(cell):
    check_close_to_fp32(f"{cell}, step-then-attend", "fp16")


def gradients(function, tensors, *, is_inside):
    """Return gradients of a function in bf16, differentiated inside or outside of autocast."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    with MixedPrecision("bf16", "cpu").autocast():
        outputs = function(*leaves)
        if is_inside:
            outputs.float().square().sum().backward()
    if not is_inside:
        outputs.float().square().sum().backward()
    return [leaf.grad for leaf in leaves]


def attend(queries, memory, weight):
    return (queries @ weight) @ memory.transpose(1, 2) @ memory


def attend_chunked(queries, memory, weight):
    positions = torch.zeros(queries.shape[:2], dtype=torch.long)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "QUERY_CHUNK_SIZE", 2)
        return attend_in_chunks(
            lambda chunk, _, memory: attend(chunk, memory, weight),
            queries,
            positions,
            memory,
            [weight],
        )


def additive(function):
    return lambda queries, keys, matrix, vector: function(queries @ matrix, keys @ matrix, vector)


def plain_product(values, weight):
    return values @ weight


def scaled_product(values, weight):
    return scale_gradient(values @ weight, 1.0)


def sparse(alpha):
    return lambda values, weight: entmax(values @ weight, alpha)


def sparse_float32(alpha):
    def function(values, weight):
        products = values @ weight
        with torch.autocast("cpu", enabled=False):
            return entmax(products.float(), alpha).to(products.dtype)

    return function


LONG, SHORT, SQUARE = (2, 5, 4), (2, 3, 4), (4, 4)
PAIRS = {
    "in chunks": (attend, attend_chunked, [LONG, SHORT, SQUARE]),
    "additive in chunks": (
        additive(additive_score.reference),
        additive(lambda *parts: chunked_additive_score(*parts, max_elements=1)),
        [LONG, SHORT, SQUARE, (4,)],
    ),
    "shared gradient": (plain_product, scaled_product, [LONG, SQUARE]),
    "sparsemax": (sparse_float32(2.0), sparse(2.0), [LONG, SQUARE]),
    "entmax": (sparse_float32(1.3), sparse(1.3), [LONG, SQUARE]),
}


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_custom_gradients_match_autograd_in_bf16(name, is_inside):
    """Gradients are complete, and parameters keep their dtype."""
    plain, custom, shapes = PAIRS[name]
    tensors = [torch.randn(shape) for shape in shapes]
    expected = gradients(plain, tensors, is_inside=False)
    actual = gradients(custom, tensors, is_inside=is_inside)
    for one, other in zip(expected, actual, strict=True):
        assert other.dtype == torch.float32
        assert (one - other).norm() <= 0.03 * one.norm()
