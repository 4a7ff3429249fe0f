"""The tagger as a predictor: sentences in, tags with their probabilities out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from heedful.config import check_types
from heedful.data.text.pair_dataset import Pair
from heedful.decoding.translation import BOS_LABEL, EOS_LABEL
from heedful.evaluation.annotation_metrics import Span, are_span_tags, extract_spans
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import get_metrics
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    TokenAxis,
    collect_layers,
    encoder_axis,
    without_words,
)
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.layers.crf import FORBIDDEN, SoftmaxTagHead, Tags, Transitions
from heedful.pytree import map_tensors
from heedful.shapes import Float, TargetMask
from heedful.tasks.labels import LabelPredictor
from heedful.tasks.prediction import PredictionOptions, check_json, format_predictor
from heedful.tasks.tagging.model import SequenceTagger, TagScheme
from heedful.tokenization.special_texts import join_spaces
from heedful.tokenization.standalone import split_spaces
from heedful.tokenization.tokenizer import check_text
from heedful.tokenization.tokenizer_pair import TokenizerPair

_DIGITS = 6
Sentence = str | Sequence[str]
"""Words separated by spaces, or a list of words."""


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags."""

    words: Sequence[str]
    tags: Sequence[str]
    labels: Sequence[str]
    probabilities: NDArray[np.float32]  # (words, labels): of a CRF, posteriors of each tag
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested
    attention_map: None = None  # tags attend to nothing; layers of an encoder may

    @property
    def source(self) -> str:
        """The words, separated by spaces."""
        return join_spaces(self.words)

    @property
    def source_tokens(self) -> Sequence[str]:
        """The words."""
        return self.words

    @property
    def text(self) -> str:
        """The tags, separated by spaces."""
        return " ".join(self.tags)

    @property
    def tokens(self) -> Sequence[str]:
        """The tags."""
        return self.tags

    @property
    def spans(self) -> list[Span]:
        """The spans of BIO or BIOES tags in their order; none if the tags are others."""
        return sorted(extract_spans(self.tags)) if are_span_tags(self.tags) else []

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; docs/tagging.md explains each field."""
        rows = self.probabilities.astype(float).round(_DIGITS).tolist()
        return {
            "words": list(self.words),
            "tags": list(self.tags),
            "probabilities": [dict(zip(self.labels, row, strict=True)) for row in rows],
            "spans": [
                {**span._asdict(), "text": " ".join(self.words[span.first : span.last + 1])}
                for span in self.spans
            ],
        }


def split_sentence(sentence: Sentence) -> list[str]:
    """Return the words of a sentence."""
    return split_spaces(sentence) if isinstance(sentence, str) else list(sentence)


def is_valid_transition(previous: str | None, tag: str | None, scheme: TagScheme) -> bool:
    """Whether a tag may follow another; None is the start or the end of a sentence.

    I-X and E-X continue B-X or I-X; in BIOES these must be continued.
    """
    (left, _, open_label), (right, _, label) = (
        (neighbor or "").partition("-") for neighbor in (previous, tag)
    )
    is_open = left in ("B", "I")
    if right in ("I", "E"):
        return is_open and open_label == label
    return scheme == "bio" or not is_open


def transition_penalties(labels: Sequence[str], scheme: TagScheme) -> Transitions:
    """Return the scores of transitions: 0 if they are valid in this scheme."""

    def penalty(previous: str | None, tag: str | None) -> float:
        return 0.0 if is_valid_transition(previous, tag, scheme) else FORBIDDEN

    between = [[penalty(previous, tag) for tag in labels] for previous in labels]
    start, end = [penalty(None, tag) for tag in labels], [penalty(tag, None) for tag in labels]
    return Transitions(*map(torch.tensor, (between, start, end)))


class Tagger(LabelPredictor[Sentence, TaggedSentence]):
    """A trained tagger with its tokenizers, and the rest of its ensemble.

    An ensemble averages the probabilities of each tag, and predicts the most probable one of each
    word; with a `scheme`, the most probable ones that are valid together.
    """

    request_name = "sentence"
    input_schema: ClassVar[Mapping[str, Any]] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    }

    def __init__(
        self,
        model: SequenceTagger,
        tokenizers: TokenizerPair,
        *,
        scheme: TagScheme | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, tokenizers, device=device)
        self.conll_columns: tuple[int | str | None, int | str | None] = (None, None)
        """Of words and tags in the training data."""
        penalties = transition_penalties(self.labels, scheme) if scheme else None
        self._penalties = map_tensors(lambda tensor: tensor.to(device), penalties)

    def __repr__(self) -> str:
        return format_predictor(self, f"tags {', '.join(self.labels)}")

    @override
    def parse_json(self, value: Any) -> Sentence:
        """Return a text of words separated by spaces, or a list of words."""
        return check_json(value, str | list, "a text or a list of words", '["two", "words"]')

    @overload
    def tag(self, sentences: str) -> TaggedSentence: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, sentences: Iterable[Sentence]) -> list[TaggedSentence]: ...
    @check_types
    def tag(self, sentences: str | Iterable[Sentence]) -> TaggedSentence | list[TaggedSentence]:
        """Tag a sentence, or sentences: texts of words separated by spaces, or lists of words."""
        results = self.predict([sentences] if isinstance(sentences, str) else sentences)
        return next(results) if isinstance(sentences, str) else list(results)

    @override
    def check_request(self, request: Sentence, location: str) -> None:
        for word in split_sentence(request):
            check_text(word, location=location)

    @torch.inference_mode()
    @override
    def predict_batch(
        self, requests: Sequence[Sentence], options: PredictionOptions, *, need_layers: bool
    ) -> Iterator[TaggedSentence]:
        sentences = list(map(split_sentence, requests))
        with trace_attention(self.model, device="cpu") as records:
            probabilities, mask, tags = self._score(sentences)
        if self.ensemble_with:
            others = [member._score(sentences)[0] for member in self.ensemble_with]
            probabilities = self.average([probabilities, *others]).to(probabilities)
            tags = SoftmaxTagHead().decode(probabilities.log(), mask, self._penalties)
        for row, words in enumerate(sentences):
            labels = [self.labels[index] for index in tags[row, : len(words)].tolist()]
            values = probabilities[row, : len(words)].cpu().numpy()
            layers = self._collect_layers(records, words) if need_layers else ()
            yield TaggedSentence(words, labels, self.labels, values, layers)

    @torch.inference_mode()
    @override
    def force(
        self, request: Sentence, result: TaggedSentence, num_rows: int
    ) -> Float[Tensor, "R T N"] | None:
        """Return the log-probability of all tags of each word."""
        sentences = [list(result.words)] * num_rows
        scores = [member._score(sentences)[0] for member in self.members]
        return self.average(scores)[:, : len(result.words)].log() if result.words else None

    def _score(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[Float[Tensor, "B T N"], TargetMask, Tags]:
        """Return the probabilities of all tags, where there are words, and the best tags."""
        _, sources = self.encode([join_spaces(words) for words in sentences])
        max_words = max(map(len, sentences)) + 1
        emissions, mask, _ = self.model.score_tags(sources, max_words)
        head = self.model.head
        tags = head.decode(emissions, mask, self._penalties)
        return head.log_marginals(emissions, mask).exp(), mask, tags

    def _collect_layers(
        self, records: list[TraceRecord], words: Sequence[str]
    ) -> list[AttentionLayer]:
        axis = self._source_axis(words).followed_by(without_words([EOS_LABEL]))

        def axes_of(record: TraceRecord) -> Axes:
            tokens = encoder_axis(record, axis, bos_label=BOS_LABEL)
            return f"encoder-{record.role}", tokens, tokens

        return collect_layers(records, axes_of, default="encoder-self")

    def _source_axis(self, words: Sequence[str]) -> TokenAxis:
        """Return the words, or their pieces if the encoder reads these."""
        if not self.model.splits_words:
            return TokenAxis(words, words, range(len(words)))
        tokenizer = self.tokenizers.source
        ids = tokenizer.encode(join_spaces(words))
        word_ids = [*accumulate(int(token < len(tokenizer)) for token in ids)]
        return TokenAxis(tokenizer.ids_to_tokens(ids), words, [index - 1 for index in word_ids])

    @override
    def default_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[Metric]:
        return get_metrics(choose_metrics(choices[0] for choices in references))

    @override
    def count_tokens(self, examples: Sequence[Pair]) -> int:
        """Return the number of words."""
        return sum(len(split_spaces(pair.source)) for pair in examples)


def choose_metrics(references: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics for these tags."""
    has_spans = are_span_tags(tag for line in references for tag in line.split())
    return ("token-accuracy", "span-f1") if has_spans else ("token-accuracy",)
