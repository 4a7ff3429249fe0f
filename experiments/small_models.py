"""Bytes against BLEU: what a small translator loses, and what distillation gives back.

Claim: a student of a few megabytes that learns the outputs of a larger model is nearly as good
(Kim and Rush 2016). Measured: students of 1 to 10 MB, weights in int8 and tokenizers, that learn
either the references or the outputs of an ensemble, with equal steps and settings, as `heedful
distill` builds them. Texts are Multi30k; scores are sacreBLEU of its test set of 2016, beam 5.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

import heedful
from experiments import heading, row
from experiments.jobs import Result, format_scores, run_jobs
from heedful.config import to_overrides
from heedful.data.text_files import read_lines
from heedful.experiment.distillation import choose_size
from heedful.experiment.plan import load_training_recipe
from heedful.experiment.train import train
from heedful.recipes import Recipe
from heedful.runs import Run, load
from heedful.tasks.translation.distillation import write_outputs
from heedful.tasks.translation.translator import TranslationOptions

SIZES = (1, 2, 3, 5, 10)
MEMBER, TEACHER, REFERENCES, DISTILLED = "member", "teacher", "references", "distilled"
_BEAM_SIZE = 5
_QUIET = Console(quiet=True)
_VALIDATION = {"training.metric_for_best_model": "bleu", "training.max_eval_samples": 300}
_TEACHER_SETTINGS = {
    "training.lr_scheduler": {"type": "cosine", "warmup_ratio": 0.1},
    "training.ema": {"decay": 0.999},
}
_TITLES = {REFERENCES: "from references", DISTILLED: "distilled"}


class Job(NamedTuple):
    """A student, a member of a teacher (0 MB), or the teacher, an ensemble of them (seed 0)."""

    languages: str
    system: str
    megabytes: float = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of its run."""
        return f"{self.languages}-{self.system}-{self.megabytes:g}MB-{self.seed}"


class Experiment(NamedTuple):
    """Where texts and runs are, and how long models are trained."""

    data: Path
    folder: Path
    teacher_recipe: str
    teacher_steps: int
    num_teachers: int
    student_recipe: str
    steps: int
    batch_tokens: int
    device: str
    settings: Sequence[str]

    def text(self, split: str, language: str) -> Path:
        """Return a file of Multi30k."""
        return self.data / f"{split}.{language}.gz"

    def members(self, languages: str) -> list[Job]:
        """Return the members of a teacher."""
        return [Job(languages, MEMBER, seed=seed + 1) for seed in range(self.num_teachers)]

    def needed(self, job: Job) -> list[Job]:
        """Return what has to be there before this job begins."""
        if job.system == TEACHER:
            return self.members(job.languages)
        return [Job(job.languages, TEACHER)] if job.system == DISTILLED else []

    def run(self, job: Job) -> Path:
        """Return the run of a student or a member."""
        return self.folder / job.name

    def outputs(self, languages: str) -> Path:
        """Return the file of the outputs of a teacher."""
        return self.folder / f"{languages}-teacher.txt"

    def data_settings(self, languages: str) -> dict[str, Any]:
        """Return settings of the texts that all models are validated on."""
        source, target = (str(self.text("val", language)) for language in languages.split("-"))
        return {"data.dev": {"type": "parallel-files", "source": source, "target": target}}


def train_job(job: Job, experiment: Experiment) -> Result:
    """Train a model, or write the outputs of a teacher; return BLEU on the test texts, and size."""
    start = time.monotonic()
    if job.system == TEACHER:
        write_teacher_outputs(job, experiment)
        first, *others = map(experiment.run, experiment.members(job.languages))
    else:
        make_recipe = _member_recipe if job.system == MEMBER else _student_recipe
        first, others = experiment.run(job), []
        train(make_recipe(job, experiment), first, device=experiment.device, console=_QUIET)
    return {
        "bleu": measure_bleu(first, job, experiment, ensemble_with=others),
        "bytes": sum(num_saved_bytes(Run(run)) for run in (first, *others)),
        "seconds": round(time.monotonic() - start),
    }


def measure_bleu(
    run: Path, job: Job, experiment: Experiment, ensemble_with: Sequence[Path]
) -> float:
    """Return BLEU on the test texts."""
    source, target = (experiment.text("test_2016_flickr", one) for one in job.languages.split("-"))
    score, *_ = heedful.evaluate(
        run,
        source=str(source),
        target=str(target),
        metrics=["bleu"],
        settings=[f"decoding.beam_size={_BEAM_SIZE}"],
        ensemble_with=ensemble_with,
        device=experiment.device,
    )
    return round(score.value, 2)


def _member_recipe(job: Job, experiment: Experiment) -> Recipe:
    source, target = (experiment.text("train", language) for language in job.languages.split("-"))
    settings = {
        "data.train": {"type": "parallel-files", "source": str(source), "target": str(target)},
        **experiment.data_settings(job.languages),
        "training.seed": job.seed,
        "training.max_steps": experiment.teacher_steps,
        **_VALIDATION,
        **_TEACHER_SETTINGS,
    }
    return load_training_recipe(
        experiment.teacher_recipe, to_overrides(settings), experiment.device
    )


def _student_recipe(job: Job, experiment: Experiment) -> Recipe:
    source, target = (experiment.text("train", language) for language in job.languages.split("-"))
    if job.system == DISTILLED:
        target = experiment.outputs(job.languages)
    settings = {
        **experiment.data_settings(job.languages),
        "training.seed": job.seed,
        "training.max_steps": experiment.steps,
        **_VALIDATION,
        "training.batching.max_tokens": experiment.batch_tokens,
    }
    overrides = [*to_overrides(settings), *to_overrides(experiment.settings)]
    size = choose_size(int(job.megabytes * 1e6), "int8", experiment.student_recipe)
    return size.load_recipe(source, target, overrides)


