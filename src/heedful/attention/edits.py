"""Edits: attention weights that are set, scaled or computed by another alignment, as values.

    edit = AttentionEdit(layer="decoder.attention", step=3, set={5: 1.0})
    edited = with_edits(model, [edit])

An edited model is a copy of the plain model that shares all parameters: `EditedAlignment` takes the
place of the alignments that are edited, so that scores, states and searches are as ever. Steps,
heads and positions are indices of the weights (heads, steps, positions), from 0. Invariants: an
edit changes no other row of its layer; a row that is scaled keeps its sum, and so does one of which
cells are set, unless they alone sum to more; a position with the factor zero is masked, so that an
alignment does as it would without it; several queries give the same result as one at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import (
    AlignmentFunction,
    AlignmentOutput,
    FixedAlignment,
    FixedAlignmentConfig,
    SoftAlignment,
    SoftAlignmentConfig,
    concat_alignments,
)
from heedful.attention.attention import AttentionRole, AttentionWrapper, outer_attention
from heedful.attention.memory import AttentionState, query_positions
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.sentinel import SentinelAttention
from heedful.config import BaseConfig, validate_settings
from heedful.errors import ConfigError, check, choices_hint, did_you_mean, format_count
from heedful.pytree import Module, ModuleChange, rebuild_modules
from heedful.shapes import Bool, Float, Int, Mask, PerPosition, Queries, Scores, Weights

SOURCE = "source"
"""Stands for all layers that attend to the source, the encoder's own among them."""
_ACTIONS = ("row", "set", "scale", "alignment")
_PATTERNS = ("uniform", "last", "diagonal")
_SYNTAX = "write 'layer=PATH, step=3, head=0, set=5'; docs/edits.md has all keys"
_SUM_TOLERANCE = 1e-3  # of rows that were rounded
_ROUNDING = 1e-6
_TINY = 1e-30

Weight = Annotated[float, Field(ge=0, le=1)]
Cells = Annotated[dict[NonNegativeInt, Weight], Field(min_length=1)]
Factors = Annotated[dict[NonNegativeInt, NonNegativeFloat], Field(min_length=1)]
NewAlignmentConfig = Annotated[
    SoftAlignmentConfig | FixedAlignmentConfig, Field(discriminator="type")
]


class AttentionEdit(BaseConfig):
    """What to change in the attention weights of a layer; it has one of the last four fields."""

    layer: str | None = None
    """Path of the attention in the model, where `*` stands for any characters, or `source`: all
    layers that attend to the source. Default: the only one."""
    step: NonNegativeInt | None = None
    """Index of the query: the output token that is predicted, or the token that attends. Default:
    all."""
    head: NonNegativeInt | None = None
    """Index of the head; default: all."""
    row: tuple[Weight, ...] | None = None
    """The weights of all positions; those that are missing at the end are zero."""
    set: Cells | None = None
    """Weights by position; the others share the rest of the row in proportion."""
    scale: Factors | None = None
    """Factors of weights by position, after which the row is normalized; zero removes a
    position."""
    alignment: NewAlignmentConfig | None = None
    """An alignment instead of the model's, such as softmax with another temperature."""

    @model_validator(mode="after")
    def _check_action(self) -> "AttentionEdit":
        actions = [name for name in _ACTIONS if getattr(self, name) is not None]
        if len(actions) != 1:
            names = " and ".join(actions) or "none"
            raise ValueError(f"needs one of row, set, scale and alignment, but has {names}")
        total = sum(self.row or (self.set or {}).values())
        if total > 1 + _SUM_TOLERANCE:
            raise ValueError(f"the weights of a row sum to at most 1, but these to {total:g}")
        if getattr(self.alignment, "learned", False):
            raise ValueError("a learned alpha would be untrained: leave out `learned`")
        return self

    @property
    def positions(self) -> list[int]:
        """The positions that it sets or scales."""
        return [*list(range(len(self.row or ()))), *(self.set or {}), *(self.scale or {})]

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_json(cls, value: Any, *, location: str = "edit") -> "AttentionEdit":
        """Return the edit of a JSON object; raise ConfigError for others."""
        example = '{"layer": "decoder.attention", "step": 3, "set": {"5": 1}}'
        is_object = isinstance(value, dict)
        check(is_object, location, "an edit must be an object", f"write {example}")
        try:
            return validate_settings(cls, value, location=location)
        except ConfigError as error:
            hint = error.hint if error.hint.startswith("choose") else _SYNTAX
            raise ConfigError(error.location, error.message, hint) from None

    @classmethod
    def parse(cls, text: str, *, location: str = "--edit") -> "AttentionEdit":
        """Return the edit of a text such as "layer=decoder.attention, step=3, set=5"."""
        fields: dict[str, Any] = {}
        for part in text.split(","):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            is_valid = bool(equals and value)
            check(is_valid, location, f"{part.strip()!r} is not KEY=VALUE", _SYNTAX)
            message = f"no key is called {key!r}{did_you_mean(key, _PARSERS)}"
            check(key in _PARSERS, location, message, choices_hint(_PARSERS))
            name, parse = _PARSERS[key]
            check(name not in fields, location, f"{key!r} is given twice, or with another", _SYNTAX)
            try:
                fields[name] = parse(value)
            except ValueError:
                raise ConfigError(location, f"{key}={value} cannot be read", _SYNTAX) from None
        return cls.from_json(fields, location=location)


