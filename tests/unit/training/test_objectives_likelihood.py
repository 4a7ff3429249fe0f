import pytest
import torch
from torch.nn.functional import cross_entropy

from heedful.data.text.token_stream import LMBatch
from heedful.models.output_heads import count_correct, negative_log_likelihood
from heedful.models.scheduled_sampling import (
    InputSampler,
    LinearSamplingConfig,
    TeacherForcingConfig,
)
from heedful.tokenization.vocabulary import PAD
from heedful.training.objectives import CrossEntropyObjective
from tests.catalogue import batch, build, store


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_same_as_torch_cross_entropy_without_padding(smoothing):
    logits = torch.randn(3, 4, 7)
    targets = torch.tensor([[5, 3, PAD, PAD], [4, 4, 4, 3], [3, PAD, PAD, PAD]])
    ours = negative_log_likelihood(logits.log_softmax(-1), targets, label_smoothing=smoothing)
    theirs = cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )
    torch.testing.assert_close(ours, theirs)


def test_padding_that_has_probability_zero_adds_nothing():
    log_probs = torch.tensor([[[0.2, 0.8], [0.5, 0.5]]]).log().requires_grad_()
    impossible = log_probs.masked_fill(torch.tensor([PAD == 0, PAD == 1]), -torch.inf)
    loss = negative_log_likelihood(impossible, torch.tensor([[1 - PAD, PAD]]))
    loss.backward()
    assert loss == -log_probs[0, 0, 1 - PAD]
    assert log_probs.grad is not None
    assert log_probs.grad.isfinite().all()


def test_correct_tokens_counted_without_padding():
    log_probs = torch.tensor([[[0.0, -1], [0, -1]]]).log_softmax(-1)
    assert count_correct(log_probs, torch.tensor([[1, 1]])) == 0
    assert count_correct(-log_probs, torch.tensor([[1, PAD]])) == 1


def test_teacher_forcing_ratio_follows_the_step():
    sampling = LinearSamplingConfig(k=1.0, c=0.5, token_choice="argmax")
    model, examples = build("gru, attend-then-step"), batch(store(4), [0, 1, 2, 3])
    objective = CrossEntropyObjective(label_smoothing=0.1, scheduled_sampling=sampling)
    for step, share in [(1, 1.0), (3, 0.0), (9, 0.0)]:
        said = model.forward_scheduled_sampling(examples, InputSampler(share, "argmax")).log_probs
        wanted = negative_log_likelihood(said, examples.targets, label_smoothing=0.1)
        torch.testing.assert_close(objective(model, examples, step, model).main_loss, wanted)


def test_auxiliary_losses_of_the_model_returned():
    model, examples = build("experts").train(), batch(store(4), [0, 1, 2, 3])
    objective = CrossEntropyObjective(
        label_smoothing=0.0, scheduled_sampling=TeacherForcingConfig()
    )
    torch.manual_seed(3)
    found = objective(model, examples, 1, model).auxiliary_losses
    torch.manual_seed(3)
    wanted = model(examples).auxiliary_losses
    assert found.keys() == wanted.keys() != set()
    for name, penalty in wanted.items():
        torch.testing.assert_close(found[name], penalty)


def test_normalizer_counts_targets_without_padding():
    objective = CrossEntropyObjective(
        label_smoothing=0.0, scheduled_sampling=TeacherForcingConfig()
    )
    assert objective.normalizer(batch(store(3), [0, 1], extra=3)) == 2 + 2 + 3 + 2
    texts = torch.tensor([[3, 4, 5], [4, PAD, PAD]])
    assert objective.normalizer(LMBatch(texts, texts)) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loss_is_summed_in_float32(dtype):
    log_probs = (
        torch.randn(64, 40, 50, generator=torch.Generator().manual_seed(0)).sub(30).to(dtype)
    )
    targets = torch.randint(4, 50, (64, 40))
    for smoothing in (0.0, 0.1):
        exact = negative_log_likelihood(log_probs.double(), targets, label_smoothing=smoothing)
        found = negative_log_likelihood(log_probs, targets, label_smoothing=smoothing)
        assert found.item() == pytest.approx(exact.item(), rel=1e-5)
