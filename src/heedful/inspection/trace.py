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

from heedful.attention import Aligned, Attended, Memory, Past
from heedful.attention.attend import Attends, Kind
from heedful.attention.heads import MultiHead
from heedful.attention.local import Local
from heedful.attention.monotonic import Monotonic
from heedful.errors import DataError
from heedful.shapes import Bool, Float, Int

Device = torch.device | str | None
Totals = tuple[Float[Tensor, "B H S"], Float[Tensor, "B H S"]]


@dataclass(frozen=True, eq=False)
class Record:
    """What one module was asked in one call, and where it looked."""

    site: str
    """The module, as the dotted path from the model; empty if it is the model."""
    kind: Kind
    layer: int
    """The first number in the path, or 0."""
    queries: tuple[int, ...]
    """The numbers of the queries, the first ever asked being 0."""
    weights: Float[Tensor, "B H T S"]
    extras: dict[str, Tensor] = field(default_factory=dict)
    """What else is known, by name, each (B, H, T) or (B, H, T, S): the fields of `Aligned`;
    `reach`, how far a window goes to either side of its centre;
    `chosen`, the place that was looked at, or -1 where it was not one alone; `frontier`, how far a
    monotonic pointer got, in expectation; `coverage`, where was looked before."""
    totals: Totals | None = None
    """Where was looked before this call and with it; None where no past was carried."""

    @property
    def step(self) -> int:
        """The number of the first query."""
        return self.queries[0]


@contextmanager
def trace(
    model: nn.Module, *, rows: Collection[int] | None = None, device: Device = None
) -> Iterator[list[Record]]:
    """Record every attention within a model, in the order in which they are asked.

    `rows` are the numbers of the queries to record, if not all; a call with none of them leaves
    no record. `device` is where records are kept, if not where they were made.
    """
    records: list[Record] = []
    handles = [
        module.register_forward_hook(_recorder(site, records, rows, device), with_kwargs=True)
        for site, module in _attention_in(model)
    ]
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()


def join_steps(records: Sequence[Record]) -> Record:
    """Put the records of one site, made step after step, together into one.

    Its rows are those of the last record. Each is followed back through the steps by the past it
    came with, so a search may have dropped, repeated and reordered rows on the way. Two rows that
    have looked at every place for as much, if in another order, cannot be told apart once they
    are reordered.
    """
    _require_one_run(records)
    rows = [torch.arange(len(records[-1].weights), device=records[-1].weights.device)]
    for before, after in reversed(list(pairwise(records))):
        rows.insert(0, _origins(before, after)[rows[0]])

    def join(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part[own] for part, own in zip(parts, rows, strict=True)], dim=2)

    first, last = records[0], records[-1]
    names = first.extras
    return replace(
        first,
        queries=tuple(number for record in records for number in record.queries),
        weights=join([record.weights for record in records]),
        extras={name: join([record.extras[name] for record in records]) for name in names},
        totals=first.totals and last.totals and (first.totals[0][rows[0]], last.totals[1]),
    )


class _Call(NamedTuple):
    """What a module was asked: the parameters of `Attends.forward`."""

    queries: Tensor
    memory: Memory
    past: Past | None = None
    need_weights: bool = True


def _attention_in(model: nn.Module) -> Iterator[tuple[str, Attends]]:
    """Find what can be asked, leaving out what is a part of something found before."""
    found: set[nn.Module] = set()
    for site, module in model.named_modules():
        if isinstance(module, Attends) and module not in found:
            found.update(module.modules())
            yield site, module


def _recorder(
    site: str, records: list[Record], rows: Collection[int] | None, device: Device
) -> Callable[..., None]:
    layer = next((int(part) for part in site.split(".") if part.isdigit()), 0)

    @torch.no_grad()
    def note(module: Attends, args: Any, kwargs: Any, attended: Attended) -> None:
        call = _Call(*args, **kwargs)
        first = 0 if call.past is None else int(call.past.asked.max())
        wanted = [n for n in range(call.queries.size(-2)) if rows is None or first + n in rows]
        if wanted:
            known = {name: each.to(device) for name, each in _known(module, call, attended, wanted)}
            numbers = tuple(first + n for n in wanted)
            weights, before = known.pop("weights"), known.pop("before", None)
            totals = None if before is None else (before, known.pop("after"))
            records.append(Record(site, module.kind, layer, numbers, weights, known, totals))

    return note


