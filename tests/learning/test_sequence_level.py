"""A model that has begun to copy words copies better for being rewarded, within so many steps."""

import copy

import pytest
import torch

from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.training import (
    CrossEntropyObjectiveConfig,
    MinimumRiskObjectiveConfig,
    Objective,
    ReinforceObjectiveConfig,
)
from heedful.training.rollouts import LengthLimit, RolloutSampler, gleu
from tests.learning.copying import VOCABULARY, WIDTH, words
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

LIKELIHOOD_STEPS, STEPS = 150, 40


def learn(model: EncoderDecoderModel, objective: Objective, steps: int, *, rate: float) -> None:
    chance = torch.Generator().manual_seed(6)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(1, steps + 1):
        batch = words(32, chance)
        loss = objective(model, batch, step, model)
        (loss.main_loss / objective.normalizer(batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def mean_rewards(model: EncoderDecoderModel) -> tuple[float, float]:
    """The reward of new words, drawn and greedy."""
    chance = torch.Generator().manual_seed(7)
    trial, drawn, greedy = RolloutSampler(gleu, LengthLimit(1.5, 5), num_samples=5), [], []
    for _ in range(4):
        batch = words(50, chance)
        with torch.no_grad():
            tried = trial(model, batch, model)
            drawn.append((tried.counts * tried.rewards).sum(dim=1).mean().item() / 5)
            greedy.append(trial.greedy_rewards(batch, model, tried).mean().item())
    return sum(drawn) / 4, sum(greedy) / 4


@pytest.fixture(scope="module")
def beginner() -> EncoderDecoderModel:
    """A model that has learned by likelihood for a while."""
    torch.manual_seed(5)
    sizes = {"type": "recurrent", "embedding_size": WIDTH, "hidden_size": WIDTH}
    config = EncoderDecoderConfig.model_validate({"encoder": sizes, "decoder": sizes})
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    taught = CrossEntropyObjectiveConfig().build(
        label_smoothing=0.0, scheduled_sampling=TeacherForcingConfig()
    )
    with unchecked():
        learn(model, taught, LIKELIHOOD_STEPS, rate=0.01)
    return model


@pytest.mark.parametrize(
    "config",
    [
        MinimumRiskObjectiveConfig(num_samples=10),
        MinimumRiskObjectiveConfig(num_samples=10, reward="gleu", alpha=0.1),
        ReinforceObjectiveConfig(),
        ReinforceObjectiveConfig(mle_weight=0.0),
        ReinforceObjectiveConfig(num_samples=1, baseline="greedy"),
    ],
    ids=["minimum risk", "sharper, with gleu", "mixed", "reward alone", "self-critical"],
)
def test_a_model_is_rewarded_more_after_40_steps(config, beginner):
    model = copy.deepcopy(beginner)
    objective = config.build(smoothing=0.0, sampling=TeacherForcingConfig())
    with unchecked():
        before = mean_rewards(model)
        learn(model, objective, STEPS, rate=0.001)
        after = mean_rewards(model)
    assert after[0] > before[0] + 0.02
    assert after[1] > before[1] + 0.05