def _parse_cells(text: str, default: float | None = None) -> dict[int, float]:
    """Return the numbers by position of "5:0.7 6:0.1"; a position alone has the default."""
    cells = [cell.partition(":") for cell in text.split()]
    if default is None and not all(colon for _, colon, _ in cells):
        raise ValueError(text)
    return {int(position): float(number or default or 0) for position, _, number in cells}


def _parse_alignment(text: str) -> dict[str, str]:
    return {"type": "fixed", "pattern": text} if text in _PATTERNS else {"type": text}


_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "layer": ("layer", str),
    "step": ("step", int),
    "head": ("head", int),
    "row": ("row", lambda text: [float(number) for number in text.split()]),
    "set": ("set", partial(_parse_cells, default=1.0)),
    "scale": ("scale", _parse_cells),
    "drop": ("scale", lambda text: {int(position): 0.0 for position in text.split()}),
    "alignment": ("alignment", _parse_alignment),
    "temperature": ("alignment", lambda text: {"type": "softmax", "temperature": float(text)}),
}
"""For each key of a text the field that it sets, and how its value is read."""


class AttentionSite(NamedTuple):
    """An attention module of a model, as edits name it."""

    path: str
    alignment_path: str
    """Path of the module that has the alignment: itself, or the one that it wraps."""
    alignment_function: AlignmentFunction
    role: AttentionRole
    num_heads: int
    has_sentinel: bool
    is_segmented: bool

    @property
    def attends_to_source(self) -> bool:
        """Whether its first positions are those of the source."""
        is_decoder = (
            "decoder" in self.path.split(".")[: 3 if self.path.startswith("member.") else 1]
        )
        return not (is_decoder and self.role in ("self", "intra"))

    def why_not(self, edit: AttentionEdit) -> str | None:
        """Return why the weights of this module cannot be edited so; None if they can."""
        if self.is_segmented:
            return "attends to blocks or segments of the sequence, not to its positions"
        if edit.head is not None and edit.head >= self.num_heads:
            heads = "head 0 alone" if self.num_heads == 1 else f"heads 0 to {self.num_heads - 1}"
            return f"has {heads}"
        if edit.alignment is None:
            is_backward = ".backward_cell." in self.path
            return "reads from the end, so that steps have no index" if is_backward else None
        name = type(self.alignment_function).__name__
        if not isinstance(self.alignment_function, SoftAlignment | FixedAlignment):
            return f"has a {name}, whose weights depend on more than scores, and keeps it"
        needs_positions = isinstance(edit.alignment, FixedAlignmentConfig)
        if needs_positions and (self.has_sentinel or self.role == "intra"):
            return "attends to states of its own cell, which fixed patterns do not know"
        return None


def find_attention(model: nn.Module, prefix: str = "") -> Iterator[AttentionSite]:
    """Yield each attention of a model; its paths begin with the prefix."""
    for path, module in outer_attention(model):
        wrapped, alignment_path, num_heads = module, path, 1
        while isinstance(wrapped, AttentionWrapper):
            num_heads = wrapped.num_heads if isinstance(wrapped, MultiHeadAttention) else num_heads
            wrapped, alignment_path = wrapped.inner, f"{alignment_path}.inner"
        yield AttentionSite(
            prefix + path,
            prefix + alignment_path,
            module.alignment_function,
            module.role,
            num_heads,
            isinstance(module, SentinelAttention),
            module.is_segmented,
        )


