"""Trials: what does one update take, at a size that training has not come to yet?

A trial learns from made-up tokens in the shape of a batch, and what it learned is thrown away. What
it takes of a processor's memory is measured in a process of its own: there the peak is the trial's
alone, and a trial that takes too much is killed without training being killed.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from heedful.data.collate import Batch, Sources
from heedful.data.running import TextBatch
from heedful.errors import RunError
from heedful.experiment.learners import build_learner
from heedful.recipes import Recipe
from heedful.text.config import TextPair
from heedful.text.vocabulary import NUM_SPECIALS
from heedful.training.memory import peak_memory, resident_memory
from heedful.training.ranks import ALONE

_CPU = torch.device("cpu")
_MOST_UPDATES = 20  # with fp16 the first few may be skipped
_SERVE = "from heedful.experiment.trials import serve; serve()"


class Form(NamedTuple):
    """How wide the rows of a batch are; running text has no source."""

    source_width: int
    target_width: int


class Vocabularies(NamedTuple):
    """How many tokens there are."""

    source: int
    target: int


class _Counted(NamedTuple):
    """Stands for tokenizers where only the number of their tokens is asked for."""

    source: range
    target: range


class Trial:
    """A learner that nobody will miss."""

    def __init__(self, recipe: Recipe, sizes: Vocabularies, device: torch.device) -> None:
        self._sizes = sizes
        # As many batches as can be in the way of one another: one, and the gradients of one before.
        self._num_batches = min(2, recipe.training.accumulate)
        text = cast(TextPair, _Counted(range(sizes.source), range(sizes.target)))
        self._learner = build_learner(recipe, text, lambda step: 0.0, ranks=ALONE, device=device)

    def learn(self, form: Form, rows: int) -> None:
        """Update until one was taken with all there that an optimizer keeps from the first on."""
        group = [self._batch(form, rows)] * self._num_batches
        num_learned = 0
        for _ in range(_MOST_UPDATES):
            had_state = bool(self._learner.optimizer.state)
            num_learned += not self._learner.update(group).skipped
            if had_state or num_learned == 2:
                break

    def saved(self, form: Form, rows: int) -> int:
        """Count the bytes that are kept from reading forwards until they are needed backwards."""
        kept = dict[int, int]()

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            self._learner.update([self._batch(form, rows)])
        return sum(kept.values())

    def _batch(self, form: Form, rows: int) -> Batch | TextBatch:
        targets = _tokens(self._sizes.target, rows, form.target_width)
        if not form.source_width:
            return TextBatch(targets, targets)
        sources = _tokens(self._sizes.source, rows, form.source_width)
        return Batch(Sources(sources, torch.full((rows,), form.source_width)), targets, targets)


def _tokens(size: int, rows: int, width: int) -> Tensor:
    return torch.randint(min(NUM_SPECIALS, size - 1), size, (rows, width))


class TrialProcess:
    """Trials on the processor, in a process of their own."""

    def __init__(self, recipe: Recipe, sizes: Vocabularies) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        settings = recipe.model_dump(mode="json")
        self._say({"recipe": settings, "sizes": sizes, "threads": torch.get_num_threads()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def saved(self, form: Form, rows: int) -> float:
        """Count the bytes that are kept from reading forwards until they are needed backwards."""
        return self._ask("saved", form, rows)

    def peak(self, form: Form, rows: int) -> float:
        """The most bytes taken so far, after updates of this size; infinite if they killed it."""
        return self._ask("peak", form, rows)

    def _ask(self, what: str, form: Form, rows: int) -> float:
        with suppress(BrokenPipeError):  # it was killed: that it does not answer says so
            self._say([what, form, rows])
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer and self._process.wait() != -signal.SIGKILL:
            raise RunError(
                "--memory-fit",
                "an update could not be tried (see above)",
                "give the same command without --memory-fit",
            )
        return float(answer or math.inf)

    def _say(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def serve() -> None:
    """Answer a `TrialProcess`, a line for a line."""
    begun = json.loads(sys.stdin.readline())
    torch.set_num_threads(begun["threads"])
    before = resident_memory()  # what every program of this kind takes, whatever it learns
    recipe = Recipe.model_validate(begun["recipe"])
    trial = Trial(recipe, Vocabularies(*begun["sizes"]), _CPU)
    for line in sys.stdin:
        what, form, rows = json.loads(line)
        answer = _answer(trial, what, Form(*form), rows, before)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _answer(trial: Trial, what: str, form: Form, rows: int, before: int) -> float:
    try:
        if what == "saved":
            return trial.saved(form, rows)
        trial.learn(form, rows)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return math.inf
    return peak_memory(_CPU) - before


def is_out_of_memory(error: Exception) -> bool:
    """Tell memory that ran out from other failures: libraries have words of their own for it."""
    said = str(error).lower()
    words = ("out of memory", "allocate memory", "not enough memory", "alloc_failed")
    return isinstance(error, MemoryError) or any(each in said for each in words)
