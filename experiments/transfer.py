"""A pretrained encoder from a Hugging Face folder, frozen, tuned and from scratch.

Claim: with few labeled examples a pretrained encoder is worth more than any other choice (Devlin et
al. 2019). Measured: questions (TREC), sentiment (SST-2) and parts of speech (UD EWT), with 100,
1,000 and all training examples, by one model: its pretrained parameters frozen, all of them tuned,
and random ones in their place. Nothing is chosen by a score: there is one validation, after the
last step, on the data that the table is about.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor

import heedful
from experiments import LAB, heading, row
from experiments.jobs import format_scores, run_jobs
from heedful.data.text_files import read_lines
from heedful.storage.atomic import write_text

SIZES = (100, 1000, 0)
"""Training examples; 0 stands for all."""
SEEDS = 3
RESULTS, PAGE = "transfer.jsonl", "transfer.md"
_START, _END = "<!-- tables of python -m experiments.transfer -->\n", "<!-- end of tables -->\n"
_WEIGHTS = "model.safetensors"
_INIT_STD = 0.02  # of BERT


class Dataset(NamedTuple):
    """A task with its files, which lie in a folder of its own."""

    title: str
    folder: str
    train: str
    test: str
    label_column: int  # counted from 0; -1 if the files are in CoNLL format
    text_column: int
    max_tokens: Mapping[int, int]  # of a batch, by the number of examples
    steps: Mapping[int, int]


DATASETS = {
    "trec": Dataset(
        *("TREC, 500 test questions", "trec", "train.tsv.gz", "test.tsv.gz", 0, 2),
        max_tokens={100: 600, 1000: 600, 0: 1200},
        steps={100: 60, 1000: 200, 0: 400},
    ),
    "sst2": Dataset(
        *("SST-2, 1,821 test sentences", "sst", "sst2.train.tsv.gz", "sst2.test.tsv.gz", 0, 1),
        max_tokens={100: 600, 1000: 800, 0: 4000},
        steps={100: 60, 1000: 200, 0: 700},
    ),
    "ewt": Dataset(
        "UD English EWT, words of the dev set",
        "ud_english_ewt",
        "en_ewt-ud-train.conllu.gz",
        "en_ewt-ud-dev.conllu.gz",
        *(-1, -1),
        max_tokens={100: 1200, 1000: 2400, 0: 4800},
        steps={100: 80, 1000: 250, 0: 500},
    ),
}


class System(NamedTuple):
    """How the parameters of the encoder are used."""

    is_pretrained: bool
    encoder: Mapping[str, Any]
    learning_rate: float
    encoder_scale: float
    """Learning rate of the encoder, as a fraction."""
    steps_factor: int = 1


SYSTEMS = {
    "from scratch": System(False, {"tune": "all"}, 3e-4, 1.0, steps_factor=2),
    "frozen": System(True, {"tune": "frozen", "pool": "scalar-mix"}, 2e-3, 1.0),
    "tuned": System(True, {"tune": "all"}, 1e-3, 0.1),
}


class Job(NamedTuple):
    """One training."""

    dataset: str
    system: str
    size: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its run."""
        return f"{self.dataset}-{self.system.replace(' ', '-')}-{self.size or 'all'}-{self.seed}"


