"""Compressed attention: every place sees all that came before, but in fewer, wider pieces.

Neighbouring places are pressed into one by a convolution that does not overlap, and only what is
pressed can be looked at. Law: a place sees a piece when all of it lies at or before the place,
so nothing of the future leaks; a place with no whole piece before it finds nothing, and gets
zeros, or the bias of its heads where they have one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.attend import Attended, Attends
from heedful.layers.fused.in_chunks import in_chunks
from heedful.layers.self_attention import (
    Cache,
    Held,
    SelfAttended,
    SelfAttention,
    shown,
    write,
)
from heedful.shapes import Float, Int

CHUNK = 512
"""Queries that are asked together: the mask of all of them would be as large as the square of a
long sequence."""


class CompressedSelfAttention(SelfAttention):
    """attend(q, press_k(x), press_v(x)), both convolutions as wide as their stride.

    (Liu et al. 2018, section 4.2.3: kernel and stride 3.) The paper presses keys and values after
    they were projected, here before: two linear maps in a row, and the same maps can be learned.
    """

    def __init__(self, attention: Attends, *, size: int, stride: int, chunk: int = CHUNK) -> None:
        super().__init__(attention)
        self.stride = stride
        self.chunk = chunk
        self.press_keys = nn.Conv1d(size, size, stride, stride=stride)
        self.press_values = nn.Conv1d(size, size, stride, stride=stride)

    def begin(self, inputs: Float[Tensor, "B T D"]) -> Cache:
        """Nothing has been read; the places before the first are zeros."""
        rows, size = len(inputs), inputs.size(-1)
        return Cache(None, recent=inputs.new_zeros(rows, self.stride - 1, size))

    def both_ways(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at all pieces; the last may be filled up."""
        numbers = torch.arange(inputs.size(1), device=inputs.device)
        real = (numbers < lengths.unsqueeze(1)).unsqueeze(-1)
        pieces = self._press(inputs * real)
        begins = torch.arange(pieces.values.size(-2), device=inputs.device) * self.stride
        memory = shown(pieces, (begins < lengths.unsqueeze(1)).unsqueeze(1))
        return self.attention(inputs, memory, need_weights=False).context

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: Cache,
        first: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttended:
        """Let places look back at pieces; the weight of a piece is that of its places, evenly."""
        assert cache.recent is not None
        known = torch.cat([cache.recent, inputs], dim=1)  # from place first - stride + 1 on
        held = self._extend(known, cache.held, first)
        places = first.unsqueeze(1) + torch.arange(inputs.size(1), device=inputs.device)
        outputs, weights = self._look(inputs, held, places, need_weights)
        last = lengths.unsqueeze(1) + torch.arange(self.stride - 1, device=lengths.device)
        recent = known.gather(1, last.unsqueeze(-1).expand(-1, -1, known.size(-1)))
        spread = None if weights is None else self._spread(weights)
        return SelfAttended(outputs, spread, Cache(held, recent=recent))

    def _extend(
        self, known: Float[Tensor, "B R D"], held: Held | None, first: Int[Tensor, "B"]
    ) -> Held:
        """Press what has become whole, and what has not: that is pressed again when it is."""
        if held is None:
            return self._press(known[:, self.stride - 1 :])
        num_pieces = (known.size(1) - 1) // self.stride + 1  # that the new places can lie in
        numbers = first.unsqueeze(1) // self.stride + torch.arange(num_pieces, device=first.device)
        begins = numbers * self.stride - first.unsqueeze(1) + self.stride - 1  # (B, pieces)
        within = begins.unsqueeze(-1) + torch.arange(self.stride, device=first.device)
        index = within.flatten(1).clamp(max=known.size(1) - 1).unsqueeze(-1)
        pieces = self._press(known.gather(1, index.expand(-1, -1, known.size(-1))))
        return write(held, pieces, numbers)

    def _press(self, inputs: Float[Tensor, "B R D"]) -> Held:
        """Press places into pieces, the last of them filled up with zeros."""
        filled = pad(inputs, (0, 0, 0, -inputs.size(1) % self.stride)).transpose(1, 2)
        keys, values = (
            press(filled).transpose(1, 2) for press in (self.press_keys, self.press_values)
        )
        everything = torch.ones(1, 1, keys.size(1), dtype=torch.bool, device=inputs.device)
        memory = self.attention.remember(values, everything, keys=keys)
        return Held(memory.values, memory.keys)

    def _spread(self, weights: Float[Tensor, "B T S"]) -> Float[Tensor, "B T R"]:
        return weights.repeat_interleave(self.stride, dim=-1) / self.stride

    def _look(
        self,
        inputs: Float[Tensor, "B T D"],
        held: Held,
        places: Int[Tensor, "B T"],
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"] | None]:
        ends = torch.arange(1, held.values.size(-2) + 1, device=places.device) * self.stride - 1

        def ask(queries: Tensor, own: Tensor, held: Held) -> Attended:
            memory = shown(held, ends <= own.unsqueeze(-1))
            return self.attention(queries, memory, need_weights=need_weights)

        if need_weights or inputs.size(1) <= self.chunk:
            found = ask(inputs, places, held)
            return found.context, found.weights
        contexts = in_chunks(
            lambda *asked: ask(*asked).context,
            inputs,
            places,
            held,
            weights=list(self.attention.parameters()),
            chunk=self.chunk,
        )
        return contexts, None
