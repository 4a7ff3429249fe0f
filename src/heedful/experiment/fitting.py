"""Fitting: which is the largest batch that memory has room for?

Tried on the worst batch that the data can give, not on the mean one. A GPU is asked until it
refuses. A processor's memory cannot be asked, since who asks too much is killed: so a few sizes
are measured, and bytes = a + b * rows is solved for what is free.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from heedful.config import resolve
from heedful.corpora import Corpora
from heedful.errors import ConfigError
from heedful.experiment.demands import Demand, size_in
from heedful.experiment.room import free_memory
from heedful.experiment.sizing import largest, weigh
from heedful.experiment.trials import Form, Trial, TrialProcess, is_out_of_memory
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.training.memory import resident_memory
from heedful.training.ranks import Ranks

Tell = Callable[[str], None]

SHARE_OF_FREE = 0.8  # of a processor's memory: others want some too
_NUM_TOLD = 4  # trials that are told of
SHARE_OF_FITTING = 0.9  # of what a GPU took: memory is more scattered later


def fitted(
    recipe: Recipe,
    corpora: Corpora,
    run: Run,
    device: torch.device,
    ranks: Ranks,
    *,
    limit: int | None,
    tell: Tell,
) -> Recipe:
    """Give a recipe, its run and its corpora the largest batch that fits; one rank looks for it."""
    found = 0
    if ranks.is_first:
        found = fit_batch(recipe, corpora, device, limit=limit, world=ranks.world, tell=tell)
    size = int(ranks.total(torch.tensor(float(found), dtype=torch.float64)))
    recipe = _with_batch(recipe, size)
    if ranks.is_first:
        run.replace_recipe(recipe)
    ranks.wait()
    corpora.recipe = recipe
    return recipe


def with_recorded_batch(recipe: Recipe, run: Run) -> Recipe:
    """Give a recipe the batch that was found when its run was begun, if it was."""
    return _with_batch(recipe, size_in(run.read_recipe())) if run.exists else recipe


def fit_batch(
    recipe: Recipe,
    corpora: Corpora,
    device: torch.device,
    *,
    tell: Tell,
    limit: int | None = None,
    world: int = 1,
) -> int:
    """Find the largest `max_tokens` (pairs) or `count` of streams (text) that fits.

    `limit` is the most bytes that this process, or its part of a GPU, may take; `world` says among
    how many processes a batch is divided.
    """
    asked = Demand.by(recipe, corpora)
    on_gpu = device.type == "cuda"
    found = _fit_gpu(asked, device, limit) if on_gpu else _fit_cpu(asked, limit, world)
    size = asked.size(found.form, min(found.rows * world, asked.most))
    for line in (*found.told, *_what_changes(recipe, size)):
        tell(f"memory-fit: {line}")
    return size


class _Found(NamedTuple):
    form: Form
    rows: int
    told: list[str]


def _fit_gpu(asked: Demand, device: torch.device, limit: int | None) -> _Found:
    tried = list[str]()
    index = torch.cuda.current_device() if device.index is None else device.index
    device = torch.device("cuda", index)
    total = torch.cuda.get_device_properties(device).total_memory
    with torch.random.fork_rng([device]):
        form = asked.worst(Trial(asked.recipe, asked.sizes, device).saved)

        def fits(rows: int) -> bool:
            _release()
            try:
                Trial(asked.recipe, asked.sizes, device).learn(form, rows)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                tried.append(f"{asked.size(form, rows):,} did not")
                return False
            tried.append(f"{asked.size(form, rows):,} fitted")
            return True

        torch.cuda.set_per_process_memory_fraction(min(1.0, (limit or total) / total), device)
        try:
            rows = largest(fits, asked.rows(form), math.ceil(asked.most / SHARE_OF_FITTING))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
            _release()
    room = min(limit or total, total)
    if not rows:
        raise _too_small(form, room)
    kept = max(1, math.floor(SHARE_OF_FITTING * rows))
    told = [
        f"batches of {_in_words(form)}, in {asked.unit}: {', '.join(tried[-_NUM_TOLD:])}",
        f"{100 * SHARE_OF_FITTING:g} % of the largest is taken, of {_bytes(room)} on {device}",
    ]
    return _Found(form, kept, told)


def _release() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def _fit_cpu(asked: Demand, limit: int | None, world: int) -> _Found:
    free = free_memory()
    if limit is not None:
        free = min(free, limit - resident_memory())
    # Ranks of one machine share its memory.
    room = SHARE_OF_FREE * free / min(world, int(os.environ.get("LOCAL_WORLD_SIZE", world)))
    with _Scales(asked) as scales:
        points = weigh(scales, asked.rows(scales.form), asked.most, room)
    form = scales.form
    fitting = [rows for rows, taken in points.items() if taken <= room]
    if not fitting:
        raise _too_small(form, room)
    tried = ", ".join(
        f"{asked.size(form, rows):,} took {_bytes(points[rows])}"
        for rows in sorted(points)[-_NUM_TOLD:]
    )
    return _Found(
        form,
        max(fitting),
        [
            f"batches of {_in_words(form)}, in {asked.unit}: {tried}, beside the program itself",
            f"room is {100 * SHARE_OF_FREE:g} % of the {_bytes(free)} free: {_bytes(room)}",
        ],
    )


class _Scales:
    """Weighs updates; a peak only ever rises, so for a smaller one the process begins anew."""

    def __init__(self, asked: Demand) -> None:
        self._asked = asked
        self._last = 0
        self._process = TrialProcess(asked.recipe, asked.sizes)
        self.form = asked.worst(self._process.saved)

    def __enter__(self) -> _Scales:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.__exit__(*exception)

    def __call__(self, rows: int) -> float:
        if rows < self._last:
            self._process.__exit__()
            self._process = TrialProcess(self._asked.recipe, self._asked.sizes)
        self._last = rows
        return self._process.peak(self.form, rows)


def _what_changes(recipe: Recipe, size: int) -> Iterator[str]:
    name, before = _setting(recipe), size_in(recipe)
    yield f"chosen: {name}={size} (the recipe has {before})"
    if size != before:
        rate = recipe.training.optimizer.learning_rate
        yield (
            f"this changes what is learned: the learning rate of {rate:g} was chosen for {before}, "
            f"and updates are now {size / before:.3g} times as large, so fewer see the same data; "
            "try others with --set training.optimizer.learning_rate=..."
        )


def _setting(recipe: Recipe) -> str:
    return "data.streams.count" if recipe.is_of_text else "training.batching.max_tokens"


def _with_batch(recipe: Recipe, size: int) -> Recipe:
    settings = recipe.model_dump(mode="json")
    *path, last = _setting(recipe).split(".")
    place = settings
    for name in path:
        place = place[name]
    place[last] = size
    return resolve(Recipe, settings, origin="--memory-fit")


def _too_small(form: Form, room: float) -> ConfigError:
    return ConfigError(
        "--memory-fit",
        f"there is no room for even one row of {_in_words(form)}: {_bytes(max(0, room))}",
        "take a smaller model, leave out the longest texts, or allow more with --memory-limit",
    )


def _in_words(form: Form) -> str:
    source = f"{form.source_width} + " if form.source_width else ""
    return f"the worst texts ({source}{form.target_width} tokens)"


def _bytes(count: float) -> str:
    if not math.isfinite(count):
        return "too much"
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
