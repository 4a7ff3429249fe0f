"""Transformer layers: look at one another, look at a source, think; again and again.

A stack of them reads whole sequences both ways (an encoder), or from left to right with a cache
(a reader, and, where there is a source to look at, a decoder).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from heedful.attention.alignments import Aligned
from heedful.attention.attend import Attends, Memory
from heedful.attention.past import Past
from heedful.layers.encoded import NO_PENALTIES, add_up
from heedful.layers.feedforward import PlaceWise
from heedful.layers.fused.one_place import PackedLayers, pack_layers
from heedful.layers.fused.packing import made_of, may_pack
from heedful.layers.fused.real_places import read_real_places, remember_real_places
from heedful.layers.fused.usual import Sublayers, are_usual, listeners
from heedful.layers.residual import Residual
from heedful.layers.self_attention import Cache, SelfAttention
from heedful.nested import map_tensors
from heedful.shapes import Bool, Float, Int


class Sought(NamedTuple):
    """What places found in a source, and where."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None
    aligned: Aligned | None
    past: Past | None


class SourceAttention(nn.Module):
    """The sublayer that looks at a source."""

    def __init__(self, attention: Attends, residual: Residual) -> None:
        super().__init__()
        self.attention = attention
        self.residual = residual

    def begin(self, memory: Memory) -> Past | None:
        """Nothing has been asked of this source; None where that makes no difference."""
        return self.attention.begin(memory) if self.attention.knows_places else None

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        memory: Memory,
        past: Past | None,
        *,
        need_weights: bool,
    ) -> Sought:
        """Look at the source from every place."""
        queries = self.residual.enter(inputs)
        wanted = need_weights or self.attention.is_penalised
        found = self.attention(queries, memory, past, need_weights=wanted)
        outputs = self.residual.leave(inputs, found.context)
        return Sought(outputs, found.weights, found.aligned, found.past)


class LayerState(NamedTuple):
    """What one layer carries from one place to the next."""

    cache: Cache
    past: Past | None = None  # what has been asked of the source, where that counts


class Layered(NamedTuple):
    """What one layer made of places."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # where its last attention looked
    aligned: Aligned | None  # all that is known of where it looked in a source
    penalties: Mapping[str, Float[Tensor, ""]]
    state: LayerState


class TransformerLayer(nn.Module):
    """Self-attention, attention to a source if there is one, and a feed-forward network."""

    def __init__(
        self,
        self_attention: SelfAttention,
        self_residual: Residual,
        feedforward: PlaceWise,
        residual: Residual,
        source_attention: SourceAttention | None = None,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_residual = self_residual
        self.source_attention = source_attention
        self.feedforward = feedforward
        self.residual = residual

    @property
    def sublayers(self) -> Sublayers:
        """What this layer is made of."""
        source = self.source_attention
        return Sublayers(
            self.self_attention,
            self.self_residual,
            (source.attention, source.residual) if source else None,
            self.feedforward,
            self.residual,
        )

    def both_ways(
        self,
        inputs: Float[Tensor, "B S D"],
        lengths: Int[Tensor, "B"],
        mask: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B S D"], Mapping[str, Float[Tensor, ""]]]:
        """Read whole sequences; give also what is added to the loss."""
        heard = self.self_residual.enter(inputs)
        found = self.self_attention.both_ways(heard, lengths)
        return self._think(self.self_residual.leave(inputs, found), mask)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        state: LayerState,
        places: Places,
        source: Memory | None = None,
        *,
        need_weights: bool = False,
    ) -> Layered:
        """Read on from a state."""
        heard = self.self_residual.enter(inputs)
        looks_within = need_weights and source is None
        found = self.self_attention(
            heard, state.cache, places.first, places.lengths, need_weights=looks_within
        )
        outputs = self.self_residual.leave(inputs, found.outputs)
        weights, aligned, past = found.weights, None, None
        if self.source_attention is not None and source is not None:
            outputs, weights, aligned, past = self.source_attention(
                outputs, source, state.past, need_weights=need_weights
            )
        outputs, penalties = self._think(outputs, places.mask)
        return Layered(outputs, weights, aligned, penalties, LayerState(found.cache, past))

    def _think(
        self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], Mapping[str, Float[Tensor, ""]]]:
        fed = self.feedforward(self.residual.enter(inputs), mask)
        return self.residual.leave(inputs, fed.outputs), fed.penalties


class Places(NamedTuple):
    """Which places of their sequences the columns of a batch are."""

    first: Int[Tensor, "B"]  # the number of each row's first
    lengths: Int[Tensor, "B"]  # how many of a row's are there
    mask: Bool[Tensor, "B T"]  # which of them are

    @classmethod
    def of(
        cls, inputs: Float[Tensor, "B T D"], first: Int[Tensor, "B"], lengths: Int[Tensor, "B"]
    ) -> Places:
        """Say which columns of these inputs are there."""
        columns = torch.arange(inputs.size(1), device=inputs.device)
        return cls(first, lengths, columns < lengths.unsqueeze(1))


class StackState(NamedTuple):
    """What a stack carries from one place to the next."""

    layers: tuple[LayerState, ...]
    first: Int[Tensor, "B"]  # the number of the next place


class Stacked(NamedTuple):
    """What a stack made of places."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # where the top layer looked last
    looks: tuple[tuple[Attends, Aligned], ...]  # where was looked in a source, as far as made
    penalties: Mapping[str, Float[Tensor, ""]]
    state: StackState


