"""The ranks of a training: those of a launcher, processes on the cores of a CPU, or one process.

On a CPU with four cores or more, heedful starts a process for every two of them, each on cores of
its own. Invariants: this process is rank 0; the others end with it, however it ends; one that dies
or fails ends the training with its error.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import torch

from heedful.experiment.environment import usable_cores
from heedful.experiment.plan import TrainingPlan
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.parallel import WorkerDiedError, WorkerProcess, is_worker
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.task_data import VocabSizes
from heedful.training.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    DistributedError,
    is_distributed,
)
from heedful.training.shared_memory import SharedBarrier, SharedMemoryContext, create_shared_file

THREADS_PER_RANK = 2
_MIN_CORES = 4  # with fewer, threads are as fast
_MAX_RANKS = 64
_MIN_PARAMETERS = 100_000  # besides those of tokens: smaller models are trained before ranks start
_VOCAB_SIZES = VocabSizes(100, 100)  # of a model that is only looked at

TrainRank = Callable[[TrainingPlan, DistributedContext, torch.device], object]


@contextmanager
def join_ranks(
    plan: TrainingPlan, train_rank: TrainRank
) -> Iterator[tuple[DistributedContext, torch.device]]:
    """Yield the context and the device of this rank; other ranks on this CPU run `train_rank`."""
    if is_distributed():
        from heedful.training.data_parallel import init_distributed  # a fifth of all imports

        with init_distributed(plan.device, plan.config.distributed_strategy) as joined:
            yield joined
        return
    cores = rank_cores(plan)
    if len(cores) == 1:
        yield SINGLE_PROCESS, plan.device
        return
    with start_ranks(plan, cores, train_rank) as context:
        yield context, plan.device


def rank_cores(plan: TrainingPlan) -> list[list[int]]:
    """Return the cores of each rank on this CPU; a single list if there is one process."""
    if plan.device.type != "cpu" or not hasattr(os, "memfd_create"):
        return [[]]
    cores = usable_cores()
    num_ranks = plan.config.cpu_processes
    if num_ranks is None:
        num_ranks = len(cores) // THREADS_PER_RANK if len(cores) >= _MIN_CORES else 1
        num_ranks = min(num_ranks, _MAX_RANKS, plan.recipe.task.data.max_ranks(plan.recipe))
    if num_ranks <= 1 or is_worker() or not _can_split(plan):
        return [[]]
    share = max(1, len(cores) // num_ranks)
    return [
        [cores[(rank * share + index) % len(cores)] for index in range(share)]
        for rank in range(num_ranks)
    ]


def _can_split(plan: TrainingPlan) -> bool:
    """Return whether ranks that take rows of a batch train as one process does."""
    if plan.auto_find_batch_size or plan.config.distributed_strategy != "ddp":
        return False
    with torch.device("meta"):
        model = plan.recipe.task.build_model(plan.recipe, _VOCAB_SIZES)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    is_small = plan.config.cpu_processes is None and num_parameters < _MIN_PARAMETERS
    return not is_small and not any(_counts_batch(module) for module in model.modules())


def _counts_batch(module: torch.nn.Module) -> bool:
    """Return whether a module computes something of the whole batch."""
    return isinstance(module, torch.nn.modules.batchnorm._BatchNorm | MixtureOfExperts)


class RankTask(NamedTuple):
    """What a rank needs to know."""

    recipe: Recipe
    folder: Path
    descriptor: int
    rank: int
    world_size: int
    num_threads: int


@dataclass
class RankJob:
    """Another rank, in a process of its own."""

    train_rank: TrainRank

    def setup(self, *, is_shared: bool) -> Callable[[RankTask], None]:
        """Return the function that trains."""
        del is_shared
        return self._train

    def _train(self, task: RankTask) -> None:
        torch.set_num_threads(task.num_threads)
        barrier = SharedBarrier(task.descriptor, task.rank, task.world_size)
        device = torch.device("cpu")
        try:
            plan = TrainingPlan(task.recipe, Run(task.folder), device)
            self.train_rank(plan, SharedMemoryContext(barrier, task.descriptor), device)
        except BaseException:
            barrier.fail()
            raise


@contextmanager
def start_ranks(
    plan: TrainingPlan, cores: Sequence[Sequence[int]], train_rank: TrainRank
) -> Iterator[DistributedContext]:
    """Start the other ranks, and yield the context of rank 0, which is this process."""
    world_size, num_threads = len(cores), len(cores[0])
    errors: list[Exception] = []

    def raise_failure() -> None:
        if errors:
            raise errors[0]

    with ExitStack() as stack:
        descriptor = create_shared_file(world_size)
        stack.callback(os.close, descriptor)
        barrier = SharedBarrier(descriptor, 0, world_size, raise_failure=raise_failure)

        def watch(worker: WorkerProcess[RankTask, None]) -> None:
            try:
                worker.receive().result()
            except WorkerDiedError as error:
                hint = "run the same command to resume from the last checkpoint"
                errors.append(DistributedError(error.location, error.message, hint))
                barrier.fail()
            except Exception as error:
                errors.append(error)
                barrier.fail()

        for rank in range(1, world_size):
            name = f"rank {rank} of {world_size}"
            process = WorkerProcess(RankJob(train_rank), name=name, descriptors=[descriptor])
            worker = stack.enter_context(process)
            os.sched_setaffinity(worker.pid, cores[rank])  # its threads inherit it
            args = plan.recipe, plan.run.folder, descriptor, rank, world_size, num_threads
            worker.send(0, RankTask(*args))
            Thread(target=watch, args=[worker], daemon=True).start()
        stack.enter_context(_on_cores(cores[0]))
        yield SharedMemoryContext(barrier, descriptor)


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keep all threads of this process on these cores, and torch to as many threads."""
    num_threads, allowed = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(len(cores))
    _pin_threads(cores)
    try:
        yield
    finally:
        _pin_threads(allowed)
        torch.set_num_threads(num_threads)


def _pin_threads(cores: Sequence[int] | set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it may have ended
            os.sched_setaffinity(int(thread.name), cores)
