"""The metrics log: how training went, for programs to read, a line at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from heedful.training.drops import DropCount
from heedful.training.observers import Observer, Report, Validation

_EVERY = 10  # steps between lines


class MetricsLog(Observer):
    """Writes a line now and then as training goes, and one for every validation."""

    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], None],
        drops: DropCount,
        beside: Callable[[], Mapping[str, Any]],
    ) -> None:
        """`beside` gives what stands in every line of training beside the report."""
        self._write = write
        self._drops = drops
        self._beside = beside
        self._tokens = 0
        self._since = time.monotonic()

    def updated(self, report: Report) -> None:
        """Write of one update in ten, and of the first."""
        self._tokens += report.num_tokens
        if report.step % _EVERY != 0 and report.step != 1:
            return
        facts = {name: value for name, value in report._asdict().items() if value not in ({}, "")}
        dropped = self._drops.take()
        counted = {} if dropped is None else {"dropped_by_experts": round(dropped, 6)}
        speed = {"tokens_per_second": round(self._tokens / (time.monotonic() - self._since), 1)}
        self._write({"kind": "training", **facts, **counted, **speed, **self._beside()})
        self._restart()

    def validated(self, validation: Validation) -> None:
        """Write of a validation; its time is not counted as training."""
        _, seconds, scores, *_ = validation
        facts = {"step": validation.step, **scores, "seconds": round(seconds, 3)}
        self._write({"kind": "validation", **facts})
        self._restart()

    def _restart(self) -> None:
        self._tokens, self._since = 0, time.monotonic()
