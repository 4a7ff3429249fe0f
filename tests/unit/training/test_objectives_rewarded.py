"""Reward: the mean gradient is the exact one, by a test; and what must be zero is zero."""

import pytest
import torch

from heedful.models.output_heads import negative_log_likelihood
from heedful.tokenization.ragged_array import RaggedArray
from heedful.tokenization.vocabulary import EOS
from heedful.training.guided_alignment import hash_rows
from heedful.training.objectives import ReinforceObjective
from heedful.training.rollouts import CiderDReward, PairReward, ReferenceTable, RolloutSampler, gleu
from tests.catalogue import batch, build, store
from tests.unit.evaluation.slow_cider_d import slow_cider_d
from tests.unit.training.toy import LIMITS, REFERENCES, A, Toy, everything, likelihood, toy_batch

COPIES, RUNS = 50, 30
# Of some hundred entries none is to lie so many standard errors off by chance: less than 1e-6.
UNLIKELY = 6.0


GLEU = PairReward(gleu)


def objective(samples, baseline, *, weight=0.0, smoothing=0.0, reward=GLEU):
    return ReinforceObjective(
        rollout_sampler=RolloutSampler(reward, LIMITS, num_samples=samples),
        baseline=baseline,
        mle_weight=weight,
        label_smoothing=smoothing,
        auxiliary_loss_weight=1.0,
    )


def gradient(loss, model):
    return torch.autograd.grad(loss, model.logits)[0]


def gleu_of(source, output):
    return gleu(output.tokens, REFERENCES[source])


# Several references, with EOS as a word; the first source has none that is empty.
CAPTIONS = [[[A, EOS], [A, A, EOS]], [[EOS], [1, A, EOS]]]


def cider_of(source, output):
    return slow_cider_d(CAPTIONS, [token if token != 1 else -1 for token in output.targets], source)


def cider_reward():
    rows = [(key, text[:-1]) for key, texts in enumerate(CAPTIONS) for text in texts]
    keys = hash_rows(torch.tensor([[key] for key, _ in rows]))
    targets = RaggedArray.from_sequences([text for _, text in rows])
    return CiderDReward(ReferenceTable.from_rows(keys, targets))


def expected_risk(model, reward=gleu_of):
    """1 - E[reward], by adding up all that the model can say."""
    return sum(
        likelihood(model.logits, source, output) * (1 - reward(source, output))
        for source, limit in enumerate(LIMITS(toy_batch()).tolist())
        for output in everything(limit)
    )


def errors_off(gradients, wanted):
    """How many standard errors the mean of gradients lies off what is wanted, at most."""
    mean, spread = gradients.mean(dim=0), gradients.std(dim=0)
    errors = spread / len(gradients) ** 0.5
    assert ((mean - wanted)[errors < 1e-12].abs() < 1e-9).all()
    return ((mean - wanted).abs() / errors.clamp(min=1e-12))[errors >= 1e-12].max()


@pytest.mark.parametrize(
    ("reward", "slow_reward"),
    [(GLEU, gleu_of), (cider_reward(), cider_of)],
    ids=["gleu", "cider-d"],
)
@pytest.mark.parametrize(("baseline", "samples"), [("mean", 2), ("greedy", 1)])
def test_expected_gradient_is_that_of_the_expected_reward(baseline, samples, reward, slow_reward):
    model, learned = Toy(), objective(samples, baseline, reward=reward)
    wanted = gradient(expected_risk(model, slow_reward), model)
    examples = toy_batch(COPIES)
    gradients, values = [], []
    for _ in range(RUNS):
        error = learned(model, examples, 1, model).main_loss / COPIES
        gradients.append(gradient(error, model))
        values.append(error.detach())
    assert errors_off(torch.stack(gradients), wanted) < UNLIKELY
    assert errors_off(torch.stack(values), expected_risk(model, slow_reward).detach()) < UNLIKELY
    # The test would notice a baseline that a draw has a part in.
    if samples == 2:
        assert errors_off(torch.stack(gradients), wanted / 2) > UNLIKELY


def test_outputs_equal_to_greedy_have_no_gradient():
    model = Toy(scale=400.0)  # it always says the likeliest
    error = objective(3, "greedy")(model, toy_batch(), 1, model).main_loss
    assert error > 0
    assert (gradient(error, model) == 0).all()


def test_equal_rewards_have_no_gradient():
    model = Toy(scale=400.0)
    error = objective(4, "mean")(model, toy_batch(), 1, model).main_loss
    assert error > 0
    torch.testing.assert_close(gradient(error, model), torch.zeros_like(model.logits))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_the_reference_is_added(smoothing):
    model, examples = Toy(), toy_batch()
    torch.manual_seed(4)
    alone = objective(3, "mean")(model, examples, 1, model).main_loss
    torch.manual_seed(4)
    mixed = objective(3, "mean", weight=0.3, smoothing=smoothing)(
        model, examples, 1, model
    ).main_loss
    said = model(examples).log_probs
    unlikely = negative_log_likelihood(said, examples.targets, label_smoothing=smoothing)
    torch.testing.assert_close(mixed, alone + 0.3 * unlikely)
    torch.testing.assert_close(
        gradient(mixed, model), gradient(alone, model) + 0.3 * gradient(unlikely, model)
    )


def test_reported_loss_is_one_minus_reward():
    model = Toy()
    with torch.no_grad():
        model.logits.zero_()
        model.logits[0, 0, 4] = model.logits[0, 1 + 4, 4] = model.logits[1, 0, EOS] = 60
    # "4 4", cut, holds two runs of 1 and one of 2 tokens, of which "4" alone is right.
    error = objective(3, "mean")(model, toy_batch(), 1, model).main_loss
    torch.testing.assert_close(error.item(), (1 - 1 / 3) + 0.0)


def test_normalizer_counts_sentences():
    assert objective(2, "mean").normalizer(batch(store(4), [0, 1, 3])) == 3


@pytest.mark.parametrize("baseline", ["mean", "greedy"])
def test_rollouts_depend_on_the_global_random_state(baseline):
    model, examples = build("gru, attend-then-step").train(), batch(store(4), [0, 1, 2, 3])
    learned = objective(2, baseline)
    learned(model, examples, 1, model)
    state = torch.get_rng_state()
    first = [learned(model, examples, step, model).main_loss.item() for step in (2, 3)]
    torch.set_rng_state(state)
    assert [learned(model, examples, step, model).main_loss.item() for step in (2, 3)] == first
    assert first[0] != first[1]
