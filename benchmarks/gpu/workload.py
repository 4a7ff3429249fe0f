"""What is measured on a GPU: settings of a run, models as recipes, batches of one shape."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.data.text.batching import Batch, SourceBatch
from heedful.recipes import Recipe, load_recipe
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.vocabulary import BOS

VOCABULARY = 8000
FIRST_TOKEN = 4  # ids below it are special tokens
# The form that JoeyNMT has, too: bi-LSTM of 512 units per direction, LSTM decoder of 512 units.
BAHDANAU = [
    *("model.encoder.cell=lstm", "model.encoder.num_layers=2"),
    *("model.encoder.embedding_size=512", "model.encoder.hidden_size=1024"),
    *("model.decoder.cell=lstm", "model.decoder.embedding_size=512"),
    *("model.decoder.hidden_size=512", "model.decoder.wiring={type: step-then-attend}"),
    *("model.decoder.bridge={type: tanh}", "model.decoder.pre_output={type: tanh}"),
    "model.decoder.attention={score: {type: additive, hidden_size: 512}}",
]
MODELS = {
    "Transformer base": ("transformer-2017-base", []),
    "Bahdanau": ("bahdanau-2015-multi30k", BAHDANAU),
}
SMALL = {
    "Transformer base": [
        f"model.{side}.{name}"
        for side in ("encoder", "decoder")
        for name in ("num_layers=2", "hidden_size=64", "feed_forward=[{intermediate_size: 128}]")
    ],
    "Bahdanau": [
        f"model.{side}.{name}=64"
        for side in ("encoder", "decoder")
        for name in ("embedding_size", "hidden_size")
    ],
}


class Settings(NamedTuple):
    """How a run of the benchmark measures."""

    device: str
    seconds: float  # per system and row
    training_seconds: float  # per system, end to end
    is_small: bool  # sizes for a try without a GPU
    only: str = ""  # part of the titles of rows
    files: tuple[Path, Path] | None = None  # source and target sentences
    compiles: bool = True  # whether other systems are also measured with torch.compile

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary of both sides."""
        return 100 if self.is_small else VOCABULARY

    @property
    def rounds(self) -> int | None:
        """Number of rounds; None if time decides."""
        return 1 if self.is_small else None

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions of training; most CPUs emulate bf16."""
        return ("bf16", "fp32") if self.device == "cuda" else ("fp32",)

    def includes(self, title: str) -> bool:
        """Return whether a row is to be measured."""
        return self.only in title


class Sizes(NamedTuple):
    """Sizes of a Transformer."""

    hidden_size: int = 512
    num_layers: int = 6
    num_heads: int = 8
    intermediate_size: int = 2048
    vocab_size: int = VOCABULARY


def transformer_sizes(settings: Settings) -> Sizes:
    """Return the sizes of Transformer base, or of a tiny model."""
    return Sizes(64, 2, 8, 128, settings.vocab_size) if settings.is_small else Sizes()


def recipe_of(model: str, settings: Settings, *overrides: str) -> Recipe:
    """Return the recipe of a model."""
    name, changes = MODELS[model]
    small = SMALL[model] if settings.is_small else []
    return load_recipe(name, [*changes, *small, *overrides])


def vocab_sizes(vocab_size: int = VOCABULARY) -> VocabSizes:
    """Return the same size for both sides."""
    return VocabSizes(vocab_size, vocab_size)


def random_tokens(*size: int, device: str, vocab_size: int = VOCABULARY) -> Tensor:
    """Return random token ids, none of them special."""
    return torch.randint(FIRST_TOKEN, vocab_size, size, device=device)


def full_batch(num_rows: int, length: int, device: str, vocab_size: int = VOCABULARY) -> Batch:
    """Return a batch of pairs without padding."""
    shape = num_rows, length
    source, target = random_tokens(2, *shape, device=device, vocab_size=vocab_size)
    lengths = torch.full((num_rows,), length, device=device)
    inputs = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
    return Batch(SourceBatch(source, lengths), inputs, target)


def num_parameters(model: Any) -> str:
    """Return the number of parameters in millions."""
    return f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f}M"
