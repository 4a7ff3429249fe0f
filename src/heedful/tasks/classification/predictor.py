"""The classifier: a trained text classifier, or an ensemble, with tokenizer and labels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from heedful.config import check_types
from heedful.evaluation.base import Array, Metric, SentenceMetric, count_references
from heedful.evaluation.confusion import mean_f1
from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.attention_map import AttentionMap, render_notebook_html
from heedful.shapes import Float
from heedful.tasks.classification.model import TextClassifier
from heedful.tasks.labels import LabelPredictor
from heedful.tasks.pooled_text import PooledTextOutput, read_pooled
from heedful.tasks.prediction import PredictionOptions, format_predictor
from heedful.tokenization.tokenizer import check_text
from heedful.tokenization.vocabulary import SPECIAL_TOKENS, UNK

_DIGITS = 6


class Classification(NamedTuple):
    """The label of a text, and the attention weights of its tokens."""

    source: str
    text: str  # the label
    probabilities: Mapping[str, float]  # of all labels, the most probable first
    source_tokens: Sequence[str]  # the last stands for EOS
    weights: NDArray[np.float32] | None  # (source tokens,); None without attention pooling
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested

    @property
    def tokens(self) -> Sequence[str]:
        """The label as the only token."""
        return [self.text]

    @property
    def attention_map(self) -> AttentionMap | None:
        """The weights as one row of a map."""
        if self.weights is None:
            return None
        return AttentionMap(
            self.source_tokens, [self.text], self.weights[None], title=self.source, output=self.text
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; docs/classification.md explains each field."""
        weights = None if self.weights is None else self.weights.astype(float).round(_DIGITS)
        return {
            "source": self.source,
            "label": self.text,
            "probabilities": {name: round(p, _DIGITS) for name, p in self.probabilities.items()},
            "source_tokens": list(self.source_tokens),
            "weights": None if weights is None else weights.tolist(),
        }

    def _repr_html_(self) -> str:
        return render_notebook_html(self.attention_map) if self.attention_map else self.text


def _match(tokens: Sequence[str], others: Sequence[str]) -> bool:
    """Whether tokens are equal, except for words that are unknown to one of two vocabularies."""
    pairs = zip_longest(tokens, others)  # EOS is the last of both
    return all(one == other or SPECIAL_TOKENS[UNK] in (one, other) for one, other in pairs)


def _average_weights(outputs: Sequence[PooledTextOutput], row: int) -> NDArray[np.float32] | None:
    """Average the weights of members that split a text like the first."""
    tokens = outputs[0].tokens[row]
    aligned = [output for output in outputs if _match(output.tokens[row], tokens)]
    weights = [output.weights[row] for output in aligned if output.weights is not None]
    return np.mean(weights, axis=0) if weights else None


class Classifier(LabelPredictor[str, Classification]):
    """A trained text classifier with its tokenizer and labels, and the rest of its ensemble."""

    model: TextClassifier

    def __repr__(self) -> str:
        return format_predictor(self, f"labels {', '.join(self.labels)}")

    @overload
    def classify(self, texts: str) -> Classification: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, texts: Iterable[str]) -> list[Classification]: ...
    @check_types
    def classify(self, texts: str | Iterable[str]) -> Classification | list[Classification]:
        """Classify a text, or texts."""
        results = self.predict([texts] if isinstance(texts, str) else texts)
        return next(results) if isinstance(texts, str) else list(results)

    @override
    def check_request(self, request: str, location: str) -> None:
        check_text(request, location=location)

    @torch.inference_mode()
    @override
    def predict_batch(
        self, requests: Sequence[str], options: PredictionOptions, *, need_layers: bool
    ) -> Iterator[Classification]:
        outputs = [read_pooled(member, requests) for member in self.members]
        first = outputs[0]
        means = self.average([output.values.log_softmax(dim=-1).exp() for output in outputs]).cpu()
        for row, text in enumerate(requests):
            order = means[row].argsort(descending=True, stable=True).tolist()
            result = Classification(
                text,
                self.labels[order[0]],
                {self.labels[index]: means[row, index].item() for index in order},
                first.tokens[row],
                _average_weights(outputs, row),
            )
            if need_layers:
                layers = first.collect_layers(row, text, result.text, self.tokenizers.source)
                result = result._replace(attention_layers=layers)
            yield result

    @torch.inference_mode()
    @override
    def force(self, request: str, result: Classification, num_rows: int) -> Float[Tensor, "R 1 N"]:
        """Predict the label of a text again."""
        texts = [request] * num_rows
        outputs = [member.model.classify(member.encode(texts)[1])[0] for member in self.members]
        return self.average([log_probs.exp() for log_probs in outputs]).log().unsqueeze(1)

    @override
    def default_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[Metric]:
        return list(METRICS.values())


class LabelAccuracy(SentenceMetric):
    """Percentage of texts with the right label."""

    name = "accuracy"
    direction = "higher"

    @override
    def sentence_counts(
        self, output: str, references: Sequence[str], line: int
    ) -> tuple[float, float]:
        return float(output in [label.strip() for label in references]), 1.0


class MacroF1(Metric):
    """Mean over labels of 2 tp / (2 tp + fp + fn), in percent; labels are those of references."""

    name = "macro-F1"
    direction = "higher"

    @override
    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """Return true positives, false positives and false negatives of each label."""
        labels = np.array([choices[0].strip() for choices in references])
        is_label = labels[:, None] == np.unique(labels)  # (texts, labels)
        is_output = np.array(outputs)[:, None] == np.unique(labels)
        counts = np.stack([is_label & is_output, ~is_label & is_output, is_label & ~is_output], 2)
        return counts.reshape(len(labels), -1).astype(np.float64)

    @override
    def compute(self, sums: Array) -> Array:
        """Return the mean F1 of labels that occur; a bootstrap sample may lack some."""
        return 100 * mean_f1(sums.reshape(*sums.shape[:-1], -1, 3))

    @override
    def signature(self, references: Sequence[Sequence[str]]) -> str:
        num_labels = len({choices[0] for choices in references})
        return f"labels:{num_labels}|{count_references(references)}"


METRICS: Mapping[str, Metric] = {"accuracy": LabelAccuracy(), "macro-f1": MacroF1()}