class TransformerStack(nn.Module):
    """Layers on top of one another; where they are normalised before, the sum is at the end."""

    def __init__(self, layers: Sequence[TransformerLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    @property
    def _layers(self) -> Iterable[TransformerLayer]:
        return cast(Iterable[TransformerLayer], self.layers)

    @property
    def has_history(self) -> bool:
        """Whether where a place looks within depends on where those before it looked."""
        return any(layer.self_attention.attention.has_history for layer in self._layers)

    def remember(
        self,
        states: Float[Tensor, "B S V"],
        mask: Bool[Tensor, "B 1 S"],
        keys: Float[Tensor, "B S V"] | None = None,
    ) -> tuple[Memory, ...]:
        """Make a source ready to be looked at, by each layer."""
        if keys is None and self._may_leave_out_padding(states):
            return remember_real_places(self._sublayers, states, mask.squeeze(1))
        sublayers = [layer.source_attention for layer in self._layers]
        found = tuple(
            each.attention.remember(states, mask, keys=keys) for each in sublayers if each
        )
        # Products would copy what heads see, which lies apart, again at every step.
        return found if self.training else map_tensors(Tensor.contiguous, found)

    def begin(self, inputs: Float[Tensor, "B T D"], sources: Sequence[Memory] = ()) -> StackState:
        """Make the state of having read nothing, for as many rows as these."""
        states = list[LayerState]()
        for number, layer in enumerate(self._layers):
            sought, cache = layer.source_attention, layer.self_attention.begin(inputs)
            past = sought.begin(sources[number]) if sought and sources else None
            states.append(LayerState(cache, past))
        none_read = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        return StackState(tuple(states), none_read)

    def both_ways(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B S D"], Mapping[str, Float[Tensor, ""]]]:
        """Read whole sequences; give also what is added to the loss."""
        mask = Places.of(inputs, torch.zeros_like(lengths), lengths).mask
        if self._may_leave_out_padding(inputs):
            return self.finish(read_real_places(self._sublayers, inputs, mask)), NO_PENALTIES
        penalties = list[Mapping[str, Tensor]]()
        for layer in self._layers:
            inputs, found = layer.both_ways(inputs, lengths, mask)
            penalties.append(found)
        return self.finish(inputs), add_up(*penalties)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        lengths: Int[Tensor, "B"],
        state: StackState,
        sources: Sequence[Memory] = (),
        *,
        need_weights: bool = False,
    ) -> Stacked:
        """Read on from a state, with the top layer's weights where they are needed."""
        packed = self.packed(inputs) if inputs.size(1) == 1 else None
        if packed is not None and _goes_on_everywhere(state):
            held = [layer.cache.held for layer in state.layers]
            read = packed.read(inputs.squeeze(1), held, sources, need_weights=need_weights)
            kept = tuple(LayerState(Cache(each)) for each in read.held)
            after = StackState(kept, state.first + lengths)
            return Stacked(self.finish(read.outputs), read.weights, (), {}, after)
        places = Places.of(inputs, state.first, lengths)
        made, looks = list[Layered](), list[tuple[Attends, Aligned]]()
        for number, layer in enumerate(self._layers):
            made.append(
                layer(
                    made[-1].outputs if made else inputs,
                    state.layers[number],
                    places,
                    sources[number] if sources else None,
                    need_weights=need_weights and number == len(self.layers) - 1,
                )
            )
            if layer.source_attention is not None and made[-1].aligned is not None:
                looks.append((layer.source_attention.attention, made[-1].aligned))
        return Stacked(
            self.finish(made[-1].outputs),
            made[-1].weights,
            tuple(looks),
            add_up(*(each.penalties for each in made)),
            StackState(tuple(each.state for each in made), state.first + lengths),
        )

    def _may_leave_out_padding(self, inputs: Float[Tensor, "B S D"]) -> bool:
        """Whether nothing is to be learned from it; a GPU would wait to be told the real places."""
        is_read = not torch.is_grad_enabled() and not self.training
        layers = self._sublayers
        return (
            is_read
            and inputs.device.type == "cpu"
            and are_usual(layers)
            and not any(listeners(layers))
        )

    def packed(self, inputs: Tensor) -> PackedLayers | None:
        """The layers as they read one place of every row, where they have such a form."""
        if self.training or not may_pack(inputs):
            return None
        layers = made_of(self, lambda: pack_layers(self._sublayers))
        return None if layers is None or layers.are_heard else layers

    @property
    def _sublayers(self) -> list[Sublayers]:
        return [layer.sublayers for layer in self._layers]

    def finish(self, outputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """What is left to do on top of the layers."""
        return outputs if self.norm is None else self.norm(outputs)


def _goes_on_everywhere(state: StackState) -> bool:
    """Whether the next place of each row is right behind what all rows hold."""
    held = state.layers[0].cache.held
    num_held = 0 if held is None else held.values.size(-2)
    return bool((state.first == num_held).all())
