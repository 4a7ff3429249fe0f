"""Small systems that learn to copy letters.

The systems differ only in their wiring. Each has the largest hidden size within one parameter
budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import NamedTuple

import torch
from torch import nn

from heedful.attention.additive_scores import AdditiveScoreConfig
from heedful.attention.config import AttentionConfig
from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.models.recurrent.config import RecurrentDecoderConfig, WiringConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.recurrent.wiring import (
    AttendThenStepConfig,
    ConstantContextWiringConfig,
    FinalStateWiringConfig,
    StepThenAttendConfig,
)
from heedful.search import LengthPenalty
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, SPECIAL_TOKENS
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.optim import AdamWConfig, LinearScheduleConfig
from heedful.training.trainer import Trainer

SYSTEMS: dict[str, WiringConfig] = {
    "final-state": FinalStateWiringConfig(),
    "constant-context": ConstantContextWiringConfig(),
    "attend-then-step": AttendThenStepConfig(),
    "step-then-attend": StepThenAttendConfig(),
}
WITH_ATTENTION = ("attend-then-step", "step-then-attend")
MAX_PARAMETERS = 50_000
TOKENS = (*SPECIAL_TOKENS, *ascii_lowercase)
MAX_TRAINING_LENGTH = 16  # letters
BATCH_SIZE = 64
TEST_SEED = 1_000_000  # not used in training
SCHEDULE = LinearScheduleConfig(warmup_steps=50)


class CopyOutputs(NamedTuple):
    """Sources, outputs and references."""

    sources: list[str]
    outputs: list[str]
    references: list[str]


def build_model(system: str, width: int) -> EncoderDecoderModel:
    """Build a small encoder-decoder with the wiring of a system."""
    decoder = RecurrentDecoderConfig(
        embedding_size=width, hidden_size=width, wiring=SYSTEMS[system]
    )
    if system in WITH_ATTENTION:
        attention = AttentionConfig(score=AdditiveScoreConfig(hidden_size=width))
        decoder = decoder.model_copy(update={"attention": attention})
    encoder = RecurrentEncoderConfig(embedding_size=width, hidden_size=width)
    config = EncoderDecoderConfig(encoder=encoder, decoder=decoder)
    return config.build(source_vocab_size=len(TOKENS), target_vocab_size=len(TOKENS))


def num_parameters(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def largest_hidden_size(system: str) -> int:
    """Return the largest even hidden size within the parameter budget."""
    width = 2
    while num_parameters(build_model(system, width + 2)) <= MAX_PARAMETERS:
        width += 2
    return width


def random_words(count: int, length: int, generator: torch.Generator) -> Batch:
    """Return random words of one length, to be copied."""
    shape = (count, length)
    letters = torch.randint(NUM_SPECIAL_TOKENS, len(TOKENS), shape, generator=generator)
    bos, eos = (torch.full((count, 1), symbol) for symbol in (BOS, EOS))
    with_eos = torch.cat([letters, eos], dim=1)
    sources = SourceBatch(with_eos, torch.full((count,), length + 1))
    return Batch(sources, torch.cat([bos, letters], dim=1), with_eos)


def train_system(
    system: str, *, steps: int, learning_rate: float, seed: int
) -> EncoderDecoderModel:
    """Train a system to copy words of all lengths up to the maximum, equally often."""
    width = largest_hidden_size(system)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = build_model(system, width)
    trainer = Trainer(
        model,
        CrossEntropyObjective(),
        AdamWConfig().build(model),
        lambda step: learning_rate * SCHEDULE.lr_factor(step, steps),
    )
    for _ in range(steps):
        length = int(torch.randint(1, MAX_TRAINING_LENGTH + 1, (), generator=generator))
        trainer.train_step([random_words(BATCH_SIZE, length, generator)])
    return model.eval()


def copy_words(model: EncoderDecoderModel, *, max_length: int, num_words: int) -> CopyOutputs:
    """Copy random words of every length with greedy search; all systems get the same words."""
    generator = torch.Generator().manual_seed(TEST_SEED)
    outputs = CopyOutputs([], [], [])
    for length in range(1, max_length + 1):
        batch = random_words(num_words, length, generator)
        limits = torch.full((num_words,), length + 5)
        hypotheses = model.search(
            batch.sources, beam_size=1, max_lengths=limits, length_penalty=LengthPenalty(0)
        )
        letters = [_to_text(word) for word in batch.targets[:, :-1].tolist()]
        outputs.sources.extend(letters)
        outputs.outputs.extend(_to_text(best.tokens) for best, *_ in hypotheses)
        outputs.references.extend(letters)
    return outputs


def _to_text(tokens: Sequence[int]) -> str:
    return " ".join(TOKENS[token] for token in tokens)
