"""Decoding steps as CUDA graphs.

The steps of a search form a chain: each reads the state that the one before it has written, so that
caches grow from step to step as they do without graphs. There is one chain per batch shape, which
is captured when the shape occurs for the second time, or at once after a few batches. Invariants:
captured steps equal plain ones up to rounding; only the latest state of a search can be continued.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from heedful.acceleration import tuning
from heedful.acceleration.cuda.graphs import StaticFunction, leave_capture
from heedful.acceleration.cuda.static_cache import StaticCacheDecoder, StaticCacheState
from heedful.data.text.batching import SourceBatch
from heedful.pytree import select_rows
from heedful.search import StepOutput
from heedful.shapes import Float, Int, StepTokens


class PlainModel(NamedTuple):
    """The plain methods of a model."""

    initial_state: Callable[[SourceBatch], Any]
    step: Callable[[StepTokens, Any], StepOutput[Any]]
    decoder: StaticCacheDecoder | None = None

    def compute_logits(
        self, tokens: StepTokens, state: Any
    ) -> tuple[Float[Tensor, "R N"], Any, Float[Tensor, "R S"]]:
        """Run a step; return logits or log-probabilities, the next state and weights."""
        if self.decoder is not None and isinstance(state, StaticCacheState):
            return self.decoder.compute_logits(tokens, state)
        output = self.step(tokens, state)
        return output.log_probs, output.state, output.weights


class InputShape(NamedTuple):
    """Shape and type of the inputs of a chain."""

    sizes: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, sources: SourceBatch) -> "InputShape":
        """Return the shape that a batch is padded to: of texts rows and tokens, of images rows."""
        num_rows, *sizes = sources.tokens.shape
        if len(sizes) == 1:
            sizes = [round_up(sizes[0], 4)]
        return cls((round_up(num_rows), *sizes), sources.tokens.dtype)


def count_positions(sources: SourceBatch) -> int | None:
    """Return the source positions that weights have; None for images, where it is all of them."""
    return None if sources.tokens.dim() > 3 else sources.tokens.size(1)


class SearchSession:
    """One search that uses a chain; a chain has one at a time."""

    def __init__(self, source_length: int | None) -> None:
        self.source_length = source_length
        self.depth = 0


class SearchNode:
    """State of a search after a number of steps, in static tensors."""

    state: Any = None

    def __init__(self, model: PlainModel, sources: SourceBatch, pool: Any, depth: int) -> None:
        self.model, self.sources, self.pool, self.depth = model, sources, pool, depth
        self.num_rows = len(sources.lengths)
        self.children: dict[int, DecodingStep] = {}

    def child(self, num_rows: int) -> "DecodingStep | None":
        """Return the step that continues this many rows; None if it has to be a plain one.

        The first two steps may have more rows than the one before: samples, or a beam.
        """
        if num_rows <= self.num_rows:
            num_rows = self.num_rows  # those of sentences that have ended are idle
        elif self.depth > 1:
            return None
        num_rows = round_up(num_rows)
        if num_rows not in self.children:
            if self.depth >= tuning.MAX_CAPTURED_STEPS:
                return None
            self.children[num_rows] = DecodingStep(self, num_rows)
        return self.children[num_rows]


class EncodedSources(SearchNode):
    """The initial state of a batch of sources."""

    def __init__(self, model: PlainModel, shape: InputShape, device: torch.device) -> None:
        tokens = torch.zeros(shape.sizes, dtype=shape.dtype, device=device)
        lengths = torch.ones(len(tokens), dtype=torch.long, device=device)
        sources = SourceBatch(tokens, lengths)
        pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        super().__init__(model, sources, pool, depth=0)
        self.session: Callable[[], SearchSession | None] = lambda: None
        """Returns the search that uses the chain, if there is one."""
        self.searches: dict[int, Any] = {}
        """Searches on the device, by beam size."""
        self._function = StaticFunction(lambda: model.initial_state(sources))
        if device.type == "cuda":
            self.state = self._function.capture(pool)

    def run(self, sources: SourceBatch) -> None:
        """Encode sources; rows beyond them have one token of padding."""
        tokens, lengths = self.sources
        tokens.zero_()
        tokens[tuple(map(slice, sources.tokens.shape))] = sources.tokens
        lengths.fill_(1)
        lengths[: len(sources.lengths)] = sources.lengths
        result = self._function.run()
        self.state = self.state if result is None else result


class DecodingStep(SearchNode):
    """A step of a search, which continues rows of the state before it."""

    weights: Tensor

    def __init__(self, previous: SearchNode, num_rows: int) -> None:
        super().__init__(previous.model, previous.sources, previous.pool, previous.depth + 1)
        self.num_rows = num_rows
        self.tokens = previous.sources.lengths.new_zeros(num_rows)
        self.rows = torch.zeros_like(self.tokens)
        self.log_probs: Tensor | None = getattr(previous, "log_probs", None)
        self._function = StaticFunction(lambda: self._compute(previous.state))
        if self.tokens.device.type == "cuda":
            self.state, self.weights = self._function.capture(self.pool)
            if previous.depth > 1:
                previous.state = None  # later steps may use its memory

    def _compute(self, previous_state: Any) -> tuple[Any, Tensor]:
        output = self.model.step(self.tokens, select_rows(previous_state, self.rows))
        if self.log_probs is None or self.log_probs.shape != output.log_probs.shape:
            self.log_probs = torch.empty_like(output.log_probs)
        self.log_probs.copy_(output.log_probs)  # the steps of a search share this memory
        return output.state, output.weights

    def run(self, tokens: StepTokens, rows: Int[Tensor, "R"]) -> None:
        """Continue these rows with these tokens; further rows repeat the first."""
        self.tokens[: len(tokens)] = tokens
        self.rows.zero_()
        self.rows[: len(rows)] = rows
        if (result := self._function.run()) is not None:
            self.state, self.weights = result


class CapturedState(NamedTuple):
    """Rows of the state after a step of a chain."""

    session: SearchSession
    node: SearchNode
    rows: Int[Tensor, "R"]

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> "CapturedState":
        """Select rows; the next step copies them."""
        return self._replace(rows=transform(self.rows))


class ChainCache:
    """LRU cache of the chains of a model, by batch shape."""

    def __init__(self, model: PlainModel) -> None:
        self.model = model
        self.plain_reason = ""
        """Why steps cannot be captured."""
        self._counts: Counter[InputShape] = Counter()
        self._chains: OrderedDict[InputShape, EncodedSources] = OrderedDict()

    def uses_chain(self, sources: SourceBatch) -> bool:
        """Whether a batch is decoded by a chain: if its shape has occurred, or after a few batches.

        A single text is decoded sooner without one.
        """
        has_occurred = InputShape.of(sources) in self._counts
        return has_occurred or self._counts.total() >= tuning.NUM_PLAIN_BATCHES

    def encode(self, sources: SourceBatch) -> EncodedSources | None:
        """Encode sources by a chain; None where there is none yet, or it is in use.

        There may be no memory for one.
        """
        key, uses_chain = InputShape.of(sources), self.uses_chain(sources)
        self._counts[key] += 1
        chain = self._chains.pop(key, None)
        if chain is not None and chain.session() is not None:
            self._chains[key] = chain
            return None
        if self.plain_reason or not uses_chain:
            return None
        if chain is None and not _has_free_memory(sources.tokens.device):
            return None
        try:
            chain = chain or EncodedSources(self.model, key, sources.tokens.device)
        except RuntimeError as error:
            self.give_up(error, sources.tokens.device)
            return None
        self._chains[key] = chain  # as the latest
        if len(self._chains) > tuning.MAX_CAPTURED_SHAPES:
            self._chains.popitem(last=False)
        chain.run(sources)
        return chain

    def initial_state(self, sources: SourceBatch) -> Any:
        """Encode sources by a chain, or by the plain model."""
        chain = self.encode(sources)
        if chain is None:
            return self.model.initial_state(sources)
        session = SearchSession(count_positions(sources))
        chain.session = ref(session)
        rows = torch.arange(len(sources.lengths), device=sources.lengths.device)
        return CapturedState(session, chain, rows)

    def step(self, tokens: StepTokens, state: CapturedState) -> StepOutput[Any]:
        """Run the next step of a chain, or a plain one beyond its end."""
        session, node, rows = state
        assert session.depth == node.depth, "only the latest state can be continued"
        try:
            following = node.child(len(tokens))
        except RuntimeError as error:
            self.give_up(error, tokens.device)
            following = None
        if following is None:
            return self.model.step(tokens, select_rows(node.state, rows))
        following.run(tokens, rows)
        session.depth = following.depth
        assert following.log_probs is not None
        rows = torch.arange(len(tokens), device=tokens.device)
        # A copy of the weights: a search reads them at its end.
        weights = following.weights[: len(tokens), : session.source_length].clone()
        next_state = CapturedState(session, following, rows)
        return StepOutput(following.log_probs[: len(tokens)], next_state, weights)

    def give_up(self, error: RuntimeError, device: torch.device) -> None:
        """Decode with plain steps from now on."""
        self.plain_reason = str(error).split("\n", 1)[0]
        self._chains.clear()
        leave_capture(device)


def _has_free_memory(device: torch.device) -> bool:
    """Whether a GPU has memory for another chain."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + cached >= tuning.MIN_FREE_MEMORY * total


def round_up(count: int, step: int = 1) -> int:
    """Round up to one of a few numbers, at most a quarter more: multiples of a power of two."""
    step = max(step, 2 ** (count.bit_length() - 3) if count >= 8 else 1)
    return -(-count // step) * step