def write_random_model(folder: Path, target: Path) -> None:
    """Copy a model with random parameters in place of its own, drawn as BERT's were."""
    shutil.copytree(folder, target, ignore=lambda *_: [_WEIGHTS], dirs_exist_ok=True)
    torch.manual_seed(0)

    def draw(name: str, values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        if values.dim() > 1:
            return torch.randn(values.shape) * _INIT_STD
        is_gain = "norm" in name.lower() and name.endswith("weight")
        return torch.ones(values.shape) if is_gain else torch.zeros(values.shape)

    tensors = {name: draw(name, values) for name, values in load_file(folder / _WEIGHTS).items()}
    save_file(tensors, target / _WEIGHTS)


def write_files(job: Job, data: Path, folder: Path) -> tuple[Path, Path]:
    """Write a random part of the training data, another for each seed, and the test data."""
    dataset = DATASETS[job.dataset]
    is_conll = dataset.label_column < 0
    suffix = "conllu" if is_conll else "tsv"

    def read(file: str) -> list[str]:
        lines = list(read_lines(str(data / dataset.folder / file)))
        if is_conll:
            return [block + "\n\n" for block in "\n".join(lines).strip().split("\n\n")]
        columns = (line.split("\t") for line in lines)
        labeled = ((cells[dataset.label_column], cells[dataset.text_column]) for cells in columns)
        return [f"{label}\t{text}\n" for label, text in labeled]

    examples = read(dataset.train)
    order = random.Random(job.seed).sample(range(len(examples)), len(examples))
    kept = sorted(order[: job.size or None])
    paths = folder / f"{job.name}-train.{suffix}", folder / f"{job.name}-test.{suffix}"
    write_text(paths[0], "".join(examples[index] for index in kept))
    write_text(paths[1], "".join(read(dataset.test)))
    return paths


def build_recipe(job: Job, model: Path, files: tuple[Path, Path]) -> dict[str, Any]:
    """Return the whole recipe of a training."""
    dataset, system = DATASETS[job.dataset], SYSTEMS[job.system]
    steps = dataset.steps[job.size] * system.steps_factor
    is_tagger = dataset.label_column < 0
    columns = {} if is_tagger else {"source_column": 2, "target_column": 1}
    kind = "conll" if is_tagger else "tsv"
    train, test = ({"type": kind, "path": str(path), **columns} for path in files)
    tagger = {"type": "sequence-tagger", "dropout": 0.1}
    classifier = {"type": "text-classifier", "pooling": "attention", "dropout": 0.1}
    encoder = {"type": "pretrained", "path": str(model), **system.encoder}
    slow = {"pattern": "*features.model.*", "lr_scale": system.encoder_scale}
    return {
        "tokenizers": {
            "type": "separate",
            "source": {"type": "whitespace" if is_tagger else "word"},
            "target": {"type": "whitespace" if is_tagger else "label"},
        },
        "data": {"train": train, "dev": test},
        "model": {**(tagger if is_tagger else classifier), "encoder": encoder},
        "training": {
            "seed": job.seed,
            "max_steps": steps,
            "validate_every": steps,
            "patience": None,
            "metric_for_best_model": "accuracy",
            "batching": {"max_tokens": dataset.max_tokens[job.size]},
            "optimizer": {
                "learning_rate": system.learning_rate,
                "weight_decay": 0.01,
                "param_groups": [slow] if system.encoder_scale != 1 else [],
            },
            "lr_scheduler": {"type": "linear", "warmup_ratio": 0.1},
            "cuda_graphs": False,  # captured once for each shape, which takes longer than the steps
        },
    }


def train_job(
    job: Job, models: Mapping[bool, Path], data: Path, folder: Path, device: str
) -> dict[str, Any]:
    """Train one system in this process; return its accuracy in percent."""
    work = folder / job.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    start = time.monotonic()
    model = models[SYSTEMS[job.system].is_pretrained]
    recipe = build_recipe(job, model, write_files(job, data, work))
    result = heedful.train(recipe, work / "run", device=device, console=Console(quiet=True))
    shutil.rmtree(work)  # parameters and optimizer state of each run are 300 MB
    accuracy, seconds = -100 * result.best_score, time.monotonic() - start
    return {"accuracy": round(accuracy, 2), "seconds": round(seconds)}


def format_tables(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a table for each data set: mean and standard deviation over seeds."""
    rows = list(results)
    parts = []
    for key, dataset in DATASETS.items():
        sizes = [size for size in SIZES if any(_scores(rows, key, name, size) for name in SYSTEMS)]
        if not sizes:
            continue
        lines = [heading([dataset.title, *(f"{size:,}" if size else "all" for size in sizes)])]
        for name in SYSTEMS:
            cells = [format_scores(_scores(rows, key, name, size)) for size in sizes]
            lines.append(row([name, *cells]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _scores(rows: Iterable[Mapping[str, Any]], dataset: str, system: str, size: int) -> list[float]:
    key = (dataset, system, size)
    fields = ("dataset", "system", "size")
    return [item["accuracy"] for item in rows if tuple(item[name] for name in fields) == key]


def main(
    model: Annotated[Path, typer.Argument(help="Hugging Face folder of the encoder")],
    data: Annotated[Path, typer.Argument(help="folder with trec, sst and ud_english_ewt")],
    *,
    output_dir: Annotated[Path, typer.Option(help="write the tables here")] = LAB,
    folder: Annotated[Path, typer.Option(help="results, and runs while they train")] = Path(
        "runs/transfer"
    ),
    only: Annotated[list[str] | None, typer.Option(help="trec, sst2 or ewt; repeatable")] = None,
    size: Annotated[list[int] | None, typer.Option(help="examples, 0 for all")] = None,
    seeds: Annotated[int, typer.Option(help="trainings of each system")] = SEEDS,
    jobs: Annotated[int, typer.Option(help="trainings at a time")] = 8,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
    results: Annotated[
        Path | None, typer.Option(help="JSON lines of results; FOLDER/transfer.jsonl if not given")
    ] = None,
) -> None:
    """Train classifiers and taggers with a pretrained encoder, frozen, tuned and from scratch.

    Results are kept; the same command trains what is missing, and writes the tables.

    Example: python -m experiments.transfer all-MiniLM-L6-v2 data --only trec --size 100
    """
    folder.mkdir(parents=True, exist_ok=True)
    planned = [
        Job(dataset, system, examples, seed)
        for dataset in only or DATASETS
        for system in SYSTEMS
        for examples in size or SIZES
        for seed in range(1, seeds + 1)
    ]
    # Those that take longest first, so that none of them ends alone.
    planned.sort(key=lambda job: -DATASETS[job.dataset].steps[job.size])
    models = {True: model, False: folder / "random-model"}
    write_random_model(model, models[False])
    train = partial(train_job, models=models, data=data, folder=folder, device=device)
    done = run_jobs(planned, train, results or folder / RESULTS, workers=jobs)
    tables = format_tables(done)
    typer.echo("\n" + tables)
    typer.echo(f"\nwrote {write_tables(tables, output_dir / PAGE)}")


def write_tables(tables: str, page: Path) -> Path:
    """Replace the tables of a page; a page that does not exist has nothing else."""
    text = page.read_text(encoding="utf-8") if page.exists() else _START + _END
    before, after = text.index(_START) + len(_START), text.index(_END)
    write_text(page, f"{text[:before]}\n{tables}\n\n{text[after:]}")
    return page


if __name__ == "__main__":
    typer.run(main)
