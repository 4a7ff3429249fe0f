""""""

from __future__ import annotations

from collections.abc import Iterator

from heedful.data.batch_stream import DataCursor
from heedful.data.token_stream import (
    LMBatch,
    LMBatchStream,
    Tokens,
    TokenStream,
    overlapping_windows,
)
from heedful.recipes import Recipe
from heedful.tasks.base import DataModule
from heedful.tokenization.tokenizer_pair import TokenizerPair


class LMDataModule(DataModule):
    """Running text, of which each token says the next."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizers: TokenizerPair,
        train: TokenStream,
        dev: Tokens,
        *,
        fingerprint: str,
    ) -> None:
        self.recipe = recipe
        self.tokenizers = tokenizers
        self.train = train
        self.dev = dev
        self.fingerprint = fingerprint

    def train_batches(self, cursor: DataCursor) -> LMBatchStream:
        """Give batches to learn from, from this position on."""
        streams, seed = self.recipe.data.lm_batching, self.recipe.training.seed
        return LMBatchStream(self.train, streams, seed=seed, cursor=cursor)

    def validation_batches(self) -> Iterator[LMBatch]:
        """Give batches to validate on: each token is asked for once, as it is in evaluation."""
        return overlapping_windows(self.dev, self.recipe.data.lm_batching)
