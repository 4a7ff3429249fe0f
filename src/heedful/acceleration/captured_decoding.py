"""Models that decode with CUDA graphs, and greedy search that stays on the device.

Invariant: outputs, scores and weights are those of the plain model, up to rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.acceleration import tuning
from heedful.acceleration.captured_beam import DeviceBeamSearch, runs_on_device
from heedful.acceleration.cuda_graphs import StaticFunction
from heedful.acceleration.device_search import choose_tokens
from heedful.acceleration.search_graphs import (
    CapturedState,
    ChainCache,
    EncodedSources,
    PlainModel,
    SearchNode,
)
from heedful.acceleration.static_cache import StaticCacheDecoder
from heedful.data.batching import SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.search import (
    BeamSearchOptions,
    Hypothesis,
    LengthPenalty,
    StepOutput,
    Trellis,
)
from heedful.search.beam_search import Beams
from heedful.search.logits_processors import MinLength
from heedful.shapes import Lengths, StepTokens
from heedful.tokenization.vocabulary import BOS, EOS

GRAPH_DEVICE_TYPE = "cuda"


class GreedyStep(SearchNode):
    """A step of greedy search, whose next token stays on the device."""

    def __init__(self, search: "GreedySearch", previous: Any) -> None:
        super().__init__(previous.model, previous.sources, previous.pool, previous.depth + 1)
        self.tokens = self.log_probs = self.weights = self.is_finished = search.bos
        self.all_finished: Tensor | None = None
        self._search, self._previous = search, previous
        self._function = StaticFunction(self._compute)
        if search.bos.device.type == "cuda":
            self._assign(self._function.capture(self.pool))
            if previous.depth:
                previous.state = None  # later steps may use its memory

    def _compute(self) -> tuple[Any, ...]:
        search, previous, is_first = self._search, self._previous, self.depth == 1
        inputs = search.bos if is_first else previous.tokens
        logits, state, weights = self.model.compute_logits(inputs, previous.state)
        choice = choose_tokens(
            logits,
            search.min_lengths,
            search.max_lengths,
            None if is_first else previous.is_finished,
            self.depth - 1,
        )
        all_finished = choice.is_finished.all() if self.is_checked else None
        return state, weights, *choice, all_finished

    @property
    def is_checked(self) -> bool:
        """Whether the host waits for this step to see whether all sentences have ended."""
        return self.depth % tuning.STEPS_PER_CHECK == 0

    def run(self) -> None:
        """Choose the next token of each row."""
        if (result := self._function.run()) is not None:
            self._assign(result)

    def _assign(self, results: tuple[Any, ...]) -> None:
        self.state, self.weights, self.tokens, self.log_probs = results[:4]
        self.is_finished, self.all_finished = results[4:]


class GreedySearch:
    """Greedy search on the device: the host sees no token before all sentences have ended."""

    def __init__(self, sources: EncodedSources) -> None:
        self.sources = sources
        self.bos = torch.full_like(sources.sources.lengths, BOS)
        self.max_lengths = torch.zeros_like(self.bos)
        self.min_lengths = torch.zeros_like(self.bos)
        self.steps: list[GreedyStep] = []

    def run(
        self, max_lengths: Lengths, min_lengths: Lengths | None, max_steps: int
    ) -> list[GreedyStep]:
        """Return the steps in which all sentences of the encoded batch have ended."""
        num_rows = len(max_lengths)
        self.max_lengths.zero_()  # rows beyond the batch end at once
        self.max_lengths[:num_rows] = max_lengths
        self.min_lengths.zero_()
        if min_lengths is not None:
            self.min_lengths[:num_rows] = min_lengths
        for depth in range(max_steps):
            if depth == len(self.steps):
                previous = self.steps[-1] if self.steps else self.sources
                self.steps.append(GreedyStep(self, previous))
            self.steps[depth].run()
            if self.steps[depth].is_checked and bool(self.steps[depth].all_finished):
                break
        return self.steps[: depth + 1]


def collect_greedy(
    steps: Sequence[GreedyStep], sources: SourceBatch, length_penalty: LengthPenalty
) -> list[list[Hypothesis]] | None:
    """Return the hypothesis of each source; None if a probability is 0 or not a number."""
    num_rows, source_length = sources.tokens.shape
    tokens = torch.stack([step.tokens[:num_rows] for step in steps], dim=1).cpu().numpy()
    stacked = torch.stack([step.log_probs[:num_rows] for step in steps], dim=1)
    log_probs = stacked.double().cpu().numpy()
    weights = torch.stack([step.weights[:num_rows, :source_length] for step in steps], dim=1)
    attended = weights.float().cpu().numpy()
    lengths = (tokens == EOS).argmax(axis=1)
    totals = log_probs.cumsum(axis=1)[np.arange(num_rows), lengths]
    if not np.isfinite(totals).all():
        return None
    results = []
    outputs, sums = tokens.tolist(), totals.tolist()
    for row, length in enumerate(lengths.tolist()):
        hypothesis = Hypothesis(
            outputs[row][:length],
            sums[row],
            length_penalty(sums[row], length + 1),
            attended[row, :length],
            log_probs[row, : length + 1],
            attended[row, length],
        )
        results.append([hypothesis])
    return results


class CapturedSteps:
    """Mixin of models that decode with CUDA graphs."""

    _chain_cache: ChainCache | None = None
    _hooks: Sequence[Mapping[int, Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy has graphs of its own parameters, and watches its own hooks.
        cached = ("_chain_cache", "_hooks")
        return {key: value for key, value in vars(self).items() if key not in cached}

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
        if cache is None or not cache.has_seen(sources) or (beam_size == 1 and not is_greedy):
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
                greedy: GreedySearch = chain.searches.setdefault(1, GreedySearch(chain))
                steps = greedy.run(max_lengths, min_lengths, int(host_lengths.max()) + 1)
                return collect_greedy(steps, sources, length_penalty)
            search = chain.searches.setdefault(beam_size, DeviceBeamSearch(chain, beam_size))
            return search.run(beams, min_lengths, sources.tokens.size(1))
        except RuntimeError as error:
            cache.give_up(error, sources.tokens.device)
            return None

    def _find_cache(self, sources: SourceBatch) -> ChainCache | None:
        """Return the chains; None if a gradient or a forward hook needs plain steps."""
        assert isinstance(self, nn.Module)
        if self._hooks is None:
            modules = list(self.modules())
            self._hooks = [module._forward_hooks for module in modules]
            self._hooks += [module._forward_pre_hooks for module in modules]
        if (
            sources.tokens.device.type != GRAPH_DEVICE_TYPE
            or self.training
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled(GRAPH_DEVICE_TYPE)
            or any(self._hooks)
        ):
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
