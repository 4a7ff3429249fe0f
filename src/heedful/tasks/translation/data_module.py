""""""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.data.batch_stream import BatchStream, DataCursor, ResegmentedDataset, epoch_batch_specs
from heedful.data.batching import Batch, collate
from heedful.data.pair_dataset import InMemoryPairDataset, Pair, PairDataset
from heedful.decoding.config import DecodingConfig
from heedful.decoding.translation import vocabulary_texts
from heedful.errors import ConfigError, RunError
from heedful.recipes import Recipe
from heedful.tasks.base import DataModule
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair


class ParallelDataModule(DataModule):
    """Pairs of texts."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizers: TokenizerPair,
        train: PairDataset,
        dev: InMemoryPairDataset,
        *,
        fingerprint: str,
        validation_pairs: Sequence[Pair],
    ) -> None:
        self.recipe = recipe
        self.tokenizers = tokenizers
        self.train = train
        self.dev = dev
        self.fingerprint = fingerprint
        self.validation_pairs = list(validation_pairs)

    def train_batches(self, cursor: DataCursor) -> BatchStream:
        """Give batches to learn from, from this position on."""
        config = self.recipe.training
        recutters = self.recipe.tokenizers.build_regularizers(self.tokenizers)
        train = (
            ResegmentedDataset(self.train, recutters, seed=config.seed)
            if any(recutters)
            else self.train
        )
        return BatchStream(train, config.batching, seed=config.seed, cursor=cursor)

    def validation_batches(self) -> Iterator[Batch]:
        """Give batches to validate on, always the same."""
        config = self.recipe.training
        for shape in epoch_batch_specs(self.dev, config.batching, seed=config.seed, epoch=0):
            yield collate(self.dev, shape)


# Company: which models can be asked together with another?
#
# Models of an ensemble read and write the same tokens, and so does a language model that has a say:
# their vocabularies are equal, entry by entry. What is not is refused by its folder, and the first
# difference named.

_SAME_TOKENIZERS_HINT = "use runs that were trained with the same tokenizers"
_LANGUAGE_MODEL = "decoding.shallow_fusion.run"


def check_same_vocabularies(
    expected: TokenizerPair, other: TokenizerPair, *, run_dir: Path | str
) -> None:
    """Refuse a run that reads or writes other tokens."""
    sides = {"source": (expected.source, other.source), "target": (expected.target, other.target)}
    for side, (here, there) in sides.items():
        if found := _first_difference(here, there):
            raise RunError(
                str(run_dir), f"its {side} vocabulary is another: {found}", _SAME_TOKENIZERS_HINT
            )


def check_same_target_vocabulary(own: Tokenizer, other: Tokenizer, *, run_dir: Path | str) -> None:
    """Refuse a language model of other tokens than those that are written."""
    if found := _first_difference(own, other):
        raise ConfigError(
            _LANGUAGE_MODEL,
            f"the vocabulary of {run_dir} is not that of the target texts: {found}",
            "train it on target texts with their tokenizer",
        )


def check_no_ensemble(
    config: DecodingConfig, ensemble_with: Sequence[Path | str], *, model_type: str
) -> None:
    """Refuse to put others beside a model of running text, which has no outputs to agree on."""
    if ensemble_with:
        raise ConfigError(
            "ensemble_with",
            f"a {model_type} cannot be asked together with {ensemble_with[0]}",
            "only models that translate make an ensemble: name the run alone",
        )
    if config.shallow_fusion is not None:
        raise ConfigError(
            _LANGUAGE_MODEL, f"a {model_type} is not fused with another", "leave language_model out"
        )


def not_ensemble_member_error(run_dir: Path | str, model_type: str) -> RunError:
    """Say that a run cannot be part of an ensemble."""
    problem = f"this run is a {model_type}, and only models that translate make an ensemble"
    return RunError(str(run_dir), problem, "leave it out")


def not_language_model_error(run_dir: Path | str, model_type: str) -> ConfigError:
    """Say that a run cannot be fused."""
    return ConfigError(
        _LANGUAGE_MODEL,
        f"the run {run_dir} is a {model_type}: it does not say how texts go on by themselves",
        "name a run whose model is of `type: language-model`",
    )


def _first_difference(own: Tokenizer, other: Tokenizer) -> str | None:
    if type(own) is not type(other):
        return f"tokens are cut by {type(own).__name__} here and by {type(other).__name__} there"
    here, there = vocabulary_texts(own), vocabulary_texts(other)
    for number, (one, two) in enumerate(zip(here, there, strict=False)):
        if one != two:
            return f"token {number} is {one!r} here and {two!r} there"
    if len(here) != len(there):
        return f"it has {len(there)} tokens, and not {len(here)}"
    return None
