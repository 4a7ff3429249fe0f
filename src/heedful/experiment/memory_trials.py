"""Demands: which batch of a corpus is the worst, and how large can it be at all?"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from heedful.data.batching import Batch, SourceBatch, epoch_batches, padded_lengths
from heedful.data.pair_dataset import PairDataset
from heedful.data.token_stream import LMBatch
from heedful.errors import RunError
from heedful.experiment.environment import peak_memory, resident_memory
from heedful.experiment.training_loop import build_trainer
from heedful.recipes import Recipe
from heedful.tasks.pair_task import PairDataModule
from heedful.tasks.task import DataModule
from heedful.tasks.text_task import TextDataModule
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.training.distributed import SINGLE_PROCESS

# Trials: what does one update take, at a size that training has not come to yet?
#
# A trial learns from made-up tokens in the shape of a batch, and what it learned is thrown away. What
# it takes of a processor's memory is measured in a process of its own: there the peak is the trial's
# alone, and a trial that takes too much is killed without training being killed.

_CPU = torch.device("cpu")
_MAX_UPDATES = 20  # with fp16 the first few may be skipped
_SERVER_CODE = "from heedful.experiment.memory_trials import serve_trials; serve_trials()"


class BatchShape(NamedTuple):
    """How wide the rows of a batch are; running text has no source."""

    source_length: int
    target_length: int


class VocabSizes(NamedTuple):
    """How many tokens there are."""

    source: int
    target: int


class _FakeTokenizers(NamedTuple):
    """Stands for tokenizers where only the number of their tokens is asked for."""

    source: range
    target: range


class MemoryTrial:
    """A learner that nobody will miss."""

    def __init__(self, recipe: Recipe, sizes: VocabSizes, device: torch.device) -> None:
        self._sizes = sizes
        # As many batches as can be in the way of one another: one, and the gradients of one before.
        self._num_batches = min(2, recipe.training.gradient_accumulation_steps)
        text = cast(TokenizerPair, _FakeTokenizers(range(sizes.source), range(sizes.target)))
        self._learner = build_trainer(
            recipe, text, lambda step: 0.0, dist_context=SINGLE_PROCESS, device=device
        )

    def run_update(self, shape: BatchShape, batch_size: int) -> None:
        """Update until one was taken with all there that an optimizer keeps from the first on."""
        group = [self._batch(shape, batch_size)] * self._num_batches
        num_learned = 0
        for _ in range(_MAX_UPDATES):
            had_state = bool(self._learner.optimizer.state)
            num_learned += not self._learner.train_step(group).skip_reason
            if had_state or num_learned == 2:
                break

    def saved_activation_bytes(self, shape: BatchShape, batch_size: int) -> int:
        """Count the bytes that are kept from reading forwards until they are needed backwards."""
        kept = dict[int, int]()

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            self._learner.train_step([self._batch(shape, batch_size)])
        return sum(kept.values())

    def _batch(self, shape: BatchShape, batch_size: int) -> Batch | LMBatch:
        targets = _random_tokens(self._sizes.target, batch_size, shape.target_length)
        if not shape.source_length:
            return LMBatch(targets, targets)
        sources = _random_tokens(self._sizes.source, batch_size, shape.source_length)
        return Batch(
            SourceBatch(sources, torch.full((batch_size,), shape.source_length)), targets, targets
        )


def _random_tokens(size: int, batch_size: int, width: int) -> Tensor:
    return torch.randint(min(NUM_SPECIAL_TOKENS, size - 1), size, (batch_size, width))


class MemoryTrialProcess:
    """Trials on the processor, in a process of their own."""

    def __init__(self, recipe: Recipe, sizes: VocabSizes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER_CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        settings = recipe.model_dump(mode="json")
        self._send({"recipe": settings, "sizes": sizes, "threads": torch.get_num_threads()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def saved_activation_bytes(self, shape: BatchShape, batch_size: int) -> float:
        """Count the bytes that are kept from reading forwards until they are needed backwards."""
        return self._request("saved", shape, batch_size)

    def peak_bytes(self, shape: BatchShape, batch_size: int) -> float:
        """The most bytes taken so far, after updates of this size; infinite if they killed it."""
        return self._request("peak", shape, batch_size)

    def _request(self, what: str, shape: BatchShape, batch_size: int) -> float:
        with suppress(BrokenPipeError):  # it was killed: that it does not answer says so
            self._send([what, shape, batch_size])
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer and self._process.wait() != -signal.SIGKILL:
            raise RunError(
                "--auto-find-batch-size",
                "an update could not be tried (see above)",
                "give the same command without --auto-find-batch-size",
            )
        return float(answer or math.inf)

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def serve_trials() -> None:
    """Answer a `MemoryTrialProcess`, a line for a line."""
    begun = json.loads(sys.stdin.readline())
    torch.set_num_threads(begun["threads"])
    before = resident_memory()  # what every program of this kind takes, whatever it learns
    recipe = Recipe.model_validate(begun["recipe"])
    trial = MemoryTrial(recipe, VocabSizes(*begun["sizes"]), _CPU)
    for line in sys.stdin:
        what, form, rows = json.loads(line)
        answer = _handle_request(trial, what, BatchShape(*form), rows, before)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _handle_request(
    trial: MemoryTrial, what: str, shape: BatchShape, batch_size: int, before: int
) -> float:
    try:
        if what == "saved":
            return trial.saved_activation_bytes(shape, batch_size)
        trial.run_update(shape, batch_size)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return math.inf
    return peak_memory(_CPU) - before


def is_out_of_memory(error: Exception) -> bool:
    """Tell memory that ran out from other failures: libraries have words of their own for it."""
    message = str(error).lower()
    words = ("out of memory", "allocate memory", "not enough memory", "alloc_failed")
    return isinstance(error, MemoryError) or any(each in message for each in words)


_MAX_BUCKETS = 64  # windows of an epoch that are looked at for their forms
_ROWS_PER_READ = 1 << 20


def configured_batch_size(recipe: Recipe) -> int:
    """How large a batch a recipe asks for: tokens of pairs, or streams of text."""
    return (
        recipe.data.lm_batching.batch_size
        if recipe.is_monolingual
        else recipe.training.batching.max_tokens
    )


class MemoryProbe(NamedTuple):
    """What is to be tried."""

    recipe: Recipe
    vocab_sizes: VocabSizes
    shapes: list[BatchShape]  # of which one is the worst
    max_batch_size: int  # rows that the data has for one batch

    @classmethod
    def from_recipe(cls, recipe: Recipe, data_module: DataModule) -> MemoryProbe:
        """What a recipe demands of memory on this data."""
        sizes = VocabSizes(len(data_module.tokenizers.source), len(data_module.tokenizers.target))
        if isinstance(data_module, PairDataModule):
            most = min(len(data_module.train), recipe.training.batching.bucket_size)
            return cls(recipe, sizes, sorted(candidate_shapes(data_module.train, recipe)), most)
        assert isinstance(data_module, TextDataModule)
        context = min(recipe.data.lm_batching.context_length, len(data_module.train) - 1)
        return cls(
            recipe, sizes, [BatchShape(0, context)], max(1, len(data_module.train) // context)
        )

    def size(self, batch_shape: BatchShape, batch_size: int) -> int:
        """A number of rows as the recipe says it."""
        return batch_size if self.recipe.is_monolingual else batch_size * sum(batch_shape)

    @property
    def unit(self) -> str:
        """What that number counts."""
        return "streams" if self.recipe.is_monolingual else "tokens"

    def batch_size(self, batch_shape: BatchShape) -> int:
        """The rows that the recipe asks for."""
        size = configured_batch_size(self.recipe)
        return max(
            1,
            min(
                self.max_batch_size,
                size if self.recipe.is_monolingual else size // sum(batch_shape),
            ),
        )

    def worst_shape(self, saved: Callable[[BatchShape, int], float]) -> BatchShape:
        """The form whose tokens each keep the most bytes; weights, kept once, do not count."""
        if len(self.shapes) == 1:
            return self.shapes[0]
        return max(self.shapes, key=lambda form: (saved(form, 2) - saved(form, 1)) / sum(form))


def candidate_shapes(store: PairDataset, recipe: Recipe) -> set[BatchShape]:
    """Find the widest form there can be, and those with most target and most source for their size.

    Which of them is the worst depends on the model: logits grow with the target alone, attention
    with the square of what is read.
    """
    batching, seed = recipe.training.batching, recipe.training.seed
    seen = set[BatchShape]()
    for shape, window, _ in epoch_batches(store, batching, seed=seed, epoch=0):
        if window >= _MAX_BUCKETS:
            break
        if shape.num_tokens > batching.max_tokens / 2:  # others are rests, of which few come
            seen.add(BatchShape(shape.source_length, shape.target_length))
    widest = _widest_shape(store.for_epoch(0))
    seen.add(widest)
    return {
        widest,
        max(seen, key=lambda form: (form.target_length / form.source_length, sum(form))),
        max(seen, key=lambda form: (form.source_length / form.target_length, sum(form))),
    }


def _widest_shape(store: PairDataset) -> BatchShape:
    longest = np.zeros(2, dtype=np.int64)
    for first in range(0, len(store), _ROWS_PER_READ):
        rows = np.arange(first, min(first + _ROWS_PER_READ, len(store)))
        longest = np.maximum(
            longest, [lengths.max() + 1 for lengths in store.sequence_lengths(rows)]
        )
    return BatchShape(*(int(padded_lengths(int(length))[-1]) for length in longest))