def _known(
    module: Attends, call: _Call, attended: Attended, wanted: list[int]
) -> Iterator[tuple[str, Tensor]]:
    """Say by name all that is known of the wanted queries."""
    aligned = attended.aligned
    if aligned is None:
        call, wanted = _only(call, wanted), list(range(len(wanted)))
        aligned = module.weigh(call.queries, call.memory)
    axis, has_heads = aligned.weights.dim() - 2, isinstance(module, MultiHead)
    for name, each in [*_of_alignment(module, aligned, call), *_of_past(aligned, call)]:
        yield name, _shaped(each, axis, has_heads)[:, :, wanted]
    if call.past is not None and attended.past is not None:
        yield "before", _shaped(call.past.total, axis, has_heads)
        yield "after", _shaped(attended.past.total, axis, has_heads)


def _only(call: _Call, wanted: list[int]) -> _Call:
    """Leave the other queries out.

    A form without weights asks neither how many queries came before one nor where they looked,
    so each can be asked alone.
    """
    mask = call.memory.mask
    seen = mask if mask.size(-2) == 1 else mask[..., wanted, :]
    return _Call(call.queries[..., wanted, :], call.memory._replace(mask=seen))


def _of_alignment(
    module: Attends, aligned: Aligned, call: _Call
) -> Iterator[tuple[str, Float[Tensor, "*B T S"] | Float[Tensor, "*B T"] | Int[Tensor, "*B T"]]]:
    yield from ((name, each) for name, each in aligned._asdict().items() if each is not None)
    if aligned.probabilities is not None:
        most, places = aligned.weights.max(dim=-1)
        yield "chosen", places.masked_fill(most != 1, -1)
    if aligned.centres is not None and isinstance(module.align, Local):
        yield "reach", torch.full_like(aligned.centres, module.align.reach)
    if aligned.boundaries is not None or isinstance(module.align, Monotonic):
        yield "frontier", _frontier(aligned.pointers, call.memory.mask)


def _of_past(aligned: Aligned, call: _Call) -> Iterator[tuple[str, Float[Tensor, "*B T S"]]]:
    if call.past is not None:
        weights = aligned.weights
        yield "coverage", call.past.total.unsqueeze(-2) + weights.cumsum(dim=-2) - weights


def _frontier(
    pointers: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
) -> Float[Tensor, "*B T"]:
    """The place where a pointer is expected; one that has walked off stands beyond the last."""
    places = torch.arange(pointers.size(-1), device=pointers.device)
    walked_off = (1 - pointers.sum(dim=-1)).clamp(min=0)
    return (pointers * places).sum(dim=-1) + walked_off * mask.sum(dim=-1)


def _shaped(each: Tensor, axis: int, has_heads: bool) -> Tensor:
    """Make rows and heads the first two dimensions; `axis` is that of the queries."""
    each = each if has_heads else each.unsqueeze(axis)
    heads = axis - 1 if has_heads else axis
    return each.detach().reshape(math.prod(each.shape[:heads]), *each.shape[heads:])


def _origins(before: Record, after: Record) -> Int[Tensor, "B"]:
    """Say for each row of a record from which row of the one before it goes on."""
    assert before.totals is not None, "only a past makes queries follow on others"
    assert after.totals is not None, "only a past makes queries follow on others"
    _, come_to = before.totals
    come_from, _ = after.totals
    same = (come_from.unsqueeze(1) == come_to).flatten(2).all(dim=-1)  # (rows after, rows before)
    lost = (~same.any(dim=1)).nonzero().flatten().tolist()
    if lost:
        raise DataError(
            f"trace of {after.site!r}",
            f"row {lost[0]} of step {after.step} goes on from no row of the step before",
            "trace one sequence or one search at a time",
        )
    likeness = same.to(torch.float)
    likeness.diagonal().mul_(2)  # without a search a row goes on from itself
    return likeness.argmax(dim=1)


def _require_one_run(records: Sequence[Record]) -> None:
    sites = sorted({record.site for record in records})
    if len(sites) != 1:
        found = f"{len(sites)} sites: {', '.join(sites)}" if sites else "no records"
        raise DataError("trace", f"one site can be joined, found {found}", "pick those of one site")
    for before, after in pairwise(records):
        if after.step != before.queries[-1] + 1:
            raise DataError(
                f"trace of {after.site!r}",
                f"step {after.step} does not follow on step {before.queries[-1]}",
                "trace one sequence or one search at a time, and all of its queries",
            )
