"""Sequence-level objectives raise the reward of a pretrained model within some steps."""

import copy

import pytest
import torch

from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.training.objectives import (
    CrossEntropyObjectiveConfig,
    MinimumRiskObjectiveConfig,
    Objective,
    ReinforceObjectiveConfig,
)
from heedful.training.rollouts import LengthLimit, PairReward, RolloutSampler, gleu
from tests.learning.copying import VOCABULARY, WIDTH, copy_batch
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

LIKELIHOOD_STEPS, STEPS = 150, 40


def train(model: EncoderDecoderModel, objective: Objective, steps: int, *, rate: float) -> None:
    generator = torch.Generator().manual_seed(6)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(1, steps + 1):
        batch = copy_batch(32, generator)
        loss = objective(model, batch, step, model)
        (loss.main_loss / objective.normalizer(batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def mean_rewards(model: EncoderDecoderModel) -> tuple[float, float]:
    """The mean reward of sampled and of greedy outputs for new words."""
    generator = torch.Generator().manual_seed(7)
    sampler, sampled, greedy = (
        RolloutSampler(PairReward(gleu), LengthLimit(1.5, 5), num_samples=5),
        [],
        [],
    )
    for _ in range(4):
        batch = copy_batch(50, generator)
        with torch.no_grad():
            candidates = sampler(model, batch, model)
            sampled.append((candidates.counts * candidates.rewards).sum(dim=1).mean().item() / 5)
            greedy.append(sampler.greedy_rewards(batch, model, candidates).mean().item())
    return sum(sampled) / 4, sum(greedy) / 4


@pytest.fixture(scope="module")
def pretrained() -> EncoderDecoderModel:
    """A model trained with cross-entropy for some steps."""
    torch.manual_seed(5)
    sizes = {"type": "recurrent", "embedding_size": WIDTH, "hidden_size": WIDTH}
    config = EncoderDecoderConfig.model_validate({"encoder": sizes, "decoder": sizes})
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    objective = CrossEntropyObjectiveConfig().build(
        label_smoothing=0.0, scheduled_sampling=TeacherForcingConfig()
    )
    with unchecked():
        train(model, objective, LIKELIHOOD_STEPS, rate=0.01)
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
def test_reward_increases_within_40_steps(config, pretrained):
    model = copy.deepcopy(pretrained)
    objective = config.build(label_smoothing=0.0, scheduled_sampling=TeacherForcingConfig())
    with unchecked():
        before = mean_rewards(model)
        train(model, objective, STEPS, rate=0.001)
        after = mean_rewards(model)
    assert after[0] > before[0] + 0.02
    assert after[1] > before[1] + 0.05
