"""Captions: the results of decoding, with log-probabilities and attention over the grid.

Invariants: `tokens` and `weights` have one entry per token, `log_probs` one more for EOS; a row of
weights has one entry per cell, row by row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.requests import EncodedRequest
from heedful.decoding.strategies import DecodingOutput
from heedful.decoding.translation import (
    TokenTextMapper,
    output_to_json,
    token_axis,
    tree_to_json,
    with_text,
)
from heedful.inspection.attention_layers import AttentionLayer, TokenAxis, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_selection import AttentionSelection
from heedful.inspection.figures import CaptionAttention, to_caption_attention
from heedful.search import Hypothesis, Node
from heedful.tokenization.tokenizer import Tokenizer

_DIGITS = 6  # of numbers in JSON


class Caption(NamedTuple):
    """A caption with its score and the attention weights of its tokens."""

    image: str  # its name
    text: str
    score: float  # log-probability after penalties, or expected utility with MBR
    log_prob: float  # model log-probability of all tokens and EOS
    tokens: list[str]
    log_probs: NDArray[np.float64]  # (tokens + 1,), the last of EOS
    weights: NDArray[np.float32]  # (tokens, cells); zeros without attention
    grid: tuple[int, int]
    pixels: NDArray[np.uint8] | None = None  # (H, W, C) as the model sees it
    alternatives: tuple["Caption", ...] = ()  # the next best captions, or further samples
    tree: list[Node[str]] | None = None  # the whole search, if it was requested
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested
    token_ids: Sequence[int] = ()  # for `Request.prefix_tokens`

    @property
    def source(self) -> str:
        """The name of the image."""
        return self.image

    @property
    def source_tokens(self) -> list[str]:
        """The names of the cells."""
        return cell_labels(self.grid)

    @property
    def attention_map(self) -> AttentionMap:
        """The attention weights, ready to be drawn; a column for each cell."""
        return AttentionMap(
            self.source_tokens,
            self.tokens,
            self.weights,
            title=str(self.image),
            output=self.text,
            grid=self.grid,
            image=self.pixels,
        )

    @property
    def attention(self) -> CaptionAttention:
        """Where each word attended, ready to be drawn on the image; with gates if requested."""
        maps = [self.attention_map]
        if any(layer.is_default for layer in self.attention_layers):
            maps = AttentionSelection(joins_words=True).select(self.attention_layers, *maps)
        attention = to_caption_attention(maps[0])
        return replace(attention, caption=self.text, label="")

    @property
    def has_attention(self) -> bool:
        """Whether the model attended to the image."""
        return bool(self.weights.any())

    def to_json(self, *, weights: bool = True, tree: bool = False) -> dict[str, Any]:
        """Return plain values for JSON; docs/captions.md describes each field."""
        fields: dict[str, Any] = {
            "image": str(self.image),
            **self._output_to_json(weights=weights),
            "grid": list(self.grid),
            "alternatives": [
                output._output_to_json(weights=weights) for output in self.alternatives
            ],
        }
        if tree and self.tree is not None:
            fields["tree"] = tree_to_json(self.tree)
        return fields

    def _output_to_json(self, *, weights: bool) -> dict[str, Any]:
        fields = output_to_json(self)
        if weights:
            grids = self.weights.reshape(-1, *self.grid).astype("float64")
            fields["weights"] = grids.round(_DIGITS).tolist()
        return fields


def cell_labels(grid: tuple[int, int]) -> list[str]:
    """Return the names of the cells, row and column counted from 1."""
    rows, columns = grid
    return [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]


class CaptionBuilder:
    """Makes captions from decoded token ids."""

    def __init__(self, tokenizer: Tokenizer, grid: tuple[int, int]) -> None:
        self.tokenizer = tokenizer
        self.grid = grid
        self._token_texts = TokenTextMapper(tokenizer)

    def build(
        self, request: EncodedRequest, output: DecodingOutput, pixels: NDArray[np.uint8] | None
    ) -> Caption:
        """Return the first hypothesis with the others as its alternatives."""
        best, *others = (
            self._build_caption(request, hypothesis, pixels) for hypothesis in output.hypotheses
        )
        tree = output.tree
        nodes = None if tree is None else [with_text(node, self.tokenizer) for node in tree]
        return best._replace(alternatives=tuple(others), tree=nodes)

    def token_axis(self, tokens: Sequence[int]) -> TokenAxis:
        """Return the tokens of a caption with their words."""
        texts = self._token_texts.token_texts(tokens)
        return token_axis(self.tokenizer.ids_to_tokens(tokens), texts)

    def cell_axis(self) -> TokenAxis:
        """Return the cells of the grid."""
        return without_words(cell_labels(self.grid))._replace(grid=self.grid)

    def _build_caption(
        self, request: EncodedRequest, output: Hypothesis, pixels: NDArray[np.uint8] | None
    ) -> Caption:
        axis, num_cells = self.token_axis(output.tokens), self.grid[0] * self.grid[1]
        text = "".join(self._token_texts.token_texts(output.tokens))
        return Caption(
            image=request.request.text,
            text=text if request.request.target is None else request.request.target,
            score=output.score,
            log_prob=output.log_prob,
            tokens=list(axis.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, :num_cells],
            grid=self.grid,
            pixels=pixels,
            token_ids=output.tokens,
        )
