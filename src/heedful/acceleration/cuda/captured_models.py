"""Models that decode with CUDA graphs.

Invariant: outputs, scores and weights equal the plain model's, up to rounding.
"""

from collections.abc import Callable
from typing import Any

import torch

from heedful.acceleration import tuning
from heedful.acceleration.cuda.beam_search import DeviceBeamSearch, runs_on_device
from heedful.acceleration.cuda.greedy_search import GreedySearch
from heedful.acceleration.cuda.search_graphs import (
    CapturedState,
    ChainCache,
    PlainModel,
    count_positions,
)
from heedful.acceleration.cuda.static_cache import StaticCacheDecoder
from heedful.acceleration.transformer_step import InferenceModule
from heedful.data.text.batching import SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.search import BeamSearchOptions, Hypothesis, LengthPenalty, StepOutput, Trellis
from heedful.search.beam_search import Beams
from heedful.search.logits_processors import MinLength
from heedful.shapes import Lengths, StepTokens
from heedful.tokenization.vocabulary import EOS

GRAPH_DEVICE_TYPE = "cuda"


class CapturedSteps(InferenceModule):
    """Mixin of models that decode with CUDA graphs."""

    derived = ("_chain_cache",)
    _chain_cache: ChainCache | None = None

    def initial_state(self, sources: SourceBatch) -> Any:
        """Encode sources; by the plain model if a gradient or a forward hook needs it."""
        if (cache := self._find_cache(sources)) is not None:
            return cache.initial_state(sources)
        encode: Callable[[SourceBatch], Any] = super().initial_state  # type: ignore[misc]
        return encode(sources)

    def step(self, tokens: StepTokens, state: Any) -> StepOutput[Any]:
        """Run a step of a chain, or of the plain model."""
        if isinstance(state, CapturedState):
            assert self._chain_cache is not None
            return self._chain_cache.step(tokens, state)
        step: Callable[..., StepOutput[Any]] = super().step  # type: ignore[misc]
        return step(tokens, state)

    @torch.inference_mode()
    def search(
        self,
        sources: SourceBatch,
        *,
        beam_size: int,
        max_lengths: Lengths,
        length_penalty: LengthPenalty,
        options: BeamSearchOptions | None = None,
        trellis: Trellis | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a beam search, which stays on the device where it can."""
        options, hypotheses = options or BeamSearchOptions(), None
        is_short = len(max_lengths) and int(max_lengths.max()) < tuning.MAX_CAPTURED_STEPS
        if is_short and runs_on_device(options):
            hypotheses = self._search_on_device(
                sources,
                beam_size=beam_size,
                max_lengths=max_lengths,
                length_penalty=length_penalty,
                options=options,
                trellis=trellis,
            )
        if hypotheses is not None:
            return hypotheses
        plain: Callable[..., list[list[Hypothesis]]] = super().search  # type: ignore[misc]
        return plain(
            sources,
            beam_size=beam_size,
            max_lengths=max_lengths,
            length_penalty=length_penalty,
            options=options,
            trellis=trellis,
        )

    def _search_on_device(
        self,
        sources: SourceBatch,
        *,
        beam_size: int,
        max_lengths: Lengths,
        length_penalty: LengthPenalty,
        options: BeamSearchOptions,
        trellis: Trellis | None,
    ) -> list[list[Hypothesis]] | None:
        """Return the hypotheses; None if plain steps are needed."""
        cache = self._find_cache(sources)
        is_greedy = beam_size == 1 and trellis is None and options.coverage_penalty is None
        if cache is None or not cache.uses_chain(sources) or (beam_size == 1 and not is_greedy):
            return None
        host_lengths = max_lengths.cpu()  # before the device is busy
        min_lengths: Lengths | None = None
        for processor in options.processors:
            assert isinstance(processor, MinLength), processor
            processor.check_lengths(host_lengths.tolist())
            min_lengths = processor.lengths
        beams = (
            None
            if is_greedy
            else Beams(
                trellis or Trellis(),
                options,
                host_lengths,
                eos=EOS,
                beam_size=beam_size,
                length_penalty=length_penalty,
                source_lengths=sources.lengths,
            )
        )
        if (chain := cache.encode(sources)) is None:
            return None
        try:
            if beams is None:
                if 1 not in chain.searches:
                    chain.searches[1] = GreedySearch(chain)
                greedy: GreedySearch = chain.searches[1]
                greedy.run(max_lengths, min_lengths, int(host_lengths.max()) + 1)
                return greedy.hypotheses(sources, length_penalty)
            if beam_size not in chain.searches:
                chain.searches[beam_size] = DeviceBeamSearch(chain, beam_size)
            search: DeviceBeamSearch = chain.searches[beam_size]
            return search.run(beams, min_lengths, count_positions(sources))
        except RuntimeError as error:
            cache.give_up(error, sources.tokens.device)
            return None

    def _find_cache(self, sources: SourceBatch) -> ChainCache | None:
        """Return the chains; None if a gradient or a forward hook needs plain steps."""
        device_type = sources.tokens.device.type
        if device_type != GRAPH_DEVICE_TYPE or not self.is_inference(device_type):
            return None
        if self._chain_cache is None:
            decoder = getattr(self, "decoder", None)
            plain = PlainModel(
                super().initial_state,  # type: ignore[misc]
                super().step,  # type: ignore[misc]
                decoder if isinstance(decoder, StaticCacheDecoder) else None,
            )
            self._chain_cache = ChainCache(plain)
        return self._chain_cache


class CapturedEncoderDecoderModel(CapturedSteps, EncoderDecoderModel):
    """An encoder-decoder that decodes with CUDA graphs."""


class CapturedPrefixLanguageModel(CapturedSteps, PrefixLanguageModel):
    """A prefix language model that decodes with CUDA graphs."""