def with_edits(model: Module, edits: Sequence[AttentionEdit]) -> Module:
    """Return a copy of a plain model with edited attention; it shares all parameters."""
    return edit_models({"": model}, edits)[""]


def edit_models(models: Mapping[str, Module], edits: Sequence[AttentionEdit]) -> dict[str, Module]:
    """Edit the members of an ensemble, whose paths begin with their keys, such as "member.0."."""
    sites = [site for prefix, model in models.items() for site in find_attention(model, prefix)]
    chosen: dict[str, list[AttentionEdit]] = {}
    for index, edit in enumerate(edits):
        for site in select_sites(edit, sites, location=f"edits[{index}]"):
            chosen.setdefault(site.alignment_path, []).append(edit)
    by_path = {site.alignment_path: site for site in sites}

    def edit_model(prefix: str, model: Module) -> Module:
        def find_change(path: str, *_: nn.Module | None) -> ModuleChange | None:
            site, site_edits = by_path.get(prefix + path), chosen.get(prefix + path)
            if site is None or site_edits is None:
                return None
            edited = EditedAlignment(site, site_edits).eval()
            return lambda attention: setattr(attention, "alignment_function", edited)

        return rebuild_modules(model, find_change)

    return {prefix: edit_model(prefix, model) for prefix, model in models.items()}


def select_sites(
    edit: AttentionEdit, sites: Sequence[AttentionSite], *, location: str
) -> list[AttentionSite]:
    """Return the layers of an edit; raise ConfigError if there are none, or one refuses it."""
    paths = [site.path for site in sites]
    hint = f"the layers are: {', '.join(paths)}"
    check(sites, location, "this model has no attention", "choose a model with attention")
    message = f"this model has {format_count(len(sites), 'layer')} with attention: name one"
    check(edit.layer is not None or len(sites) == 1, f"{location}.layer", message, hint)
    if edit.layer == SOURCE:
        selected = [site for site in sites if site.attends_to_source]
    else:
        selected = [site for site in sites if fnmatchcase(site.path, edit.layer or "*")]
    message = f"no layer is called {edit.layer!r}{did_you_mean(edit.layer or '', paths)}"
    check(selected, f"{location}.layer", message, hint)
    for site in selected:
        reason = site.why_not(edit)
        message, remedy = f"{site.path} {reason}", "leave it out, or name other layers"
        check(reason is None, location, message, f"{remedy}; {hint}")
    return selected


