"""Trace: where did every attention of a model look, while it did something else?

    with trace(model) as records:
        model(batch)
    for record in records:
        print(record.site, record.kind, record.step, record.weights.shape)
    weights = join_steps(records).weights  # (B, H, T, S): a decoder's steps as one map

Nothing in a model is changed: what it does under a trace it does without one. Law: whatever the
module, weights are (B, H, T, S), detached, with one head where there are none. Where a fast form
made no weights they are made here, for the queries that were asked for and no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import AlignmentOutput, AttentionOutput, AttentionState, Memory
from heedful.attention.attention import Attention, AttentionRole
from heedful.attention.local_alignment import LocalAlignment
from heedful.attention.monotonic_alignment import MonotonicAlignment
from heedful.attention.multi_head import MultiHeadAttention
from heedful.errors import DataError
from heedful.shapes import Bool, Float, Int

Device = torch.device | str | None
Totals = tuple[Float[Tensor, "B H S"], Float[Tensor, "B H S"]]


@dataclass(frozen=True, eq=False)
class TraceRecord:
    """What one module was asked in one call, and where it looked."""

    module_path: str
    """The module, as the dotted path from the model; empty if it is the model."""
    role: AttentionRole
    layer: int
    """The first number in the path, or 0."""
    query_positions: tuple[int, ...]
    """The numbers of the queries, the first ever asked being 0."""
    weights: Float[Tensor, "B H T S"]
    extras: dict[str, Tensor] = field(default_factory=dict)
    """What else is known, by name, each (B, H, T) or (B, H, T, S): the fields of `AlignmentOutput`;
    `reach`, how far a window goes to either side of its centre;
    `chosen`, the place that was looked at, or -1 where it was not one alone; `frontier`, how far a
    monotonic pointer got, in expectation; `coverage_penalty`, where was looked before."""
    cumulative_weights: Totals | None = None
    """Where was looked before this call and with it; None where no past was carried."""

    @property
    def step(self) -> int:
        """The number of the first query."""
        return self.query_positions[0]


@contextmanager
def trace_attention(
    model: nn.Module, *, rows: Collection[int] | None = None, device: Device = None
) -> Iterator[list[TraceRecord]]:
    """Record every attention within a model, in the order in which they are asked.

    `rows` are the numbers of the queries to record, if not all; a call with none of them leaves
    no record. `device` is where records are kept, if not where they were made.
    """
    records: list[TraceRecord] = []
    handles = [
        module.register_forward_hook(
            _make_hook(module_path, records, rows, device), with_kwargs=True
        )
        for module_path, module in _find_attention_modules(model)
    ]
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()


def concatenate_steps(records: Sequence[TraceRecord]) -> TraceRecord:
    """Put the records of one site, made step after step, together into one.

    Its rows are those of the last record. Each is followed back through the steps by the past it
    came with, so a search may have dropped, repeated and reordered rows on the way. Two rows that
    have looked at every place for as much, if in another order, cannot be told apart once they
    are reordered.
    """
    _check_single_run(records)
    rows = [torch.arange(len(records[-1].weights), device=records[-1].weights.device)]
    for before, after in reversed(list(pairwise(records))):
        rows.insert(0, _match_rows(before, after)[rows[0]])

    def join(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part[own] for part, own in zip(parts, rows, strict=True)], dim=2)

    first, last = records[0], records[-1]
    names = first.extras
    return replace(
        first,
        query_positions=tuple(number for record in records for number in record.query_positions),
        weights=join([record.weights for record in records]),
        extras={name: join([record.extras[name] for record in records]) for name in names},
        cumulative_weights=first.cumulative_weights
        and last.cumulative_weights
        and (first.cumulative_weights[0][rows[0]], last.cumulative_weights[1]),
    )


class _AttentionCall(NamedTuple):
    """What a module was asked: the parameters of `Attention.forward`."""

    queries: Tensor
    memory: Memory
    state: AttentionState | None = None
    need_weights: bool = True


def _find_attention_modules(model: nn.Module) -> Iterator[tuple[str, Attention]]:
    """Find what can be asked, leaving out what is a part of something found before."""
    found: set[nn.Module] = set()
    for module_path, module in model.named_modules():
        if isinstance(module, Attention) and module not in found:
            found.update(module.modules())
            yield module_path, module


def _make_hook(
    module_path: str, records: list[TraceRecord], rows: Collection[int] | None, device: Device
) -> Callable[..., None]:
    layer = next((int(part) for part in module_path.split(".") if part.isdigit()), 0)

    @torch.no_grad()
    def note(module: Attention, args: Any, kwargs: Any, output: AttentionOutput) -> None:
        call = _AttentionCall(*args, **kwargs)
        first = 0 if call.state is None else int(call.state.num_queries.max())
        wanted = [n for n in range(call.queries.size(-2)) if rows is None or first + n in rows]
        if wanted:
            known = {
                name: each.to(device) for name, each in _named_tensors(module, call, output, wanted)
            }
            numbers = tuple(first + n for n in wanted)
            weights, before = known.pop("weights"), known.pop("before", None)
            cumulative_log_probs = None if before is None else (before, known.pop("after"))
            records.append(
                TraceRecord(
                    module_path, module.role, layer, numbers, weights, known, cumulative_log_probs
                )
            )

    return note


def _named_tensors(
    module: Attention, call: _AttentionCall, output: AttentionOutput, query_indices: list[int]
) -> Iterator[tuple[str, Tensor]]:
    """Say by name all that is known of the wanted queries."""
    alignment = output.alignment
    if alignment is None:
        call, query_indices = _select_queries(call, query_indices), list(range(len(query_indices)))
        alignment = module.compute_weights(call.queries, call.memory)
    axis, has_heads = alignment.weights.dim() - 2, isinstance(module, MultiHeadAttention)
    for name, each in [
        *_alignment_tensors(module, alignment, call),
        *_state_tensors(alignment, call),
    ]:
        yield name, _to_rows_and_heads(each, axis, has_heads)[:, :, query_indices]
    if call.state is not None and output.state is not None:
        yield "before", _to_rows_and_heads(call.state.coverage, axis, has_heads)
        yield "after", _to_rows_and_heads(output.state.coverage, axis, has_heads)


def _select_queries(call: _AttentionCall, query_indices: list[int]) -> _AttentionCall:
    """Leave the other queries out.

    A form without weights asks neither how many queries came before one nor where they looked,
    so each can be asked alone.
    """
    mask = call.memory.mask
    seen = mask if mask.size(-2) == 1 else mask[..., query_indices, :]
    return _AttentionCall(call.queries[..., query_indices, :], call.memory._replace(mask=seen))


def _alignment_tensors(
    module: Attention, alignment: AlignmentOutput, call: _AttentionCall
) -> Iterator[tuple[str, Float[Tensor, "*B T S"] | Float[Tensor, "*B T"] | Int[Tensor, "*B T"]]]:
    yield from ((name, each) for name, each in alignment._asdict().items() if each is not None)
    if alignment.probabilities is not None:
        most, places = alignment.weights.max(dim=-1)
        yield "chosen", places.masked_fill(most != 1, -1)
    if alignment.centers is not None and isinstance(module.alignment_function, LocalAlignment):
        yield "reach", torch.full_like(alignment.centers, module.alignment_function.half_width)
    if alignment.boundaries is not None or isinstance(
        module.alignment_function, MonotonicAlignment
    ):
        yield "frontier", _expected_position(alignment.pointers, call.memory.mask)


def _state_tensors(
    alignment: AlignmentOutput, call: _AttentionCall
) -> Iterator[tuple[str, Float[Tensor, "*B T S"]]]:
    if call.state is not None:
        weights = alignment.weights
        yield "coverage", call.state.coverage.unsqueeze(-2) + weights.cumsum(dim=-2) - weights


def _expected_position(
    pointers: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
) -> Float[Tensor, "*B T"]:
    """The place where a pointer is expected; one that has walked off stands beyond the last."""
    places = torch.arange(pointers.size(-1), device=pointers.device)
    walked_off = (1 - pointers.sum(dim=-1)).clamp(min=0)
    return (pointers * places).sum(dim=-1) + walked_off * mask.sum(dim=-1)


def _to_rows_and_heads(each: Tensor, axis: int, has_heads: bool) -> Tensor:
    """Make rows and heads the first two dimensions; `axis` is that of the queries."""
    each = each if has_heads else each.unsqueeze(axis)
    heads = axis - 1 if has_heads else axis
    return each.detach().reshape(math.prod(each.shape[:heads]), *each.shape[heads:])


def _match_rows(before: TraceRecord, after: TraceRecord) -> Int[Tensor, "B"]:
    """Say for each row of a record from which row of the one before it goes on."""
    assert before.cumulative_weights is not None, "only a past makes queries follow on others"
    assert after.cumulative_weights is not None, "only a past makes queries follow on others"
    _, come_to = before.cumulative_weights
    come_from, _ = after.cumulative_weights
    same = (come_from.unsqueeze(1) == come_to).flatten(2).all(dim=-1)  # (rows after, rows before)
    lost = (~same.any(dim=1)).nonzero().flatten().tolist()
    if lost:
        raise DataError(
            f"trace of {after.module_path!r}",
            f"row {lost[0]} of step {after.step} goes on from no row of the step before",
            "trace one sequence or one search at a time",
        )
    likeness = same.to(torch.float)
    likeness.diagonal().mul_(2)  # without a search a row goes on from itself
    return likeness.argmax(dim=1)


def _check_single_run(records: Sequence[TraceRecord]) -> None:
    sites = sorted({record.module_path for record in records})
    if len(sites) != 1:
        found = f"{len(sites)} sites: {', '.join(sites)}" if sites else "no records"
        raise DataError("trace", f"one site can be joined, found {found}", "pick those of one site")
    for before, after in pairwise(records):
        if after.step != before.query_positions[-1] + 1:
            raise DataError(
                f"trace of {after.module_path!r}",
                f"step {after.step} does not follow on step {before.query_positions[-1]}",
                "trace one sequence or one search at a time, and all of its queries",
            )
