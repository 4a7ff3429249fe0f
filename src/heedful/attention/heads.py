"""Heads: how does one question look in several places at once?

Heads are leading dimensions: each asks its own question, (*B, H, T, Q), of its own part of the
memory, so any score, alignment and readout serves them. Law: one head whose projections change
nothing is attention without heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from heedful.attention.alignments import Aligned, Alignment, Looked
from heedful.attention.attend import Attended, Attends, Attention, Memory, refuse_nothing
from heedful.attention.past import Past
from heedful.attention.penalties import Penalty
from heedful.attention.readouts import Readout
from heedful.attention.scores import Prepared, Score
from heedful.nested import map_tensors
from heedful.shapes import Bool, Float, Int


class MultiHead(Attends):
    """W_o [head_1; head_2; ...], head_i = attend(W_q,i q, W_k,i m, W_v,i m).

    (Vaswani et al. 2017, section 3.2.2.) With fewer groups than heads, neighbouring heads share
    the keys and values of one group (Ainslie et al. 2023); with a single group all do (Shazeer
    2019). A memory holds those of the groups: they are spread over the heads when asked. What the
    alignment and the readout learn is the same for every head.
    """

    def __init__(
        self,
        inner: Attention,
        *,
        query_size: int,
        memory_size: int,
        num_heads: int,
        head_size: int,
        num_groups: int | None = None,
        output_size: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        num_groups = num_groups or num_heads
        assert num_heads % num_groups == 0, (num_heads, num_groups)
        assert not inner.read.is_per_position, "a context for each place cannot be put together"
        self.inner = inner
        self.kind = inner.kind
        self.num_heads = num_heads
        self.num_groups = num_groups
        self.query_projection = nn.Linear(query_size, num_heads * head_size, bias=bias)
        self.key_projection = nn.Linear(memory_size, num_groups * head_size, bias=bias)
        self.value_projection = nn.Linear(memory_size, num_groups * head_size, bias=bias)
        self.output_size = output_size or memory_size
        self.output_projection = nn.Linear(num_heads * head_size, self.output_size, bias=bias)

    @property
    def score(self) -> Score:
        """How strongly each head's query calls for its keys."""
        return self.inner.score

    @property
    def align(self) -> Alignment:
        """Where each head's attention goes."""
        return self.inner.align

    @property
    def read(self) -> Readout:
        """What each head takes."""
        return self.inner.read

    def remember(
        self,
        values: Float[Tensor, "*B S V"],
        mask: Bool[Tensor, "*#B #T S"],
        *,
        keys: Float[Tensor, "*B S V"] | None = None,
        first: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Make a source ready to be attended to, once for each group."""
        refuse_nothing(values)
        taken = _part(self.value_projection(values), self.num_groups)  # (*B, G, S, V)
        called = self.key_projection(values if keys is None else keys)
        everywhere = mask.expand(*values.shape[:-2], -1, -1).unsqueeze(-3)  # (*B, 1, T or 1, S)
        prepared = self.inner.prepare(_part(called, self.num_groups), first)
        return Memory(taken, prepared, everywhere)

    @property
    def is_penalised(self) -> bool:
        """Whether anything is added to the loss for where any head's attention goes."""
        return self.inner.is_penalised

    def begin(self, memory: Memory) -> Past:
        """Nothing has been asked of this memory, by any head."""
        return self.inner.begin(self._spread(memory))

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        memory: Memory,
        past: Past | None = None,
        *,
        need_weights: bool = True,
    ) -> Attended:
        """Look into the memory with every head, once for every query."""
        own = _part(self.query_projection(queries), self.num_heads)  # (*B, H, T, Q)
        if past is None and not need_weights:
            context = self.inner.context_alone(own, memory)
            if context is not None:
                return Attended(self._together(context), None, None, None)
        attended = self.inner(own, self._spread(memory), past)
        weights = attended.weights.mean(dim=-3)  # (*B, T, S)
        return attended._replace(context=self._together(attended.context), weights=weights)

    def weigh(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None = None
    ) -> Aligned:
        """Say where each head looks for each query, without taking anything."""
        own = _part(self.query_projection(queries), self.num_heads)
        return self.inner.weigh(own, self._spread(memory), past)

    def penalise(self, looked: Looked) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went.

        What an alignment needs to learn is added up over the heads: each chose for itself, so the
        log-probability of what all chose is the sum of theirs. A penalty is the mean over the
        heads, so that its weight means the same for any number of them.
        """
        shared = Looked(
            looked.aligned,
            self._for_each(looked.log_likelihoods),
            self._for_each(looked.real),
            self._for_each(looked.visible),
        )
        penalties = cast(Iterable[Penalty], self.inner.penalties)
        means = {each.name: each(shared) / self.num_heads for each in penalties}
        return self.inner.align.penalise(shared) | means

    def _spread(self, memory: Memory) -> Memory:
        """Give each head the keys and values of its group."""
        axis, times = memory.values.dim() - 3, self.num_heads // self.num_groups

        def spread(each: Tensor) -> Tensor:
            # A score of each head's own has prepared keys for each head already.
            is_spread = times == 1 or each.size(axis) == self.num_heads
            return each if is_spread else each.repeat_interleave(times, dim=axis)

        return Memory(spread(memory.values), map_tensors(spread, memory.keys), memory.mask)

    def _together(self, context: Float[Tensor, "*B H T V"]) -> Float[Tensor, "*B T D"]:
        return self.output_projection(context.transpose(-3, -2).flatten(-2))

    def _for_each(self, rows: Tensor) -> Tensor:
        """Say to every head what is the same for all: (*B, N) becomes (*B, H, N)."""
        return rows.unsqueeze(-2).expand(*rows.shape[:-1], self.num_heads, -1)


class HeadwiseScore(Score):
    """One score for each head, with parameters of its own: heads stand before the queries."""

    def __init__(self, heads: Sequence[Score]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)

    @property
    def looks_back(self) -> bool:
        """Whether any head's score does."""
        return any(head.looks_back for head in self.heads)

    @property
    def knows_places(self) -> bool:
        """Whether any head's score does."""
        return any(head.knows_places for head in self.heads)

    def prepare(self, keys: Float[Tensor, "*B G S K"]) -> Prepared:
        """Let each head prepare the keys of its group: (*B, H, S, A), nested as one head's are."""
        return self._prepare(keys, lambda head, own: head.prepare(own))

    def prepare_from(self, first: Int[Tensor, "B"], keys: Float[Tensor, "B G S K"]) -> Prepared:
        """Let each head prepare keys that stand further on."""
        return self._prepare(keys, lambda head, own: head.prepare_from(first, own))

    def _prepare(self, keys: Tensor, prepare: Callable[[Score, Tensor], Prepared]) -> Prepared:
        axis = keys.dim() - 3
        heads = cast(Sequence[Score], self.heads)
        sharing = len(heads) // keys.size(axis)
        parts = [prepare(head, keys.select(axis, n // sharing)) for n, head in enumerate(heads)]
        return _stack(parts, axis)

    def forward(
        self, queries: Float[Tensor, "*B H T Q"], prepared: Prepared, past: Past | None = None
    ) -> Float[Tensor, "*#B H T S"]:
        """Let each head score its queries, with what it has asked before."""
        axis = queries.dim() - 3
        scores = []
        for number, head in enumerate(self.heads):
            own = map_tensors(_selecting(axis, number), (queries, prepared, past))
            scores.append(head(*own))
        return torch.stack(torch.broadcast_tensors(*scores), dim=-3)


def headwise(make: Callable[[], Score], num_heads: int | None) -> Score:
    """Make a score for so many heads: one for all of them if it has nothing to learn."""
    first = make()
    if num_heads is None or not any(True for _ in first.parameters()):
        return first
    return HeadwiseScore([first, *(make() for _ in range(num_heads - 1))])


def _part(inputs: Float[Tensor, "*B N D"], num_heads: int) -> Float[Tensor, "*B H N K"]:
    return inputs.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def _selecting(axis: int, number: int) -> Callable[[Tensor], Tensor]:
    return lambda each: each.select(axis, number)


def _stack(parts: Sequence[Any], axis: int) -> Any:
    """Stack nested values of one form, tensor by tensor."""
    if isinstance(parts[0], Tensor):
        return torch.stack(list(parts), dim=axis)
    return tuple(_stack(each, axis) for each in zip(*parts, strict=True))
