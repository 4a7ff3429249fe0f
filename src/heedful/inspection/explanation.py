"""Explanations: a prediction with its attention, the best tokens of each step, and checks.

The checks say what a map does not: how many positions a row is spread over, whether masked
positions have weight, and by how much the prediction of a step would change, in nats, if its row
were another one. Attention that may be exchanged without effect explains nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentFunction, AlignmentOutput
from heedful.attention.edits import (
    SOURCE,
    AttentionEdit,
    AttentionSite,
    find_attention,
    select_sites,
)
from heedful.attention.memory import AttentionState, query_positions
from heedful.errors import check
from heedful.inspection.attention_layers import AttentionLayer, without_words
from heedful.inspection.expert_routing import ExpertRouting
from heedful.pytree import Module, ModuleChange, rebuild_modules
from heedful.shapes import Bool, Float, Int, Mask, Queries, Scores, Weights

PERTURBATIONS = ("permuted", "uniform", "without_strongest")
"""What a row is replaced by: its weights, each moved to the next visible position; the same weight
at all of them; its weights without the largest."""
MAX_INLINE_CELLS = 20_000
"""Of a map, where an explanation has too many weights to be sent as a whole."""
_DIGITS = 6  # of numbers in JSON
_TINY = 1e-30
_MAX_LOG_PROBS = 2**26  # computed together
_MAX_TOKENS = 2**12  # of the rows of a batch


class TokenScore(NamedTuple):
    """A token that a step may predict."""

    id: int
    token: str
    log_prob: float


class LayerChecks(NamedTuple):
    """What was measured of a layer."""

    path: str
    row_sums: NDArray[np.float32]  # (heads, steps)
    effective_support: NDArray[np.float32]  # (heads, steps): exp(entropy); 1 for a single position
    max_hidden_weight: float
    effects: Mapping[str, NDArray[np.float64]] | None = None
    """KL divergence of each step's distribution, in nats, from that with another row (steps,), by
    `PERTURBATIONS`; NaN where there was no time for it, None if it was not measured."""

    @classmethod
    def from_layer(cls, layer: AttentionLayer) -> "LayerChecks":
        """Return the checks of weights alone; none of weights that are not held."""
        if layer.deferred is not None:
            nothing = np.empty((len(layer.weights), 0), np.float32)
            return cls(layer.path, nothing, nothing, layer.max_hidden_weight)
        sums = layer.weights.sum(axis=-1)
        shares = layer.weights / np.maximum(sums, _TINY)[..., None]
        entropies = -(shares * np.log(np.maximum(shares, _TINY))).sum(axis=-1)
        support = np.where(sums > 0, np.exp(entropies), 0)
        return cls(layer.path, sums, support.astype(np.float32), layer.max_hidden_weight)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        effects = self.effects and {name: _rounded(kl) for name, kl in self.effects.items()}
        return {
            "path": self.path,
            "row_sums": _rounded(self.row_sums),
            "effective_support": _rounded(self.effective_support),
            "max_hidden_weight": self.max_hidden_weight,
            "effects": effects,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "LayerChecks":
        """Read what `to_json` wrote."""
        effects = fields["effects"]
        measured = effects and {name: np.array(kl, np.float64) for name, kl in effects.items()}
        sums, support = (
            np.array(fields[name], np.float32) for name in ("row_sums", "effective_support")
        )
        return cls(fields["path"], sums, support, fields["max_hidden_weight"], measured)


class Explanation(NamedTuple):
    """A prediction under edits, and what led to it."""

    result: Any  # the prediction
    edits: Sequence[AttentionEdit]
    layers: Sequence[AttentionLayer]
    top: Sequence[Sequence[TokenScore]]
    """The most probable tokens of each step; the last step predicts EOS where outputs end so."""
    checks: Sequence[LayerChecks]
    experts: Sequence[ExpertRouting] = ()
    """Of each mixture of experts."""

    def to_json(
        self, result: Mapping[str, Any] | None = None, *, max_weights: float = math.inf
    ) -> dict[str, Any]:
        """Return JSON values; `result` is the prediction as JSON, by default in its own words.

        `token_ids` are those of the output: the step `num_prompt_steps` predicts the first. If
        there are more than `max_weights` in all, those of large maps are None.
        """
        has_all = sum(layer.weights.size for layer in self.layers) <= max_weights
        num_prompt = getattr(self.result, "num_prompt_tokens", None) or 0
        return {
            "result": self.result.to_json() if result is None else dict(result),
            "token_ids": list(getattr(self.result, "token_ids", ()))[num_prompt:],
            "num_prompt_steps": max(num_prompt - 1, 0),  # the first token is predicted by none
            "edits": [edit.to_json() for edit in self.edits],
            "layers": [
                layer.to_json(has_weights=has_all or layer.weights[0].size <= MAX_INLINE_CELLS)
                for layer in self.layers
            ],
            "top": [
                [{**score._asdict(), "log_prob": round(score.log_prob, _DIGITS)} for score in step]
                for step in self.top
            ],
            "checks": [checks.to_json() for checks in self.checks],
            "experts": [routing.to_json() for routing in self.experts],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Explanation":
        """Read what `to_json`, `show --json` or the inspector wrote; `result` stays JSON values."""
        return cls(
            fields["result"],
            [AttentionEdit.from_json(edit) for edit in fields["edits"]],
            list(map(_read_layer, fields["layers"])),
            [[TokenScore(**score) for score in step] for step in fields["top"]],
            list(map(LayerChecks.from_json, fields["checks"])),
            list(map(ExpertRouting.from_json, fields.get("experts", ()))),
        )


def _read_layer(fields: Mapping[str, Any]) -> AttentionLayer:
    grid = fields["grid"] and (fields["grid"][0], fields["grid"][1])
    keys = without_words(fields["keys"])._replace(grid=grid)
    shares = {name: fields["overlays"][0].get(name) for name in ("gates", "copy_probs")}
    by_head = {name: [one[name] for one in fields["overlays"]] for name in fields["overlays"][0]}
    arrays = {name: np.array(values, np.float32) for name, values in by_head.items()}
    return AttentionLayer(
        fields["type"],
        without_words(fields["queries"])._replace(copy_probs=shares["copy_probs"]),
        keys,
        _read_weights(fields),
        fields["is_default"],
        None if shares["gates"] is None else arrays["gates"],
        fields["path"],
        fields["first_step"],
        overlays={name: values for name, values in arrays.items() if name not in shares},
    )


def _read_weights(fields: Mapping[str, Any]) -> Float[np.ndarray, "H T S"]:
    if fields["weights"] is None:  # too many to be written
        return np.broadcast_to(np.float32(np.nan), fields["shape"])
    return np.array(fields["weights"], np.float32)


def _rounded(values: NDArray[Any]) -> Any:
    rounded = values.astype(np.float64).round(_DIGITS)
    if np.isnan(rounded).any():  # only effects, (steps,)
        return [None if math.isnan(value) else value for value in rounded.tolist()]
    return rounded.tolist()


class PerturbedAlignment(AlignmentFunction):
    """An alignment of equal rows; in all but the first, one step has other weights."""

    def __init__(self, site: AttentionSite, steps: Sequence[int], kinds: Sequence[str]) -> None:
        super().__init__()
        self.inner = site.alignment_function
        self.is_unnormalized = self.inner.is_unnormalized
        self._has_sentinel = site.has_sentinel
        self._steps, self._kinds = steps, kinds

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        output = self.inner.align(scores, mask, queries, state)
        weights, mask = output.weights, mask.expand(scores.shape)
        if self._has_sentinel:  # it keeps its weight
            mask = torch.cat([mask[..., :-1], torch.zeros_like(mask[..., -1:])], dim=-1)
        positions = query_positions(state, scores.size(-2), scores.device).expand(scores.shape[:-1])
        perturbed = weights.clone()
        for kind in dict.fromkeys(self._kinds):
            rows = self._rows_of(kind, positions)  # only these are computed
            perturbed[rows] = _perturb(kind, weights[rows], mask[rows])
        return output._replace(weights=perturbed)

    def _rows_of(self, kind: str, positions: Int[Tensor, "*B T"]) -> Bool[Tensor, "*B T"]:
        steps = [
            step if of_row == kind else -1
            for step, of_row in zip(self._steps, self._kinds, strict=True)
        ]
        per_row = torch.tensor(steps, device=positions.device)
        return positions == per_row.view(-1, *(1,) * (positions.dim() - 1))


def _perturb(kind: str, weights: Weights, mask: Mask) -> Weights:
    """Return other weights of the visible positions with the same sum."""
    visible = weights.masked_fill(~mask, 0)
    totals = visible.sum(dim=-1, keepdim=True)
    if kind == "uniform":
        other = mask / mask.sum(dim=-1, keepdim=True).clamp(min=1)
    elif kind == "without_strongest":
        other = visible.scatter(-1, visible.argmax(dim=-1, keepdim=True), 0)
    else:  # visible positions first, in order; the next of the last is the first
        order = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)
        ranks = order.argsort(dim=-1)
        counts = mask.sum(dim=-1, keepdim=True).clamp(min=1)
        previous = order.gather(-1, (ranks - 1) % counts)
        other = visible.gather(-1, previous).masked_fill(~mask, 0)
    other = other.to(weights.dtype) * totals / other.sum(dim=-1, keepdim=True).clamp(min=_TINY)
    return torch.where(mask, other, weights)


def perturb_layer(model: Module, path: str, steps: Sequence[int], kinds: Sequence[str]) -> Module:
    """Return a copy of a model in which row r of a batch has another attention at step r.

    `kinds` are `PERTURBATIONS`, one per row; a step of -1 leaves a row as it is.
    """
    (site,) = (site for site in find_attention(model) if site.path == path)

    def find_change(module_path: str, *_: nn.Module | None) -> ModuleChange | None:
        if module_path != site.alignment_path:
            return None
        perturbed = PerturbedAlignment(site, steps, kinds).eval()
        return lambda attention: setattr(attention, "alignment_function", perturbed)

    return rebuild_modules(model, find_change)


def best_tokens(
    log_probs: Float[Tensor, "T N"], count: int, name: Callable[[list[int]], list[str]]
) -> list[list[TokenScore]]:
    """Return the most probable tokens of each step; fewer where others have probability zero."""
    best = log_probs.topk(min(count, log_probs.size(1)))
    ids, values = best.indices.flatten().tolist(), best.values.flatten().tolist()
    scores = list(map(TokenScore, ids, name(ids), values))
    count = best.values.size(1)
    steps = [scores[start : start + count] for start in range(0, len(scores), count)]
    return [[score for score in step if math.isfinite(score.log_prob)] for step in steps]


def row_effects(
    model: nn.Module,
    layer: AttentionLayer,
    log_probs: Float[Tensor, "T N"],
    force: Callable[[nn.Module, int], Float[Tensor, "R T N"]],
    max_seconds: float = math.inf,
) -> dict[str, NDArray[np.float64]]:
    """Return the effect of each row of a layer on its step, by `PERTURBATIONS`.

    `force` predicts all steps, of which `log_probs` are the first prediction, with a given model
    and number of equal rows. Each row but the first has another attention at one step. The last
    steps come first; after `max_seconds` the others are NaN.
    """
    num_steps = min(layer.weights.shape[1], len(log_probs))
    cases = [(name, step) for step in reversed(range(num_steps)) for name in PERTURBATIONS]
    max_rows = max(1, min(_MAX_LOG_PROBS // log_probs.numel(), _MAX_TOKENS // len(log_probs)))
    effects = {name: np.full(num_steps, np.nan) for name in PERTURBATIONS}
    deadline = monotonic() + max_seconds
    for start in range(0, len(cases), max_rows):
        if start and monotonic() > deadline:
            break
        chunk = cases[start : start + max_rows]
        kinds = [PERTURBATIONS[0], *(name for name, _ in chunk)]
        steps = [-1, *(layer.first_step + step for _, step in chunk)]
        rows = force(perturb_layer(model, layer.path, steps, kinds), len(steps))
        for row, (name, step) in zip(rows[1:], chunk, strict=True):
            effects[name][step] = max(0.0, kl_divergence(rows[0, step], row[step]).item())
    return effects


def kl_divergence(
    log_probs: Float[Tensor, "*B N"], other: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B"]:
    """Return the sum of p (log p - log q), where p is not zero."""
    probs = log_probs.double().exp()
    terms = probs * (log_probs.double() - other.double().clamp(min=-1e4))
    return torch.where(probs > 0, terms, 0.0).sum(dim=-1)


def check_reach(
    edits: Sequence[AttentionEdit],
    models: Mapping[str, nn.Module],
    layers: Sequence[AttentionLayer],
    num_steps: int,
) -> None:
    """Raise ConfigError for edits of steps or positions that the layers do not have.

    `num_steps` is the number of predicted tokens, EOS included, which has no row in the layers.
    """
    sites = [site for prefix, model in models.items() for site in find_attention(model, prefix)]
    for index, edit in enumerate(edits):
        location = f"edits[{index}]"
        reached: list[AttentionLayer] = []
        for site in select_sites(edit, sites, location=location):
            calls = [layer for layer in layers if layer.path == site.path]
            _check_steps(edit, calls, location, num_steps)
            for layer in calls:
                if _has_step(layer, edit.step, num_steps):
                    _check_positions(edit, layer, location)
            reached += calls
        if edit.layer == SOURCE:
            _check_same_source(reached, location)


def _last_step(layer: AttentionLayer, num_steps: int) -> int:
    """Return the last step of a layer; that of EOS has no row."""
    num_queries = layer.weights.shape[1]
    is_output = not layer.kind.startswith("encoder") and num_queries == num_steps - 1
    return layer.first_step + num_queries - 1 + is_output


def _has_step(layer: AttentionLayer, step: int | None, num_steps: int) -> bool:
    return step is None or layer.first_step <= step <= _last_step(layer, num_steps)


def _check_steps(
    edit: AttentionEdit, calls: Sequence[AttentionLayer], location: str, num_steps: int
) -> None:
    """Raise ConfigError if none of the layers of a module has the step."""
    if not calls:
        return
    last = max(_last_step(layer, num_steps) for layer in calls)
    path = calls[0].path
    message = f"step is {edit.step}, but the steps of {path} are 0 to {last}"
    is_known = any(_has_step(layer, edit.step, num_steps) for layer in calls)
    check(is_known, f"{location}.step", message, "give the index of a step")


def _check_positions(edit: AttentionEdit, layer: AttentionLayer, location: str) -> None:
    _, num_queries, num_keys = layer.weights.shape
    beyond = [position for position in edit.positions if position >= num_keys]
    message = f"position is {beyond[:1]}, but those of {layer.path} are 0 to {num_keys - 1}"
    check(not beyond, location, message, "give the index of a position")
    removed = {position for position, factor in (edit.scale or {}).items() if factor == 0}
    message = f"all positions of {layer.path} are removed"
    check(len(removed) < num_keys, f"{location}.scale", message, "leave one of them")
    is_causal = num_queries > 1 and layer.is_causal
    weights = edit.set or dict(enumerate(edit.row or ()))
    last = max((position for position, weight in weights.items() if weight > 0), default=0)
    is_hidden = is_causal and "self" in layer.kind and edit.step is not None and last > edit.step
    message = f"position {last} of {layer.path} is hidden from step {edit.step}"
    check(not is_hidden, location, message, "give a position that is not later than the step")


def _check_same_source(layers: Sequence[AttentionLayer], location: str) -> None:
    """Raise ConfigError if layers count the positions of the source in different ways."""
    source = min((layer.keys.tokens for layer in layers), key=len, default=())
    for layer in layers:
        message = f"the first position of {layer.path} is not that of the source"
        is_same = list(layer.keys.tokens[: len(source)]) == list(source)
        check(is_same, f"{location}.layer", message, "name the layers instead of 'source'")
