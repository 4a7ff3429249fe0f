"""Records of each attention call inside a model, and of each call of an output head that copies.

    with trace_attention(model) as records:
        model(batch)
    for record in records:
        print(record.module_path, record.role, record.step, record.weights.shape)
    weights = concatenate_steps(records).weights  # (B, H, T, S): decoding steps as one map

The outputs of the model do not change. Invariant: for each module the weights are (B, H, T, S),
detached, with one head if the module has none. Where a fused kernel returns no weights, they are
computed here, for the requested queries only. Where the memory is an image, `grid_weights` has its
rows and columns: (B, H, T, R, C).
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.alignments import AlignmentOutput, FixedAlignment, SoftAlignment
from heedful.attention.attention import (
    Attention,
    AttentionOutput,
    AttentionRole,
    outer_attention,
)
from heedful.attention.edits import EditedAlignment
from heedful.attention.local_alignment import LocalAlignment
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.monotonic_alignment import MonotonicAlignment
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import GatedReadout
from heedful.attention.sentinel import SentinelAttention
from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import DataError, check
from heedful.inspection.large_maps import DeferredWeights, defers
from heedful.models.base import Seq2SeqModel
from heedful.models.copying import CopyingHead
from heedful.models.image_encoders import ImageEncoder
from heedful.pytree import map_tensors
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import BOS

Device = torch.device | str | None
Totals = tuple[Float[Tensor, "B H S"], Float[Tensor, "B H S"]]


@dataclass(frozen=True, eq=False)
class TraceRecord:
    """One call of an attention module."""

    module_path: str
    """Dotted path of the module from the model; empty if it is the model."""
    role: AttentionRole | Literal["copy"]
    """What the memory is; "copy" for an output head, whose weights are p(copy from a position)."""
    layer: int
    """The first number in the path, or 0."""
    query_positions: tuple[int, ...]
    """Positions of the queries, counted from 0 over all calls with one state."""
    weights: Float[Tensor, "B H T S"]
    extras: dict[str, Tensor] = field(default_factory=dict)
    """Other tensors by name, (B, H, T) or (B, H, T, S): the fields of `AlignmentOutput`;
    `coverage`, the weights summed over earlier queries; `half_width` of a local window;
    `selected_position` of a hard alignment, -1 if there is none; `expected_position` of a monotonic
    pointer; `readout_gates` of a gated readout; `hidden_weight`, the weight of masked positions."""
    cumulative_weights: Totals | None = None
    """Weights summed over all queries before this call and after it; None without a state."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the memory, if its positions are the cells of an image."""
    deferred: DeferredWeights | None = None
    """Computes rows where there are too many weights to hold: `weights` then are views of a NaN."""

    @property
    def grid_weights(self) -> Float[Tensor, "B H T R C"]:
        """The weights as grids; only where the memory is an image."""
        assert self.grid is not None, f"the memory of {self.module_path!r} is not an image"
        return self.weights.unflatten(-1, self.grid)

    @property
    def step(self) -> int:
        """Position of the first query."""
        return self.query_positions[0]


class _AttentionCall(NamedTuple):
    """The parameters of `Attention.forward`."""

    queries: Tensor
    memory: Memory
    state: AttentionState | None = None
    need_weights: bool = True


@contextmanager
def trace_attention(
    model: nn.Module, *, rows: Collection[int] | None = None, device: Device = None
) -> Iterator[list[TraceRecord]]:
    """Record each attention call of a model, in order.

    `rows` are the query positions to record, by default all; a call without any of them leaves no
    record. Records are moved to `device`, if given.
    """
    records: list[TraceRecord] = []
    handles = []
    image_encoder = _find_image_encoder(model)
    encoder_modules = set() if image_encoder is None else set(image_encoder.modules())
    for module_path, attention in outer_attention(model):
        is_over_image = attention.role == "cross" or attention in encoder_modules
        grid = image_encoder.grid if image_encoder and is_over_image else None
        hook = _make_hook(module_path, records, rows, device, grid)
        handles.append(attention.register_forward_hook(hook, with_kwargs=True))
    for module_path, module in model.named_modules():
        if isinstance(module, CopyingHead):
            copy_hook = _make_copy_hook(module_path, records, rows, device)
            handles.append(module.register_forward_hook(copy_hook))
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()


def trace_output(
    model: Seq2SeqModel, sources: SourceBatch, tokens: list[int], device: torch.device | str
) -> list[TraceRecord]:
    """Decode one output once more, with teacher forcing, and return its attention."""
    inputs, targets = torch.tensor([[BOS, *tokens[:-1]], tokens]).split(1)
    batch = map_tensors(lambda tensor: tensor.to(device), Batch(sources, inputs, targets))
    is_large = defers(len(tokens) * max(len(tokens), int(sources.lengths.max())))
    with trace_attention(model, device="cpu") as records:
        model(batch, need_weights=not is_large)
    return records


