"""The classifier: a trained text classifier, or an ensemble, with tokenizer and labels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, zip_longest
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from heedful.config import check_types
from heedful.decoding.translation import BOS_LABEL, EOS_LABEL, TokenTextMapper, token_axis
from heedful.evaluation.base import Array, Metric, SentenceMetric, count_references
from heedful.evaluation.confusion import mean_f1
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    collect_layers,
    encoder_axis,
    without_words,
)
from heedful.inspection.attention_map import AttentionMap, render_notebook_html
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.shapes import Float
from heedful.tasks.classification.model import TextClassifier
from heedful.tasks.labels import LabelPredictor
from heedful.tasks.prediction import PredictionOptions, format_predictor
from heedful.tokenization.special_texts import SENTENCE_END_ID
from heedful.tokenization.tokenizer import check_text
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import SPECIAL_TOKENS, UNK

_DIGITS = 6
_POOLING = "pooling.attention"  # module path of the attention whose weights are shown
_WORD_POOLING = "encoder.pooling.attention"  # over the words of sentences, if it is hierarchical


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


def _average_weights(outputs: Sequence["ClassifierOutput"], row: int) -> NDArray[np.float32] | None:
    """Average the weights of members that split a text like the first."""
    tokens = outputs[0].tokens[row]
    aligned = [output for output in outputs if _match(output.tokens[row], tokens)]
    weights = [output.weights[row] for output in aligned if output.weights is not None]
    return np.mean(weights, axis=0) if weights else None


def split_rows(ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the numbers of tokens of the sentences of each text, each with its mark or EOS."""
    rows = []
    for tokens in ids:
        ends = [index + 1 for index, token in enumerate(tokens) if token == SENTENCE_END_ID]
        rows.append([end - start for start, end in pairwise([0, *ends, len(tokens) + 1])])
    return rows


def combine_levels(
    word_weights: NDArray[np.float32],
    sentence_weights: Sequence[NDArray[np.float32]],
    lengths: Sequence[Sequence[int]],
) -> list[NDArray[np.float32]]:
    """Return the weight of each token: that in its sentence, times that of the sentence."""
    sentences = iter(word_weights)
    return [
        np.concatenate(
            [next(sentences)[:length] * row[index] for index, length in enumerate(text_lengths)]
        )
        for row, text_lengths in zip(sentence_weights, lengths, strict=True)
    ]


def spread_sentences(weights: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the weights (M, H, 1, W) of the sentences of one text over all its tokens."""
    spread = weights.new_zeros(1, weights.size(1), len(lengths), sum(lengths))
    for index, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
        spread[0, :, index, end - length : end] = weights[index, :, 0, :length]
    return spread


class ClassifierOutput(NamedTuple):
    """What one model finds in a batch of texts."""

    ids: list[list[int]]
    tokens: list[list[str]]  # the last of each text stands for EOS
    probabilities: Float[Tensor, "B N"]
    weights: list[NDArray[np.float32]] | None  # of the tokens; None without attention pooling
    records: list[TraceRecord]


class Classifier(LabelPredictor[str, Classification]):
    """A trained text classifier with its tokenizer and labels, and the rest of its ensemble."""

    def __init__(
        self,
        model: TextClassifier,
        tokenizers: TokenizerPair,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, tokenizers, device=device)
        self._source_texts = TokenTextMapper(tokenizers.source)

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
        outputs = [member._run(requests) for member in self.members]
        first = outputs[0]
        means = self.average([output.probabilities for output in outputs]).cpu()
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
                layers = self._collect_layers(first.records, result, first.ids[row])
                result = result._replace(attention_layers=layers)
            yield result

    @torch.inference_mode()
    @override
    def force(self, request: str, result: Classification, num_rows: int) -> Float[Tensor, "R 1 N"]:
        """Predict the label of a text again."""
        texts = [request] * num_rows
        outputs = [member.model.classify(member.encode(texts)[1])[0] for member in self.members]
        return self.average([log_probs.exp() for log_probs in outputs]).log().unsqueeze(1)

    def _run(self, texts: Sequence[str]) -> ClassifierOutput:
        """Run this model alone."""
        ids, sources = self.encode(texts)
        with trace_attention(self.model, device="cpu") as records:
            log_probs, _ = self.model.classify(sources)
        tokens = [[*self.tokenizers.source.ids_to_tokens(row), EOS_LABEL] for row in ids]
        pooled = {record.module_path: record for record in records}
        weights: list[NDArray[np.float32]] | None = None
        if _POOLING in pooled:
            weights = list(pooled[_POOLING].weights.mean(dim=1).squeeze(1).numpy())  # over heads
        sentences = split_rows(ids) if _WORD_POOLING in pooled else []
        if sentences and weights is not None:
            word_weights = pooled[_WORD_POOLING].weights.mean(dim=1).squeeze(1).numpy()
            weights = combine_levels(word_weights, weights, sentences)
        if weights is not None:
            weights = [row[: len(text)] for row, text in zip(weights, tokens, strict=True)]
        return ClassifierOutput(ids, tokens, log_probs.exp(), weights, records)

    def _collect_layers(
        self, records: list[TraceRecord], result: Classification, ids: list[int]
    ) -> list[AttentionLayer]:
        texts = self._source_texts.source_token_texts(ids, result.source)
        source = token_axis(result.source_tokens[:-1], texts)
        source = source.followed_by(without_words([EOS_LABEL]))
        label = without_words([result.text])
        is_hierarchical = any(record.module_path == _WORD_POOLING for record in records)
        lengths = split_rows([ids])[0] if is_hierarchical else None
        sentence_axis = without_words([f"sentence {n + 1}" for n in range(len(lengths or ()))])
        if lengths is not None:
            records = [
                replace(record, weights=spread_sentences(record.weights, lengths))
                if record.module_path == _WORD_POOLING
                else record
                for record in records
            ]

        def axes_of(record: TraceRecord) -> Axes:
            if record.module_path == _POOLING:
                return "pooling", label, source if lengths is None else sentence_axis
            if record.module_path == _WORD_POOLING:
                return "encoder-pooling", sentence_axis, source
            tokens = encoder_axis(record, source, bos_label=BOS_LABEL)
            return f"encoder-{record.role}", tokens, tokens

        return collect_layers(records, axes_of, default="pooling")

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
