"""A small task that needs attention: copying words that are too long for a state."""

from typing import Any

import torch

from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.search import LengthPenalty
from heedful.tokenization.vocabulary import BOS, EOS
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.trainer import Trainer
from tests.shape_checking import unchecked

LETTERS = 12
MAX_LENGTH = 10
WIDTH = 24
VOCABULARY = 4 + LETTERS


def copy_batch(count: int, generator: torch.Generator) -> Batch:
    """Random words of one length, as source and target."""
    length = int(torch.randint(5, MAX_LENGTH + 1, (), generator=generator))
    letters = torch.randint(4, VOCABULARY, (count, length), generator=generator)
    ends, begins = torch.full((count, 1), EOS), torch.full((count, 1), BOS)
    with_eos = torch.cat([letters, ends], dim=1)
    sources = SourceBatch(with_eos, torch.full((count,), length + 1))
    return Batch(sources, torch.cat([begins, letters], dim=1), with_eos)


def copied_fraction(
    attention: dict[str, Any], decoder: dict[str, Any] | None = None, *, steps: int
) -> float:
    """Train with this attention; return the fraction of new words that are copied."""
    sizes = {"type": "recurrent", "embedding_size": WIDTH, "hidden_size": WIDTH}
    settings = {"encoder": sizes, "decoder": {**sizes, "attention": attention, **(decoder or {})}}
    with unchecked():
        return learn(settings, steps)


def learn(settings: dict[str, Any], steps: int) -> float:
    """Train this model to copy; return the fraction of new words that are copied."""
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    config = EncoderDecoderConfig.model_validate(settings)
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    trainer = Trainer(
        model, CrossEntropyObjective(), optimizer, lambda step: _learning_rate(step, steps)
    )
    for _ in range(steps):
        model.train()
        trainer.train_step([copy_batch(32, generator)])
    return _copied_fraction(model.eval(), [copy_batch(50, generator) for _ in range(4)])


def _learning_rate(step: int, steps: int) -> float:
    return 0.01 * min(1.0, step / 20, 2 * (1 - step / (steps + 1)))


def _copied_fraction(model: EncoderDecoderModel, batches: list[Batch]) -> float:
    copied = 0
    for batch in batches:
        limits = torch.full((len(batch.decoder_inputs),), MAX_LENGTH + 5)
        hypotheses = model.search(
            batch.sources, beam_size=1, max_lengths=limits, length_penalty=LengthPenalty(0)
        )
        references = batch.targets[:, :-1].tolist()
        copied += sum(
            hypothesis[0].tokens == word
            for hypothesis, word in zip(hypotheses, references, strict=True)
        )
    return copied / sum(len(batch.decoder_inputs) for batch in batches)