class EditedAlignment(AlignmentFunction):
    """An alignment whose weights are edited; what it carries to the next query is edited, too.

    A monotonic pointer continues from the edited weights. Boundaries, centers and probabilities
    that an alignment returns beside its weights are its own.
    """

    def __init__(self, site: AttentionSite, edits: Sequence[AttentionEdit]) -> None:
        super().__init__()
        self.inner = site.alignment_function
        self.is_unnormalized = self.inner.is_unnormalized
        self._site = site
        # Another alignment first: what is set or scaled are its weights.
        self._edits = sorted(edits, key=lambda edit: edit.alignment is None)
        self._alignments = {
            index: edit.alignment.build()
            for index, edit in enumerate(self._edits)
            if edit.alignment is not None
        }

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        is_soft = isinstance(self.inner, SoftAlignment | FixedAlignment)
        if scores.size(-2) > 1 and not is_soft:
            return self._align_steps(scores, mask, queries, state)
        mask = mask.expand(scores.shape)
        chosen = [self._select_rows(edit, scores, mask, state) for edit in self._edits]
        visible = mask
        for edit, rows in zip(self._edits, chosen, strict=True):
            if not edit.scale:
                continue
            is_removed = _to_row(edit.scale or {}, scores, default=1.0) == 0
            visible = visible & ~(rows & is_removed)
        output = self.inner.align(scores, visible, queries, state)
        weights = output.weights
        for index, (edit, rows) in enumerate(zip(self._edits, chosen, strict=True)):
            if not rows.any():  # which blocks of a long text have none of
                continue
            if index in self._alignments:
                edited = self._alignments[index].align(scores, visible, queries, state).weights
            else:
                edited = self._edit(edit, weights, visible)
            weights = torch.where(rows, edited, weights)
        return output._replace(weights=weights)

    def for_head(self, head: int) -> "EditedAlignment":
        """Return the edits of one head, for its scores alone."""
        edits = [edit for edit in self._edits if edit.head in (None, head)]
        return EditedAlignment(self._site._replace(num_heads=1), edits).eval()

    def _select_rows(
        self, edit: AttentionEdit, scores: Scores, mask: Mask, state: AttentionState | None
    ) -> Bool[Tensor, "*B T 1"]:
        """Return which rows an edit changes: of its step and head, where it sees its positions."""
        num_queries, num_keys = scores.shape[-2:]
        if self._site.role == "intra":  # a cell attends to all of its past states, without a state
            positions: Int[Tensor, "*B T"] = torch.full_like(scores[..., 0], num_keys).long()
        else:
            positions = query_positions(state, num_queries, scores.device)
            positions = positions.expand(scores.shape[:-1])
        rows = torch.ones_like(positions, dtype=torch.bool)
        if edit.step is not None:
            rows = positions == edit.step
        if edit.head is not None and self._site.num_heads > 1:
            heads = torch.arange(scores.size(-3), device=scores.device)
            rows = rows & (heads == edit.head).unsqueeze(-1)
        weights = edit.set or dict(enumerate(edit.row or ()))
        needed = [position for position, weight in weights.items() if weight > 0]
        if max(needed, default=0) >= num_keys:
            return torch.zeros_like(rows).unsqueeze(-1)
        return (rows & mask[..., needed].all(dim=-1)).unsqueeze(-1)

    def _edit(self, edit: AttentionEdit, weights: Weights, visible: Mask) -> Weights:
        """Return the edited weights of all rows."""
        totals = weights.sum(dim=-1, keepdim=True)
        if edit.scale is not None:
            scaled = weights * _to_row(edit.scale, weights, default=1.0)
            return scaled * totals / scaled.sum(dim=-1, keepdim=True).clamp(min=_TINY)
        if edit.row is not None:
            row = _to_row(dict(enumerate(edit.row)), weights)
            if self._site.has_sentinel:  # which gets what the source leaves
                row[-1] = (1 - row[:-1].sum()).clamp(min=0)
            return row.expand_as(weights)
        cells = _to_row(edit.set or {}, weights)
        free = visible & (_to_row(dict.fromkeys(edit.set or {}, 1.0), weights) == 0)
        rest = weights.masked_fill(~free, 0)
        has_rest = rest.sum(dim=-1, keepdim=True) > 0
        rest = torch.where(has_rest, rest, free.to(weights.dtype))  # evenly if they had nothing
        shares = rest / rest.sum(dim=-1, keepdim=True).clamp(min=_TINY)
        left = totals - cells.sum()
        return cells + left.masked_fill(left < _ROUNDING, 0) * shares

    def _align_steps(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        """Align one query after the other: each continues from the edited weights of the last."""
        if state is None:
            zeros = torch.zeros_like(scores[..., 0, :])
            num_queries = torch.zeros_like(scores[..., 0, 0], dtype=torch.long)
            state = AttentionState(num_queries, zeros, zeros, zeros, num_queries.to(zeros))
        outputs = []
        for step in range(scores.size(-2)):
            step_mask = mask if mask.size(-2) == 1 else mask[..., step : step + 1, :]
            query = None if queries is None else queries[..., step : step + 1, :]
            output = self.align(scores[..., step : step + 1, :], step_mask, query, state)
            last_weights, num_queries = output.pointers[..., -1, :], state.num_queries + 1
            state = state._replace(num_queries=num_queries, last_weights=last_weights)
            outputs.append(output)
        return concat_alignments(outputs)


def _to_row(
    numbers: Mapping[int, float], like: PerPosition, *, default: float = 0.0
) -> Float[Tensor, "S"]:
    """Return numbers by position as a row; positions beyond the end are left out."""
    row = torch.full_like(like[(0,) * (like.dim() - 1)], default)
    for position, number in numbers.items():
        if position < len(row):
            row[position] = number
    return row
