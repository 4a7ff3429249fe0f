"""A small task that cannot be done without looking: copying words longer than a state remembers."""

from typing import Any

import torch

from heedful.data.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig, EncoderDecoderModel
from heedful.search import LengthPenalty
from heedful.tokenization.vocabulary import BOS, EOS
from heedful.training import CrossEntropyObjective
from heedful.training.trainer import Trainer
from tests.shape_checking import unchecked

LETTERS = 12
LONGEST = 10
WIDTH = 24
VOCABULARY = 4 + LETTERS


def words(count: int, generator: torch.Generator) -> Batch:
    """Random words of one length, to be copied."""
    length = int(torch.randint(5, LONGEST + 1, (), generator=generator))
    letters = torch.randint(4, VOCABULARY, (count, length), generator=generator)
    ends, begins = torch.full((count, 1), EOS), torch.full((count, 1), BOS)
    ended = torch.cat([letters, ends], dim=1)
    sources = SourceBatch(ended, torch.full((count,), length + 1))
    return Batch(sources, torch.cat([begins, letters], dim=1), ended)


def share_copied(
    attention: dict[str, Any], decoder: dict[str, Any] | None = None, *, steps: int
) -> float:
    """Learn to copy for so many steps with this attention; give the share of new words copied."""
    sizes = {"type": "recurrent", "embedding_size": WIDTH, "hidden_size": WIDTH}
    settings = {"encoder": sizes, "decoder": {**sizes, "attention": attention, **(decoder or {})}}
    with unchecked():
        return learn(settings, steps)


def learn(settings: dict[str, Any], steps: int) -> float:
    """Learn to copy for so many steps with this model; give the share of new words copied."""
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    config = EncoderDecoderConfig.model_validate(settings)
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    learner = Trainer(model, CrossEntropyObjective(), optimizer, lambda step: _rate(step, steps))
    for _ in range(steps):
        model.train()
        learner.train_step([words(32, generator)])
    return _share(model.eval(), [words(50, generator) for _ in range(4)])


def _rate(step: int, steps: int) -> float:
    return 0.01 * min(1.0, step / 20, 2 * (1 - step / (steps + 1)))


def _share(model: EncoderDecoderModel, batches: list[Batch]) -> float:
    copied = 0
    for batch in batches:
        limits = torch.full((len(batch.decoder_inputs),), LONGEST + 5)
        found = model.search(
            batch.sources, beam_size=1, max_lengths=limits, length_penalty=LengthPenalty(0)
        )
        wanted = batch.targets[:, :-1].tolist()
        copied += sum(each[0].tokens == word for each, word in zip(found, wanted, strict=True))
    return copied / sum(len(batch.decoder_inputs) for batch in batches)
