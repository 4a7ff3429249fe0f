"""The attention of each layer of a model for one text.

Invariant: joined calls have a row for each query, in their order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.inspection.attention_trace import TraceRecord
from heedful.inspection.large_maps import DeferredWeights
from heedful.inspection.mechanism_overlays import Overlays, overlays_to_json, select_overlays
from heedful.models.base import Decoder
from heedful.shapes import Float

NO_WORD_ID = -1
"""Word index of a token without a word: whitespace, or EOS."""
BACKWARD = "-backward"
"""Ends the type of a layer that reads from the end."""
_DIGITS = 6  # of numbers in JSON


class TokenAxis(NamedTuple):
    """The tokens along one side of attention weights, and the words that they are parts of."""

    tokens: Sequence[str]
    words: Sequence[str]
    word_ids: Sequence[int]
    """For each token the index of its word, or `NO_WORD_ID`."""
    copy_probs: Sequence[float] | None = None
    """How much of each output token was copied, if the model copies."""
    grid: tuple[int, int] | None = None
    """Rows and columns, if the tokens are the cells of an image."""

    def followed_by(self, other: "TokenAxis") -> "TokenAxis":
        """Return the tokens of this axis and then those of another."""
        offset = len(self.words)
        ids = [word if word == NO_WORD_ID else offset + word for word in other.word_ids]
        tokens, words = [*self.tokens, *other.tokens], [*self.words, *other.words]
        return TokenAxis(tokens, words, [*self.word_ids, *ids])

    def shift_right(self, bos_label: str) -> "TokenAxis":
        """Return the decoder inputs that predict these tokens: BOS and all tokens but the last."""
        last = len(self.tokens) - 1
        inputs = TokenAxis(self.tokens[:last], self.words, self.word_ids[:last])
        return without_words([bos_label]).followed_by(inputs)

    def groups(self) -> list[tuple[str, int]]:
        """Return each word with the index of its first token."""
        starts: list[tuple[str, int]] = []
        previous = NO_WORD_ID
        for index, (token, word_id) in enumerate(zip(self.tokens, self.word_ids, strict=True)):
            if word_id == NO_WORD_ID or word_id != previous:
                label = token if word_id == NO_WORD_ID else self.words[word_id]
                starts.append((label, index))
            previous = word_id
        return starts


def without_words(tokens: Sequence[str]) -> TokenAxis:
    """Return tokens that are no parts of words, such as EOS or a label."""
    return TokenAxis(tokens, (), [NO_WORD_ID] * len(tokens))


def encoder_axis(record: TraceRecord, tokens: TokenAxis, *, bos_label: str) -> TokenAxis:
    """Return the tokens that an encoder attends to: a pretrained one may read BOS before them."""
    has_bos = record.weights.size(-1) == len(tokens.tokens) + 1
    return without_words([bos_label]).followed_by(tokens) if has_bos else tokens


class AttentionLayer(NamedTuple):
    """Attention weights of one layer for one text."""

    kind: str
    """Such as "cross", "encoder-self" or "decoder-self"."""
    queries: TokenAxis
    keys: TokenAxis
    weights: Float[np.ndarray, "H T S"]
    is_default: bool = False
    """Whether it is part of the weights that come with the prediction."""
    gates: Float[np.ndarray, "H T"] | None = None
    """How much of the context each query uses: the gate of the readout, times what a sentinel
    leaves; None without either."""
    path: str = ""
    """Of the module in the model, by which edits name it."""
    first_step: int = 0
    """The step of the first query: not 0 where the keys begin with another text."""
    max_hidden_weight: float = 0.0
    """The largest weight that a query gives to positions which the mask hides: 0 but for bugs."""
    overlays: Overlays = MappingProxyType({})
    """What the mechanism knows beside its weights, (H, T) or (H, T, S): `OVERLAY_FIELDS`."""
    deferred: DeferredWeights | None = None
    """Computes rows where there are too many weights to hold: `weights` then are views of a NaN."""

    def read_rows(self, head: int, start: int, stop: int) -> Float[np.ndarray, "R S"]:
        """Return the weights of some queries."""
        if self.deferred is not None:
            return self.deferred.read_rows(head, start, stop)
        return self.weights[head, start:stop]

    @property
    def is_causal(self) -> bool:
        """Whether no query gives weight to a position after its own."""
        if self.deferred is not None:
            return not self.read_rows(0, 0, 1)[0, self.first_step + 1 :].any()
        return not np.triu(self.weights, 1 + self.first_step).any()

    @property
    def is_intra(self) -> bool:
        """Whether a cell attends to its own past states."""
        return self.kind.removesuffix(BACKWARD).endswith("intra")

    def overlays_of(self, head: int) -> Overlays:
        """Return the overlays of one head, (T,) or (T, S)."""
        return {name: values[head] for name, values in self.overlays.items()}

    def to_json(self, *, has_weights: bool = True) -> dict[str, Any]:
        """Return JSON values; without weights, their shape."""
        has_weights = has_weights and self.deferred is None
        return {
            "path": self.path,
            "type": self.kind,
            "first_step": self.first_step,
            "queries": list(self.queries.tokens),
            "keys": list(self.keys.tokens),
            "grid": self.keys.grid and list(self.keys.grid),
            "shape": list(self.weights.shape),
            "weights": self.weights.astype("float64").round(_DIGITS).tolist()
            if has_weights
            else None,
            "is_default": self.is_default,
            "is_intra": self.is_intra,
            "overlays": [
                overlays_to_json(self.overlays_of(head), gates, self.queries.copy_probs)
                for head, gates in enumerate(
                    [None] * len(self.weights) if self.gates is None else self.gates.tolist()
                )
            ],
        }


Axes = tuple[str, TokenAxis, TokenAxis]
"""Kind, queries and keys."""


@dataclass
class _LayerParts:
    """The calls of a module so far, for one text."""

    weights: list[Tensor]
    gates: list[Tensor] = field(default_factory=list)
    overlays: dict[str, list[Tensor]] = field(default_factory=dict)
    max_hidden_weight: float = 0.0

    def add(self, record: TraceRecord, num_keys: int) -> None:
        """Add a call; an RNN may attend step by step to a history that grows."""
        self.weights.append(_pad_keys(record.weights[0], num_keys))
        self.gates += _context_gates(record)
        for name, values in select_overlays(record.extras):
            padded = _pad_keys(values, num_keys) if values.dim() > 2 else values
            self.overlays.setdefault(name, []).append(padded)

    @property
    def num_queries(self) -> int:
        return sum(part.size(1) for part in self.weights)


def _pad_keys(values: Tensor, num_keys: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, num_keys - values.size(-1)))


def _join(parts: Sequence[Tensor]) -> Float[np.ndarray, "H T *S"]:
    return torch.cat(list(parts), dim=1).float().cpu().numpy()


def collect_layers(
    records: Iterable[TraceRecord],
    axes_of: Callable[[TraceRecord], Axes | None],
    *,
    default: str = "",
) -> list[AttentionLayer]:
    """Return the layers of a model, in the order of their calls, from a trace of one text.

    `axes_of` returns None for records to leave out; the top layer of kind `default` comes with the
    prediction. Calls for one query each are joined. In intra-attention the queries are the
    tokens that are read; the first attends to nothing, since there is no state before it. A kind is
    left out if it attends by blocks or to a compressed memory: its weights have no axis of tokens.
    """
    layers: list[AttentionLayer] = []
    calls: dict[str, _LayerParts] = {}
    blocked_kinds: set[str] = set()
    for record in records:
        axes = axes_of(record)
        if axes is None:
            continue
        kind, queries, keys = axes
        if record.deferred is not None:
            if record.deferred.shape[1:] == (len(queries.tokens), len(keys.tokens)):
                layers.append(_defer_layer(record, record.deferred, axes))
            else:
                blocked_kinds.add(kind)
            continue
        shape, is_intra = record.weights.shape, record.role == "intra"
        queries = keys if is_intra else queries
        num_queries, num_keys = len(queries.tokens), len(keys.tokens)
        first_step = [record.weights.new_zeros(shape[1], 1, num_keys)] if is_intra else []
        parts = calls.setdefault(record.module_path, _LayerParts(first_step))
        hidden_weight = record.extras.get("hidden_weight", record.weights.new_zeros(1)).max().item()
        parts.max_hidden_weight = max(hidden_weight, parts.max_hidden_weight)
        is_step = shape[0] == 1 and shape[2] == 1 and num_queries > 1
        if is_step or (shape[0], *shape[2:]) == (1, num_queries, num_keys):
            parts.add(record, num_keys)
        else:
            blocked_kinds.add(kind)
        if parts.num_queries == num_queries:
            del calls[record.module_path]
            overlays = {name: _join(values) for name, values in parts.overlays.items()}
            layer = AttentionLayer(
                kind,
                queries,
                keys,
                _join(parts.weights),
                gates=_join(parts.gates) if parts.gates else None,
                path=record.module_path,
                first_step=num_keys - num_queries if kind == "self" else 0,
                max_hidden_weight=parts.max_hidden_weight,
                overlays={
                    name: values  # which each query has
                    for name, values in overlays.items()
                    if values.shape[1] == num_queries
                },
            )
            layers.append(_reversed(layer) if ".backward_cell." in record.module_path else layer)
    return mark_default([layer for layer in layers if layer.kind not in blocked_kinds], default)


def _defer_layer(record: TraceRecord, deferred: DeferredWeights, axes: Axes) -> AttentionLayer:
    weights = np.broadcast_to(np.float32(np.nan), deferred.shape)
    first_step = deferred.shape[2] - deferred.shape[1] if axes[0] == "self" else 0
    return AttentionLayer(
        *axes, weights, path=record.module_path, first_step=first_step, deferred=deferred
    )


def _reversed(layer: AttentionLayer) -> AttentionLayer:
    """Return a layer that reads from the end, with its tokens in the order of the text."""
    weights = layer.weights[:, ::-1, ::-1]
    return layer._replace(kind=f"{layer.kind}{BACKWARD}", weights=weights)


def _context_gates(record: TraceRecord) -> list[Float[Tensor, "H T"]]:
    """Return the gates of the context in a record of one text, if there are any."""
    extras = record.extras
    factors = [1 - extras["gates"]] if "gates" in extras else []
    factors += [extras["readout_gates"]] if "readout_gates" in extras else []
    return [torch.stack(factors).prod(dim=0)[0]] if factors else []


def mark_default(
    layers: Sequence[AttentionLayer], kind: str, *, is_mean: bool = False
) -> list[AttentionLayer]:
    """Mark the top layer of a kind, or all of them, as those that come with the prediction."""
    indices = [index for index, layer in enumerate(layers) if layer.kind == kind]
    chosen = indices if is_mean else indices[-1:]
    return [layer._replace(is_default=index in chosen) for index, layer in enumerate(layers)]


def mark_output_layers(
    layers: Sequence[AttentionLayer], decoder: Decoder | None
) -> list[AttentionLayer]:
    """Mark the layers whose attention comes with the output; none if it has chosen heads."""
    if decoder is None:  # one stack reads source and target
        return mark_default(layers, "self")
    kind = "" if decoder.has_alignment_heads else "cross"
    return mark_default(layers, kind, is_mean=decoder.averages_layers)