def _find_image_encoder(model: nn.Module) -> ImageEncoder | None:
    return next((module for module in model.modules() if isinstance(module, ImageEncoder)), None)


def _make_hook(
    module_path: str,
    records: list[TraceRecord],
    rows: Collection[int] | None,
    device: Device,
    grid: tuple[int, int] | None,
) -> Callable[..., None]:
    layer = next((int(part) for part in module_path.split(".") if part.isdigit()), 0)

    @torch.no_grad()
    def record_call(module: Attention, args: Any, kwargs: Any, output: AttentionOutput) -> None:
        call = _AttentionCall(*args, **kwargs)
        first = 0 if call.state is None else int(call.state.num_queries.max())
        indices = [n for n in range(call.queries.size(-2)) if rows is None or first + n in rows]
        if not indices:
            return
        if rows is None and (deferred := _defer(module, call, output)):
            weights = torch.full((), math.nan).expand(1, *deferred.shape)
            positions = tuple(range(first, first + len(indices)))
            records.append(
                TraceRecord(module_path, module.role, layer, positions, weights, deferred=deferred)
            )
            return
        named_tensors = _named_tensors(module, call, output, indices)
        tensors = {name: tensor.to(device) for name, tensor in named_tensors}
        weights, before = tensors.pop("weights"), tensors.pop("before", None)
        cumulative = None if before is None else (before, tensors.pop("after"))
        positions = tuple(first + n for n in indices)
        # Layers that attend by blocks or to a compressed memory have other positions.
        has_grid = grid is not None and math.prod(grid) == weights.size(-1)
        record = TraceRecord(
            module_path, module.role, layer, positions, weights, tensors, cumulative
        )
        records.append(replace(record, grid=grid) if has_grid else record)

    return record_call


def _defer(
    module: Attention, call: _AttentionCall, output: AttentionOutput
) -> DeferredWeights | None:
    """Return the inputs of a call if its weights are too many to hold, and are not there yet."""
    multi_head, function = _multi_head(module), module.alignment_function
    function = function.inner if isinstance(function, EditedAlignment) else function
    num_heads = 1 if multi_head is None else multi_head.num_heads
    is_single = call.memory.mask[..., 0, 0].numel() == 1
    is_large = defers(num_heads * call.queries.size(-2) * call.memory.mask.size(-1))
    if output.alignment is not None or not (is_single and is_large):
        return None
    if not isinstance(function, SoftAlignment | FixedAlignment):  # a row depends on those before
        return None
    return DeferredWeights.from_call(module, call.queries, call.memory, call.state, num_heads)


def _make_copy_hook(
    module_path: str, records: list[TraceRecord], rows: Collection[int] | None, device: Device
) -> Callable[..., None]:
    @torch.no_grad()
    def record_call(head: CopyingHead, args: Any, output: Tensor) -> None:
        copy_probs = head.compute_distributions(*args).copy_probs.unsqueeze(1)  # (B, 1, T, S)
        indices = [n for n in range(copy_probs.size(2)) if rows is None or n in rows]
        if indices:
            weights = copy_probs[:, :, indices].detach().to(device)
            records.append(TraceRecord(module_path, "copy", 0, tuple(indices), weights))

    return record_call


def _named_tensors(
    module: Attention, call: _AttentionCall, output: AttentionOutput, query_indices: list[int]
) -> Iterator[tuple[str, Tensor]]:
    alignment = output.alignment
    if alignment is None and call.state is None:  # queries are independent
        mask = call.memory.mask
        mask = mask if mask.size(-2) == 1 else mask[..., query_indices, :]
        memory = call.memory._replace(mask=mask)
        call = _AttentionCall(call.queries[..., query_indices, :], memory)
        query_indices = list(range(len(query_indices)))
    if alignment is None:
        alignment = module.compute_weights(call.queries, call.memory, call.state)
    query_dim, has_heads = alignment.weights.dim() - 2, _multi_head(module) is not None

    def to_rows_and_heads(tensor: Tensor) -> Tensor:
        """Make batch rows and heads the first two dimensions."""
        tensor = tensor if has_heads else tensor.unsqueeze(query_dim)
        head_dim = query_dim - 1 if has_heads else query_dim
        return tensor.detach().reshape(math.prod(tensor.shape[:head_dim]), *tensor.shape[head_dim:])

    for name, tensor in _alignment_tensors(module, alignment, call):
        yield name, to_rows_and_heads(tensor)[:, :, query_indices]
    if call.state is not None and output.state is not None:
        yield "before", to_rows_and_heads(call.state.coverage)
        yield "after", to_rows_and_heads(output.state.coverage)