def write_teacher_outputs(job: Job, experiment: Experiment) -> None:
    """Write the output for each training text: that of the beam closest to the reference."""
    sources, references = (
        list(read_lines(str(experiment.text("train", language))))
        for language in job.languages.split("-")
    )
    first, *others = map(experiment.run, experiment.members(job.languages))
    teacher = load(first, device=experiment.device, ensemble_with=others, task="translation")
    options = TranslationOptions(beam_size=_BEAM_SIZE, n_best=_BEAM_SIZE, too_long="cut")
    path = experiment.outputs(job.languages)
    write_outputs(teacher, sources, path, options, references=references)


def num_saved_bytes(run: Run) -> int:
    """Return the bytes of the weights and tokenizers of a run."""
    tokenizers = (path for path in (run.folder / "tokenizers").rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in chain([run.weights_file], tokenizers))


def format_table(results: Iterable[Mapping[str, Any]], languages: str, recipe: str) -> str:
    """Return a table: BLEU of each size, mean and standard deviation over seeds."""
    rows = [item for item in results if item["languages"] == languages]
    members = [item["bleu"] for item in rows if item["system"] == MEMBER]
    sizes = sorted({item["megabytes"] for item in rows} - {0})
    lines = [heading([languages, "hidden size", "MB on disk", *_TITLES.values()])]
    for item in rows:
        if item["system"] == TEACHER:
            name, size = f"ensemble of {len(members)}", f"{item['bytes'] / 1e6:.1f}"
            lines.append(row([name, "", size, f"{item['bleu']:.1f}", ""]))
            lines.append(row(["its members", "", "", format_scores(members), ""]))
    for size in sizes:
        students = [item for item in rows if item["megabytes"] == size]
        scores = [[one["bleu"] for one in students if one["system"] == name] for name in _TITLES]
        units = choose_size(int(size * 1e6), "int8", recipe).hidden_size
        largest = max(item["bytes"] for item in students) / 1e6
        cells = [str(units), f"{largest:.2f}", *map(format_scores, scores)]
        lines.append(row([f"{size:g} MB", *cells]))
    return "\n".join(lines)


def plan_jobs(
    members: Iterable[Job], languages: Sequence[str], sizes: Sequence[float], seeds: int
) -> list[Job]:
    """Return all jobs: members and teachers first, then students, the largest first."""
    students = [
        Job(pair, system, size, seed)
        for seed in range(1, seeds + 1)
        for system in (REFERENCES, DISTILLED)
        for pair in languages
        for size in sorted(sizes, reverse=True)
    ]
    return [*members, *(Job(pair, TEACHER) for pair in languages), *students]


def main(
    data: Annotated[Path, typer.Argument(help="folder of Multi30k: train.de.gz and so on")],
    *,
    pair: Annotated[list[str] | None, typer.Option(help="languages; repeatable")] = None,
    size: Annotated[list[float] | None, typer.Option(help="megabytes; repeatable")] = None,
    seeds: Annotated[int, typer.Option(help="trainings of each student")] = 3,
    teacher_recipe: Annotated[
        str, typer.Option(help="recipe of the teachers")
    ] = "transformer-2017-small",
    teacher_steps: Annotated[int, typer.Option(help="steps of a teacher")] = 6000,
    teachers: Annotated[int, typer.Option(help="members of an ensemble that teaches")] = 3,
    student_recipe: Annotated[str, typer.Option(help="recipe of the students")] = "default",
    steps: Annotated[int, typer.Option(help="steps of a student")] = 4000,
    batch_tokens: Annotated[int, typer.Option(help="tokens of a student's batch")] = 4096,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="setting of the students; repeatable")
    ] = None,
    folder: Annotated[Path, typer.Option(help="runs and results")] = Path("runs/small-models"),
    jobs: Annotated[int, typer.Option(help="trainings at a time")] = 8,
    minutes: Annotated[float, typer.Option(help="start no training after this time")] = 1e9,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
    results: Annotated[
        Path | None, typer.Option(help="JSON lines of results; FOLDER/results.jsonl if not given")
    ] = None,
) -> None:
    """Train teachers and students of several sizes; print a table of bytes against BLEU.

    While the teacher learns, students learn from the references. Results are kept: the same command
    trains what is missing.

    Example: python -m experiments.small_models multi30k --pair de-en --seeds 3 --jobs 12
    """
    folder.mkdir(parents=True, exist_ok=True)
    languages = pair or ["de-en", "fr-en"]
    experiment = Experiment(
        data=data,
        folder=folder,
        teacher_recipe=teacher_recipe,
        teacher_steps=teacher_steps,
        num_teachers=teachers,
        student_recipe=student_recipe,
        steps=steps,
        batch_tokens=batch_tokens,
        device=device,
        settings=tuple(set_ or ()),
    )
    members = chain.from_iterable(map(experiment.members, languages))
    done = run_jobs(
        plan_jobs(members, languages, size or SIZES, seeds),
        partial(train_job, experiment=experiment),
        results or folder / "results.jsonl",
        workers=jobs,
        needed=experiment.needed,
        max_minutes=minutes,
    )
    for one in languages:
        typer.echo("\n" + format_table(done, one, student_recipe))


if __name__ == "__main__":
    typer.run(main)
