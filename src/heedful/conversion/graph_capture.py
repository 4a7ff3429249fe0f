"""Capturing modules as graphs by torch.export.

No kernels run, and each recurrence is one `scan`, so that a graph serves any batch size and
length. Invariant: code is read as torch.compile reads it, without a graph break, or an error.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from heedful.attention.monotonic_alignment import linear_recurrence
from heedful.errors import RunError
from heedful.layers.rnn import unroll
from heedful.layers.rnn_cells import RecurrentCell, RecurrentState, final_state, is_history
from heedful.ops import OPS
from heedful.shapes import Lengths


def capture(
    module: nn.Module, inputs: tuple[Tensor, ...], dynamic_shapes: tuple[Any, ...]
) -> ExportedProgram:
    """Capture a module; raise RunError if its code depends on values or sizes."""
    import torch._dynamo
    from torch.fx.experimental import _config

    with (
        explain_capture_errors(),
        torch.no_grad(),
        plain_ops(),
        torch._dynamo.config.patch(allow_rnn=True),
        _config.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]  # 0 and 1, too
    ):
        # Strict: the code is read as torch.compile reads it, so that `len(inputs)` is dynamic.
        return torch.export.export(
            module.eval(), inputs, dynamic_shapes=dynamic_shapes, strict=True
        )


@contextmanager
def explain_capture_errors() -> Iterator[None]:
    """Turn errors of torch, of many types, into a RunError with their first line."""
    try:
        yield
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = f"the model cannot be captured as a graph ({lines[0]})"
        hint = "please report the recipe: nothing was written"
        raise RunError("torch.export", message, hint) from error


def to_onnx(
    program: ExportedProgram,
    inputs: list[str],
    outputs: list[str],
    translations: Mapping[Any, Any] | None = None,
) -> torch.onnx.ONNXProgram:
    """Return a captured graph as ONNX; `translations` are those of operators of our own."""
    with _without_messages(), explain_capture_errors():
        exported = torch.onnx.export(
            program,
            (),
            input_names=inputs,
            output_names=outputs,
            verbose=False,
            custom_translation_table=dict(translations or {}),
        )
    assert exported is not None
    return exported


@contextmanager
def _without_messages() -> Iterator[None]:
    """Suppress notes of the ONNX exporter, such as that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def plain_ops() -> Iterator[None]:
    """Run no kernels, and recurrences as a `scan`, whose graph does not depend on the length."""
    kernels = [(op, op.kernels) for op in OPS]
    try:
        for op in OPS:
            op.kernels = []
        unroll.register("scan", _scan_steps, _has_no_history)
        linear_recurrence.register("scan", _scan_recurrence, lambda gains, decays: True)
        yield
    finally:
        for op, previous in kernels:
            op.kernels = previous


def _has_no_history(
    cell: RecurrentCell, inputs: Tensor, state: RecurrentState, lengths: Lengths | None
) -> bool:
    return not any(map(is_history, state))


def _scan_steps(
    cell: RecurrentCell, inputs: Tensor, state: RecurrentState, lengths: Lengths | None
) -> tuple[Tensor, RecurrentState | None]:
    from torch._higher_order_ops.scan import scan

    def step(carried: RecurrentState, projected: Tensor) -> tuple[RecurrentState, RecurrentState]:
        after = tuple(cell.step(projected, carried))
        return after, tuple(part.clone() for part in after)  # outputs may not be aliases

    _, states = scan(step, tuple(state), cell.project_inputs(inputs), dim=1)
    return states[0], None if lengths is None else final_state(state, states, lengths)


def _scan_recurrence(gains: Tensor, decays: Tensor) -> Tensor:
    from torch._higher_order_ops.scan import scan

    def step(carried: Tensor, terms: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        gain, decay = terms
        after = gain + decay * carried
        return after, after.clone()

    dim = gains.dim() - 1
    return scan(step, torch.zeros_like(gains[..., 0]), (gains, decays), dim=dim)[1]
