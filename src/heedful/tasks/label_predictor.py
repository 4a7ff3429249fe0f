"""Predictors that assign labels: the base of classifier and tagger.

An ensemble averages the probabilities of each label; its members have the same labels, in any
order. Invariant: the prediction for a text does not depend on the other texts.
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.pytree import map_tensors
from heedful.shapes import Float
from heedful.tasks.prediction import BatchPredictor, RequestT, ResultT
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS


class LabelPredictor(BatchPredictor[RequestT, ResultT]):
    """A trained model with its tokenizers and labels, and the rest of its ensemble."""

    def __init__(
        self, model: Any, tokenizers: TokenizerPair, *, device: torch.device | str = "cpu"
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.tokenizers = tokenizers
        self.device = device
        self.ensemble_with: Sequence[Self] = ()
        self.labels = tokenizers.target.ids_to_tokens(
            range(NUM_SPECIAL_TOKENS, len(tokenizers.target))
        )

    @property
    def members(self) -> Sequence[Self]:
        """All of the ensemble, the predictor itself first."""
        return [self, *self.ensemble_with]

    def encode(self, texts: Sequence[str]) -> tuple[list[list[int]], SourceBatch]:
        """Return the token ids of texts, and the inputs of the model."""
        ids = self.tokenizers.source.encode_batch(texts)
        return ids, map_tensors(lambda tensor: tensor.to(self.device), collate_sources(ids))

    def average(self, probabilities: Sequence[Float[Tensor, "*B N"]]) -> Float[Tensor, "*B N"]:
        """Return the mean of the probabilities of each member, as float64."""
        rows = [
            values.double()[..., [member.labels.index(label) for label in self.labels]]
            for values, member in zip(probabilities, self.members, strict=True)
        ]
        return torch.stack(rows).mean(dim=0)
