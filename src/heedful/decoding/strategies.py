"""Decoding strategies: beam search, sampling, MBR decoding and forced decoding of a batch.

Invariant: the output of a text does not depend on the rest of its batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.text.batching import SourceBatch
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest, RequestControl
from heedful.models.base import DecodableModel
from heedful.search import (
    FIRST_FINISHED,
    BeamSearchOptions,
    Hypothesis,
    LogitsProcessor,
    Node,
    Trellis,
)
from heedful.search.beam_search import Beams, search_steps
from heedful.search.hypotheses import drop_zero_probability
from heedful.search.logits_processors import (
    CancelledSentences,
    ForbiddenTokens,
    ForcedBOSToken,
    ForcedPrefix,
    MinLength,
    NoRepeatNGram,
    PerSentenceProcessor,
    RepetitionPenalty,
)
from heedful.search.minimum_bayes_risk import UTILITIES, count_distinct, expected_utilities
from heedful.search.sampling import SamplingConfig
from heedful.shapes import Int
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import BOS, EOS


class DecodingOutput(NamedTuple):
    """The hypotheses of a text, best or first first, and the search tree if requested."""

    hypotheses: list[Hypothesis]
    tree: list[Node[int]] | None = None


def empty_output(request: EncodedRequest, *, need_tree: bool) -> DecodingOutput:
    """Return the empty output of an empty text, or of one that is skipped: it has no score."""
    score = math.nan if request.is_skipped else 0.0
    weights = np.zeros((1, len(request.source) + 1), np.float32)
    empty = Hypothesis([], score, score, weights[:0], np.full(1, score), weights[0])
    return DecodingOutput([empty], [] if need_tree else None)


Collate = Callable[[Sequence[EncodedRequest]], SourceBatch]
"""Makes the inputs of a model."""


class DecodingStrategy:
    """Decodes batches of requests as the settings say."""

    def __init__(
        self,
        model: DecodableModel,
        config: DecodingConfig,
        *,
        tokenizers: TokenizerPair,
        device: torch.device | str,
        control: RequestControl | None = None,
    ) -> None:
        self.model, self.config, self.control = model, config, control
        self.tokenizers, self.device = tokenizers, device
        self.length_penalty = config.length_penalty.build()
        self.coverage_penalty = config.coverage_penalty.build() if config.coverage_penalty else None

    def decode(
        self, requests: Sequence[EncodedRequest], collate: Collate, *, need_tree: bool = False
    ) -> list[DecodingOutput]:
        """Return one output per request; either all requests have a target or none."""
        sources = SourceBatch(*(part.to(self.device) for part in collate(requests)))
        targets = [request.target for request in requests if request.target is not None]
        if targets:
            hypotheses = self.model.score(
                sources,
                targets,
                length_penalty=self.length_penalty,
                coverage_penalty=self.coverage_penalty,
            )
            return [DecodingOutput([hypothesis]) for hypothesis in hypotheses]
        if self.config.mbr:
            samples = self._sample(requests, sources, self.config.mbr.num_samples)
            selected = map(self._select_mbr, requests, samples)
            return [DecodingOutput([hypothesis]) for hypothesis in selected]
        if self.config.sampling:
            return list(map(DecodingOutput, self._sample(requests, sources, self.config.n_best)))
        return self._search(requests, sources, need_tree=need_tree)

    def _search(
        self, requests: Sequence[EncodedRequest], sources: SourceBatch, *, need_tree: bool
    ) -> list[DecodingOutput]:
        config, trellis = self.config, Trellis() if need_tree else None
        hypotheses = self.model.search(
            sources,
            beam_size=config.beam_size,
            max_lengths=self._to_tensor([request.max_length for request in requests]),
            length_penalty=self.length_penalty,
            options=self._search_options(requests),
            trellis=trellis,
        )
        trees = [trellis.tree(row, eos=EOS) if trellis else None for row in range(len(requests))]
        best = [ranked[: config.n_best] for ranked in hypotheses]
        return list(map(DecodingOutput, best, trees))

    def _search_options(self, requests: Sequence[EncodedRequest]) -> BeamSearchOptions:
        config, constraints = self.config, [request.constraints for request in requests]
        return BeamSearchOptions(
            coverage_penalty=self.coverage_penalty,
            stopping=config.stopping.build(),
            diversity=config.diversity.build(),
            pruning=config.pruning.build(),
            processors=self._build_processors(requests),
            constraints=constraints if any(constraints) else None,
        )

    @torch.inference_mode()
    def stream(
        self, request: EncodedRequest, collate: Collate, *, need_tree: bool
    ) -> Iterator[DecodingOutput]:
        """Yield what is decided of the output, as it grows, and at last the output.

        That is a sample, or what all hypotheses of a beam search begin with.
        """
        sources = SourceBatch(*(part.to(self.device) for part in collate([request])))
        if self.config.sampling:
            arguments = self._sampling_arguments([request])
            for recorder in self.model.sample_steps(sources, 1, **arguments):
                samples = recorder.hypotheses()
                yield DecodingOutput(samples)
            yield DecodingOutput(self._penalize(samples))
            return
        options = self._search_options([request])
        if self.config.beam_size == 1:
            options = options._replace(stopping=FIRST_FINISHED)
        beams = Beams(
            Trellis(),
            options,
            self._to_tensor([request.max_length]),
            eos=EOS,
            beam_size=self.config.beam_size,
            length_penalty=self.length_penalty,
            source_lengths=sources.lengths,
        )
        for _ in search_steps(self.model, self.model.initial_state(sources), beams, bos=BOS):
            yield DecodingOutput([beams.common_prefix()])
        best, tree = beams.hypotheses()[0][: self.config.n_best], beams.trellis.tree(0, eos=EOS)
        yield DecodingOutput(best, tree if need_tree else None)

    def _sample(
        self, requests: Sequence[EncodedRequest], sources: SourceBatch, count: int
    ) -> list[list[Hypothesis]]:
        samples = self.model.sample(sources, count, **self._sampling_arguments(requests))
        return list(map(self._penalize, samples))

    def _sampling_arguments(self, requests: Sequence[EncodedRequest]) -> dict[str, Any]:
        sampling = self.config.sampling or SamplingConfig()
        return {
            "max_lengths": self._to_tensor([request.max_length for request in requests]),
            "options": sampling.build(),
            "seed": sampling.seed,
            "seed_keys": [self._seed_key(request) for request in requests],
            "processors": self._build_processors(requests),
        }

    def _penalize(self, samples: list[Hypothesis]) -> list[Hypothesis]:
        """Leave out what is impossible, and score samples as a search does."""
        return [
            item._replace(score=self.length_penalty(item.log_prob, len(item.log_probs)))
            for item in drop_zero_probability(samples)
        ]

    def _select_mbr(self, request: EncodedRequest, samples: list[Hypothesis]) -> Hypothesis:
        """Return the sample with the highest expected utility, which becomes its score."""
        assert self.config.mbr
        tokenizer = self.tokenizers.for_source(request.request.text).target
        texts = [tokenizer.decode(sample.tokens) for sample in samples]
        indices, counts = count_distinct(texts)
        utilities = UTILITIES[self.config.mbr.utility]([texts[index] for index in indices])
        expected = expected_utilities(utilities, counts)
        best = int(expected.argmax())
        return samples[indices[best]]._replace(score=float(expected[best]))

    def _build_processors(self, requests: Sequence[EncodedRequest]) -> tuple[LogitsProcessor, ...]:
        processors: list[LogitsProcessor] = []
        min_lengths = [request.min_length for request in requests]
        if any(min_lengths):
            processors.append(MinLength(self._to_tensor(min_lengths), eos=EOS))
        processors += self._build_general_processors()
        forbidden = [request.forbidden_phrases for request in requests]
        if any(processor is not forbidden[0] for processor in forbidden):
            processors.append(PerSentenceProcessor(forbidden))
        elif forbidden[0]:
            processors.append(forbidden[0])
        if any(request.prefix for request in requests):
            processors.append(ForcedPrefix([request.prefix for request in requests]))
        if self.control and torch.device(self.device).type == "cpu":  # elsewhere it stops graphs

            def is_cancelled(sentence: int) -> bool:
                return self.is_cancelled(requests[sentence])

            on_step = self.control.on_step
            processors.append(
                CancelledSentences(is_cancelled, len(requests), eos=EOS, on_step=on_step)
            )
        return tuple(processors)

    def is_cancelled(self, request: EncodedRequest) -> bool:
        """Whether nobody waits for the output of a request."""
        return self.control is not None and self.control.is_cancelled(request.request_index)

    def _seed_key(self, request: EncodedRequest) -> int:
        index = request.request_index
        return self.control.seed_key(index) if self.control else index

    def _build_general_processors(self) -> list[LogitsProcessor]:
        """Return the processors that are the same for all requests."""
        config = self.config
        processors: list[LogitsProcessor] = []
        if config.suppressed_tokens:
            processors.append(ForbiddenTokens(config.suppressed_tokens))
        if config.no_repeat_ngram_size:
            processors.append(NoRepeatNGram(config.no_repeat_ngram_size))
        if config.repetition_penalty > 1:
            processors.append(RepetitionPenalty(config.repetition_penalty))
        if config.forced_bos_token_id is not None:
            processors.append(ForcedBOSToken(config.forced_bos_token_id))
        return processors

    def _to_tensor(self, values: list[int]) -> Int[Tensor, "B"]:
        return torch.tensor(values, device=self.device)