def _multi_head(module: Attention) -> MultiHeadAttention | None:
    """Return the multi-head attention that a module is, or adds a sentinel to."""
    inner = module.inner if isinstance(module, SentinelAttention) else module
    return inner if isinstance(inner, MultiHeadAttention) else None


def _readout_gates(module: Attention, readout: GatedReadout, queries: Tensor) -> Tensor:
    """Return the gate of each query, (*B, T) or with heads (*B, H, T)."""
    multi_head = _multi_head(module)
    if multi_head is not None:
        queries = multi_head.query_projection(queries).unflatten(-1, (multi_head.num_heads, -1))
        queries = queries.transpose(-3, -2)
    return readout.gate(queries).sigmoid().squeeze(-1)


def _alignment_tensors(
    module: Attention, alignment: AlignmentOutput, call: _AttentionCall
) -> Iterator[tuple[str, Float[Tensor, "*B T S"] | Float[Tensor, "*B T"] | Int[Tensor, "*B T"]]]:
    weights, function = alignment.weights, module.alignment_function
    function = function.inner if isinstance(function, EditedAlignment) else function
    yield from ((name, value) for name, value in alignment._asdict().items() if value is not None)
    if alignment.probabilities is not None:
        largest, positions = weights.max(dim=-1)
        yield "selected_position", positions.masked_fill(largest != 1, -1)
    if alignment.centers is not None and isinstance(function, LocalAlignment):
        yield "half_width", torch.full_like(alignment.centers, function.half_width)
    if alignment.boundaries is not None or isinstance(function, MonotonicAlignment):
        pointers = alignment.pointers
        positions = torch.arange(pointers.size(-1), device=pointers.device)
        # A pointer past the end stands at the number of positions.
        past_end = (1 - pointers.sum(dim=-1)).clamp(min=0) * call.memory.mask.sum(dim=-1)
        yield "expected_position", (pointers * positions).sum(dim=-1) + past_end
    if isinstance(module.readout, GatedReadout):
        yield "readout_gates", _readout_gates(module, module.readout, call.queries)
    hidden_weights = weights.masked_fill(call.memory.mask[..., : weights.size(-1)], 0)
    yield "hidden_weight", hidden_weights.sum(dim=-1)
    if call.state is not None:
        yield "coverage", call.state.coverage.unsqueeze(-2) + weights.cumsum(dim=-2) - weights


def concatenate_steps(records: Sequence[TraceRecord]) -> TraceRecord:
    """Concatenate the records of a module over decoding steps.

    The rows are those of the last record. Each is traced back by its cumulative weights, so a
    search may have dropped, repeated and reordered rows in between. Two rows with equal cumulative
    weights cannot be distinguished once they are reordered.
    """
    paths = sorted({record.module_path for record in records})
    description = f"{len(paths)}: {', '.join(paths)}" if paths else "none"
    message = f"the records must be of one module, but are of {description}"
    check(len(paths) == 1, "trace", message, "select the records of one module_path", DataError)
    for before, after in pairwise(records):
        last_step, location = before.query_positions[-1], f"trace of {after.module_path!r}"
        message = f"step {after.step} does not follow step {last_step}"
        hint = "trace one sequence or one search at a time, and all of its queries"
        check(after.step == last_step + 1, location, message, hint, DataError)
    first, last = records[0], records[-1]
    rows = [torch.arange(len(last.weights), device=last.weights.device)]
    for before, after in reversed(list(pairwise(records))):
        rows.insert(0, _match_rows(before, after)[rows[0]])

    def join(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part[index] for part, index in zip(parts, rows, strict=True)], dim=2)

    return replace(
        first,
        query_positions=tuple(index for record in records for index in record.query_positions),
        weights=join([record.weights for record in records]),
        extras={name: join([record.extras[name] for record in records]) for name in first.extras},
        cumulative_weights=first.cumulative_weights
        and last.cumulative_weights
        and (first.cumulative_weights[0][rows[0]], last.cumulative_weights[1]),
    )


def _match_rows(before: TraceRecord, after: TraceRecord) -> Int[Tensor, "B"]:
    """Return for each row of a record the row of the record before that it continues."""
    message = "steps can be matched by their states only"
    assert before.cumulative_weights is not None, message
    assert after.cumulative_weights is not None, message
    (_, ends), (starts, _) = before.cumulative_weights, after.cumulative_weights
    is_same = (starts.unsqueeze(1) == ends).flatten(2).all(dim=-1)  # (rows after, rows before)
    unmatched = (~is_same.any(dim=1)).nonzero().flatten().tolist()
    if unmatched:
        raise DataError(
            f"trace of {after.module_path!r}",
            f"row {unmatched[0]} of step {after.step} continues no row of the step before",
            "trace one sequence or one search at a time",
        )
    similarity = is_same.to(torch.float)
    similarity.diagonal().mul_(2)  # without a search a row continues itself
    return similarity.argmax(dim=1)
