"""Ways: how are the outputs of a batch found?

By a search, by drawing, by the consensus of what is drawn, or not at all where they are given and
only judged. Law: what is found for a text depends on nothing else in its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.batching import SourceBatch, collate_sources
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest
from heedful.models.base import DecodableModel
from heedful.search import BeamSearchOptions, Hypothesis, LogitsProcessor, Node, Trellis
from heedful.search.logits_processors import (
    ForcedPrefix,
    MinLength,
    NoRepeatNGram,
    PerSentenceProcessor,
    RepetitionPenalty,
)
from heedful.search.minimum_bayes_risk import UTILITIES, count_distinct, expected_utilities
from heedful.search.sampling import SamplingConfig
from heedful.shapes import Int
from heedful.tokenization.vocabulary import EOS


class DecodingOutput(NamedTuple):
    """The outputs of a text, and how the search went if that was to be seen."""

    hypotheses: list[Hypothesis]
    tree: list[Node] | None = None


class DecodingStrategy:
    """The ways that settings leave, for one model."""

    def __init__(
        self,
        model: DecodableModel,
        config: DecodingConfig,
        *,
        detokenize: Callable[[list[int]], str],
        device: torch.device | str,
    ) -> None:
        self.model = model
        self.config = config
        self.detokenize = detokenize
        self.device = device

    def decode(
        self, requests: Sequence[EncodedRequest], *, need_tree: bool = False
    ) -> list[DecodingOutput]:
        """Find outputs: all of these are free, or all are given."""
        if requests[0].target is not None:
            return [DecodingOutput([each]) for each in self._score_targets(requests)]
        if self.config.mbr:
            samples = self._sample(requests, self.config.mbr.num_samples)
            return [DecodingOutput([self._select_mbr(outputs)]) for outputs in samples]
        if self.config.sampling:
            return [
                DecodingOutput(outputs) for outputs in self._sample(requests, self.config.n_best)
            ]
        return self._search(requests, need_tree=need_tree)

    def _search(
        self, requests: Sequence[EncodedRequest], *, need_tree: bool
    ) -> list[DecodingOutput]:
        settings, trellis = self.config, Trellis() if need_tree else None
        found = self.model.search(
            self._sources(requests),
            beam_size=settings.beam_size,
            max_lengths=self._to_tensor([each.max_length for each in requests]),
            length_penalty=settings.length_penalty.build(),
            options=BeamSearchOptions(
                coverage_penalty=settings.coverage_penalty.build()
                if settings.coverage_penalty
                else None,
                stopping=settings.stopping.build(),
                diversity=settings.diversity.build(),
                processors=self._build_processors(requests),
                constraints=[each.constraints for each in requests]
                if any(each.constraints for each in requests)
                else None,
            ),
            trellis=trellis,
        )
        trees = [trellis.tree(row, eos=EOS) if trellis else None for row in range(len(requests))]
        return [
            DecodingOutput(outputs[: settings.n_best], tree)
            for outputs, tree in zip(found, trees, strict=True)
        ]

    def _sample(self, requests: Sequence[EncodedRequest], count: int) -> list[list[Hypothesis]]:
        sampling = self.config.sampling or SamplingConfig()
        penalty = self.config.length_penalty.build()
        samples = self.model.sample(
            self._sources(requests),
            count,
            max_lengths=self._to_tensor([each.max_length for each in requests]),
            options=sampling.build(),
            seed=sampling.seed,
            seed_keys=[each.request_index for each in requests],
            processors=self._build_processors(requests),
        )
        return [
            [each._replace(score=penalty(each.log_prob, len(each.log_probs))) for each in outputs]
            for outputs in samples
        ]

    def _select_mbr(self, outputs: list[Hypothesis]) -> Hypothesis:
        """Take what all the others would be nearest to; its score is the gain to be expected."""
        assert self.config.mbr, "only a consensus agrees"
        texts = [self.detokenize(output.tokens) for output in outputs]
        places, counts = count_distinct(texts)
        among = UTILITIES[self.config.mbr.utility]([texts[place] for place in places])
        gains = expected_utilities(among, counts)
        best = int(gains.argmax())
        return outputs[places[best]]._replace(score=float(gains[best]))

    def _score_targets(self, requests: Sequence[EncodedRequest]) -> list[Hypothesis]:
        coverage_penalty = self.config.coverage_penalty
        return self.model.score(
            self._sources(requests),
            [each.target or [] for each in requests],
            length_penalty=self.config.length_penalty.build(),
            coverage_penalty=coverage_penalty.build() if coverage_penalty else None,
        )

    def _build_processors(self, requests: Sequence[EncodedRequest]) -> tuple[LogitsProcessor, ...]:
        settings, processors = self.config, list[LogitsProcessor]()
        if any(each.min_length for each in requests):
            processors.append(
                MinLength(self._to_tensor([each.min_length for each in requests]), eos=EOS)
            )
        if settings.no_repeat_ngram_size:
            processors.append(NoRepeatNGram(settings.no_repeat_ngram_size))
        if settings.repetition_penalty > 1:
            processors.append(RepetitionPenalty(settings.repetition_penalty))
        processors += _forbidden_processors([each.forbidden_phrases for each in requests])
        if any(each.prefix for each in requests):
            processors.append(ForcedPrefix([each.prefix for each in requests]))
        return tuple(processors)

    def _sources(self, requests: Sequence[EncodedRequest]) -> SourceBatch:
        sources = collate_sources([each.source for each in requests])
        return SourceBatch(*(part.to(self.device) for part in sources))

    def _to_tensor(self, numbers: list[int]) -> Int[Tensor, "B"]:
        return torch.tensor(numbers, device=self.device)


def _forbidden_processors(processors: Sequence[LogitsProcessor | None]) -> list[LogitsProcessor]:
    """What holds for all sentences is one rule, and not one for each."""
    first = processors[0]
    if any(rule is not first for rule in processors):
        return [PerSentenceProcessor(processors)]
    return [first] if first else []
