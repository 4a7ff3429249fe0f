"""The tagger as a predictor: sentences in, tags with their probabilities out.

Invariant: the prediction for a sentence does not depend on the other sentences.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.acceleration.registry import accelerate_for_inference
from heedful.config import check_types
from heedful.data.text.batching import collate_sources
from heedful.data.text.pair_dataset import Pair
from heedful.decoding.translation import BOS_LABEL, EOS_LABEL
from heedful.evaluation.annotation_metrics import Span, are_span_tags, extract_spans
from heedful.evaluation.base import MetricScore
from heedful.evaluation.registry import compute_metrics
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    TokenAxis,
    collect_layers,
    encoder_axis,
    mark_default,
    without_words,
)
from heedful.inspection.attention_trace import TraceRecord, trace_attention
from heedful.layers.crf import FORBIDDEN, SoftmaxTagHead, Tags, Transitions
from heedful.pytree import map_tensors
from heedful.shapes import Float, TargetMask
from heedful.tasks.prediction import format_predictor
from heedful.tasks.tagging.model import SequenceTagger, TagScheme
from heedful.tokenization.standalone import split_spaces
from heedful.tokenization.tokenizer import check_text
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.tokenization.whitespace import join_spaces

_BATCH_SIZE = 64
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


class Tagger:
    """A trained tagger with its tokenizers, and the rest of its ensemble.

    An ensemble averages the probabilities of each tag, and predicts the most probable one of each
    word; with a `scheme`, the most probable ones that are valid together.
    """

    def __init__(
        self,
        model: SequenceTagger,
        tokenizers: TokenizerPair,
        *,
        scheme: TagScheme | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.tokenizers = tokenizers
        self.device = device
        self.ensemble_with: Sequence[Tagger] = ()  # with the same labels, in any order
        self.conll_columns: tuple[int | str | None, int | str | None] = (None, None)
        """Of words and tags in the training data."""
        self.labels = tokenizers.target.ids_to_tokens(
            range(NUM_SPECIAL_TOKENS, len(tokenizers.target))
        )
        penalties = transition_penalties(self.labels, scheme) if scheme else None
        self._penalties = map_tensors(lambda tensor: tensor.to(device), penalties)

    def __repr__(self) -> str:
        return format_predictor(self, f"tags {', '.join(self.labels)}")

    @overload
    def tag(self, sentences: str) -> TaggedSentence: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, sentences: Iterable[Sentence]) -> list[TaggedSentence]: ...
    @check_types
    def tag(self, sentences: str | Iterable[Sentence]) -> TaggedSentence | list[TaggedSentence]:
        """Tag a sentence, or sentences: texts of words separated by spaces, or lists of words."""
        results = self.predict([sentences] if isinstance(sentences, str) else sentences)
        return next(results) if isinstance(sentences, str) else list(results)

    def predict(
        self,
        requests: Iterable[Sentence],
        *,
        location: str = "sentence",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[TaggedSentence]:
        """Tag sentences as they come, in order."""
        stream = iter(requests)
        while batch := list(islice(stream, 1 if need_layers else _BATCH_SIZE)):
            sentences = [split_spaces(s) if isinstance(s, str) else list(s) for s in batch]
            for index, words in enumerate(sentences, start_index):
                for word in words:
                    check_text(word, location=f"{location}:{index}")
            yield from self._tag(sentences, need_layers=need_layers)
            start_index += len(batch)

    def predict_with_attention(self, requests: Iterable[Sentence]) -> Iterator[TaggedSentence]:
        """Tag sentences; the results have the attention weights of each layer."""
        return self.predict(requests, need_layers=True)

    @torch.inference_mode()
    def _tag(self, sentences: list[list[str]], *, need_layers: bool) -> Iterator[TaggedSentence]:
        with trace_attention(self.model, device="cpu") as records:
            probabilities, mask, tags = self._score(sentences)
        if self.ensemble_with:
            order = [member.labels for member in self.ensemble_with]
            members = [member._score(sentences)[0] for member in self.ensemble_with]
            aligned = [
                rows[..., [labels.index(label) for label in self.labels]]
                for rows, labels in zip(members, order, strict=True)
            ]
            probabilities = torch.stack([probabilities, *aligned]).mean(dim=0)
            tags = SoftmaxTagHead().decode(probabilities.log(), mask, self._penalties)
        for row, words in enumerate(sentences):
            labels = [self.labels[index] for index in tags[row, : len(words)].tolist()]
            values = probabilities[row, : len(words)].cpu().numpy()
            layers = self._collect_layers(records, words) if need_layers else ()
            yield TaggedSentence(words, labels, self.labels, values, layers)

    def _score(self, sentences: list[list[str]]) -> tuple[Float[Tensor, "B T N"], TargetMask, Tags]:
        """Return the probabilities of all tags, where there are words, and the best tags."""
        ids = self.tokenizers.source.encode_batch([join_spaces(words) for words in sentences])
        sources = map_tensors(lambda tensor: tensor.to(self.device), collate_sources(ids))
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

        return mark_default(collect_layers(records, axes_of), "encoder-self")

    def _source_axis(self, words: Sequence[str]) -> TokenAxis:
        """Return the words, or their pieces if the encoder reads these."""
        if not self.model.splits_words:
            return TokenAxis(words, words, range(len(words)))
        tokenizer = self.tokenizers.source
        ids = tokenizer.encode(join_spaces(words))
        word_ids = [*accumulate(int(token < len(tokenizer)) for token in ids)]
        return TokenAxis(tokenizer.ids_to_tokens(ids), words, [index - 1 for index in word_ids])

    def evaluate(self, examples: Sequence[Pair]) -> list[MetricScore]:
        """Return token accuracy on tagged sentences, and span F1 if the tags have spans."""
        outputs = [result.text for result in self.predict(pair.source for pair in examples)]
        references = [pair.target for pair in examples]
        return compute_metrics(outputs, references, choose_metrics(references))

    def count_tokens(self, examples: Sequence[Pair]) -> int:
        """Return the number of words."""
        return sum(len(split_spaces(pair.source)) for pair in examples)


def choose_metrics(references: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics for these tags."""
    has_spans = are_span_tags(tag for line in references for tag in line.split())
    return ("token-accuracy", "span-f1") if has_spans else ("token-accuracy",)
