"""The text classifier: p(label | text) = softmax(W pool(h_1 .. h_S) + b)."""

from typing import Literal

from torch import Tensor

from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import check
from heedful.models.base import ModelOutput
from heedful.models.pooled_text import PooledTextConfigBase, PooledTextModel
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS


def label_indices(batch: Batch) -> Int[Tensor, "B"]:
    """Return the labels of a batch, counted from 0; negative where a label is unknown."""
    return batch.targets[:, 0] - NUM_SPECIAL_TOKENS


class TextClassifier(PooledTextModel):
    """A classifier of whole texts."""

    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        """Return the log-probabilities of labels, one target per text."""
        del need_weights  # `trace_attention` has them
        log_probs, auxiliary_losses = self.classify(batch.sources)
        return ModelOutput(log_probs.unsqueeze(1), None, auxiliary_losses)

    def classify(
        self, sources: SourceBatch
    ) -> tuple[Float[Tensor, "B N"], dict[str, Float[Tensor, ""]]]:
        """Return the log-probabilities of labels and the losses of the encoder."""
        logits, auxiliary_losses = self.project(sources)
        return logits.log_softmax(dim=-1), auxiliary_losses


class TextClassifierConfig(PooledTextConfigBase):
    """A label for a text, by pooling over the states of an encoder (Yang et al. 2016)."""

    type: Literal["text-classifier"] = "text-classifier"

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> TextClassifier:
        num_labels = target_vocab_size - NUM_SPECIAL_TOKENS
        message = f"the training data has {num_labels} label; a classifier needs two or more"
        check(num_labels > 1, "data.train", message, "look at the column of labels")
        return self.build_model(TextClassifier, source_vocab_size, num_labels)
