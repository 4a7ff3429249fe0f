"""Copying: small systems that learn to write down the letters they read.

The systems have the same parts and differ in when they ask attention, if at all. Each is as wide as
one number of parameters, the same for all, lets it be.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import NamedTuple

import torch
from torch import nn

from heedful.attention.additive_scores import AdditiveScoreConfig
from heedful.attention.config import AttentionConfig
from heedful.data.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.models.recurrent.decoder import RecurrentDecoderConfig, WiringConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.recurrent.wiring import (
    AttendThenStepConfig,
    ConstantContextWiringConfig,
    FinalStateWiringConfig,
    StepThenAttendConfig,
)
from heedful.search import LengthPenalty
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, SPECIAL_TOKENS
from heedful.training import CrossEntropyObjective
from heedful.training.optim import AdamWConfig, LinearScheduleConfig, TrainingHistory
from heedful.training.trainer import Trainer

SYSTEMS: dict[str, WiringConfig] = {
    "final-state": FinalStateWiringConfig(),
    "constant-context": ConstantContextWiringConfig(),
    "attend-then-step": AttendThenStepConfig(),
    "step-then-attend": StepThenAttendConfig(),
}
ATTENDING = ("attend-then-step", "step-then-attend")
PARAMETERS = 50_000  # at most
NAMES = (*SPECIAL_TOKENS, *ascii_lowercase)  # of all tokens, by id
LEARNED = 16  # letters in the longest word that is learned from
BATCH = 64
TESTING = 1_000_000  # a seed that is not learned from
SCHEDULE = LinearScheduleConfig(warmup_steps=50)


class Written(NamedTuple):
    """What was to be read, what a system wrote, and what it should have written."""

    sources: list[str]
    outputs: list[str]
    references: list[str]


# --- the systems ---------------------------------------------------------------------------


def transducer(system: str, width: int) -> EncoderDecoderModel:
    """A small encoder and decoder of one wiring; all else is the same in all systems."""
    decoder = RecurrentDecoderConfig(
        embedding_size=width, hidden_size=width, wiring=SYSTEMS[system]
    )
    if system in ATTENDING:
        attention = AttentionConfig(score=AdditiveScoreConfig(hidden_size=width))
        decoder = decoder.model_copy(update={"attention": attention})
    encoder = RecurrentEncoderConfig(embedding_size=width, hidden_size=width)
    config = EncoderDecoderConfig(encoder=encoder, decoder=decoder)
    return config.build(source_vocab_size=len(NAMES), target_vocab_size=len(NAMES))


def num_parameters(model: nn.Module) -> int:
    """Count the numbers that are learned."""
    return sum(each.numel() for each in model.parameters())


def widest(system: str) -> int:
    """The greatest even width that stays within the number of parameters."""
    width = 2
    while num_parameters(transducer(system, width + 2)) <= PARAMETERS:
        width += 2
    return width


def words(count: int, length: int, generator: torch.Generator) -> Batch:
    """Random words of one length, to be copied."""
    shape = (count, length)
    letters = torch.randint(NUM_SPECIAL_TOKENS, len(NAMES), shape, generator=generator)
    begins, ends = (torch.full((count, 1), symbol) for symbol in (BOS, EOS))
    ended = torch.cat([letters, ends], dim=1)
    sources = SourceBatch(ended, torch.full((count,), length + 1))
    return Batch(sources, torch.cat([begins, letters], dim=1), ended)


def learned(system: str, *, steps: int, rate: float, seed: int) -> EncoderDecoderModel:
    """A system that has learned to copy for so many steps, every length equally often."""
    width = widest(system)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = transducer(system, width)
    course = TrainingHistory(max_steps=steps)
    learner = Trainer(
        model,
        CrossEntropyObjective(),
        AdamWConfig().build(model),
        lambda step: rate * SCHEDULE.lr_factor(step, course),
    )
    for _ in range(steps):
        length = int(torch.randint(1, LEARNED + 1, (), generator=generator))
        learner.train_step([words(BATCH, length, generator)])
    return model.eval()


# --- what they write -----------------------------------------------------------------------


def write(model: EncoderDecoderModel, *, longest: int, tested: int) -> Written:
    """Let a system copy random words of every length, greedily; all systems get the same."""
    generator = torch.Generator().manual_seed(TESTING)
    written = Written([], [], [])
    for length in range(1, longest + 1):
        batch = words(tested, length, generator)
        limits = torch.full((tested,), length + 5)
        found = model.search(
            batch.sources, beam_size=1, max_lengths=limits, length_penalty=LengthPenalty(0)
        )
        letters = [_spelt(word) for word in batch.targets[:, :-1].tolist()]
        written.sources.extend(letters)
        written.outputs.extend(_spelt(best.tokens) for best, *_ in found)
        written.references.extend(letters)
    return written


def _spelt(tokens: Sequence[int]) -> str:
    return " ".join(NAMES[token] for token in tokens)
