"""Back-translation: what texts of the target language are worth when pairs are few.

Claim: back-translations of monolingual texts help most where there are few pairs (Sennrich et al.
2016; Edunov et al. 2018). Measured on Multi30k: some of the pairs alone; with back-translations of
the other target texts, as `heedful train --monolingual` makes them, without and with noise; with
captions of Flickr8k as further texts; and, as a limit, with the human translations of the other
target texts. All systems have equal recipes, steps and dev pairs; scores are sacreBLEU of the test
set of 2016, beam 5.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter, defaultdict
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
from heedful.config import Override, to_overrides
from heedful.data.text_files import read_lines
from heedful.experiment.back_translation import add_back_translations
from heedful.experiment.plan import load_training_recipe
from heedful.experiment.train import train
from heedful.recipes import Recipe
from heedful.storage.atomic import write_text

PAIRS, BACK_TRANSLATION, NOISE, ALL = "pairs", "back-translation", "noise", "all-pairs"
CAPTIONS, TEST = "captions", "test_2016_flickr"
KNOWN_OVERLAP = 0.75  # of the words of two texts (Jaccard), from which on they are one
TITLES = {
    PAIRS: "pairs alone",
    BACK_TRANSLATION: "with back-translations",
    CAPTIONS: "and with back-translations of captions",
    NOISE: "with noisy back-translations",
    ALL: "with human translations instead",
}


class Job(NamedTuple):
    """One system: its data, and the seed of the choice of pairs and of the training."""

    system: str
    languages: str
    num_pairs: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its run."""
        return "-".join(map(str, self))


class Experiment(NamedTuple):
    """Where texts and runs are, and what is trained for how long."""

    data: Path
    folder: Path
    recipe: str
    steps: int
    device: str
    settings: Sequence[str]
    captions: Path | None

    def texts(self, split: str, languages: str) -> list[list[str]]:
        """Return source and target texts of Multi30k."""
        files = (self.data / f"{split}.{language}.gz" for language in languages.split("-"))
        return [list(read_lines(str(file))) for file in files]


class Files(NamedTuple):
    """Training data of one job."""

    source: Path
    target: Path
    monolingual: Path


def write_files(job: Job, experiment: Experiment) -> Files:
    """Write a random choice of the pairs, another for each seed, and the other target texts."""
    folder = experiment.folder / f"{job.name}-data"
    files = Files(*(folder / name for name in ("source.txt", "target.txt", "monolingual.txt")))
    sources, targets = experiment.texts("train", job.languages)
    order = random.Random(job.seed).sample(range(len(targets)), len(targets))
    chosen, others = sorted(order[: job.num_pairs]), sorted(order[job.num_pairs :])
    rows = range(len(targets)) if job.system == ALL else chosen
    monolingual = [targets[number] for number in others]
    if job.system == CAPTIONS:
        held_out = [experiment.texts(split, job.languages)[1] for split in ("val", TEST)]
        monolingual += read_captions(experiment.captions, chain.from_iterable(held_out))
    folder.mkdir(parents=True, exist_ok=True)
    chosen_pairs = ([texts[number] for number in rows] for texts in (sources, targets))
    for path, texts in zip(files, [*chosen_pairs, monolingual], strict=True):
        write_text(path, "".join(f"{text}\n" for text in texts))
    return files


def read_captions(path: Path | None, held_out: Iterable[str]) -> list[str]:
    """Return captions (lines of image, split, caption) of images that no held-out text describes.

    Images of Flickr8k are some of Multi30k's, with the same captions.
    """
    captions: defaultdict[str, list[str]] = defaultdict(list)
    for line in read_lines(str(path)):
        image, _, caption = line.split("\t")
        captions[image].append(re.sub(r" ([.,])", r"\1", caption))
    known = [split_words(text) for text in held_out]
    frequency = Counter(chain.from_iterable(known))
    texts_of_word: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    for words in known:  # who shares so many words shares one of the rarest quarter
        for word in sorted(words, key=frequency.__getitem__)[: len(words) // 4 + 1]:
            texts_of_word[word].append(words)

    def is_known(caption: str) -> bool:
        words = split_words(caption)
        similar = chain.from_iterable(texts_of_word.get(word, ()) for word in words)
        return any(len(words & text) >= KNOWN_OVERLAP * len(words | text) for text in similar)

    unknown = (texts for texts in captions.values() if not any(map(is_known, texts)))
    return list(chain.from_iterable(unknown))


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text, in lower case and without punctuation."""
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def train_job(job: Job, experiment: Experiment) -> Result:
    """Train one system in this process; return its score on the test texts."""
    start, run = time.monotonic(), experiment.folder / job.name
    files, console = write_files(job, experiment), Console(quiet=True)
    source, target = (
        str(experiment.data / f"val.{language}.gz") for language in job.languages.split("-")
    )
    parallel = {"type": "parallel-files", "source": files.source, "target": files.target}
    settings = {
        "data.train": parallel,
        "data.dev": {"type": "parallel-files", "source": source, "target": target},
        "training.seed": job.seed,
        "training.max_steps": experiment.steps,
        "training.metric_for_best_model": "bleu",
        "training.max_eval_samples": 300,
    }
    overrides = [*to_overrides(settings), *to_overrides(experiment.settings)]

    def load_recipe(data: Sequence[Override] = ()) -> Recipe:
        return load_training_recipe(experiment.recipe, [*overrides, *data], experiment.device)

    recipe: Recipe | None = load_recipe()
    if job.system in (BACK_TRANSLATION, CAPTIONS, NOISE):
        recipe = add_back_translations(
            load_recipe,
            run,
            [files.monolingual],
            with_noise=job.system == NOISE,
            device=experiment.device,
            console=console,
        )
    assert recipe is not None, "interrupted"
    train(recipe, run, device=experiment.device, console=console)
    score = test_score(run, job, experiment)
    return {"bleu": round(score, 2), "seconds": round(time.monotonic() - start)}


def test_score(run: Path, job: Job, experiment: Experiment) -> float:
    """Return BLEU on the test texts."""
    source, target = (
        str(experiment.data / f"{TEST}.{language}.gz") for language in job.languages.split("-")
    )
    settings = ["decoding.beam_size=5"]
    (score,) = heedful.evaluate(
        run,
        source=source,
        target=target,
        metrics=["bleu"],
        settings=settings,
        device=experiment.device,
    )
    return score.value


def format_table(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of BLEU, mean and deviation over seeds, and of the gain seed by seed."""
    scores: dict[str, dict[int, float]] = {name: {} for name in TITLES}
    for item in results:
        scores[item["system"]][item["seed"]] = item["bleu"]
    lines = [heading(["", "seeds", "BLEU", "gain"])]
    for name, title in TITLES.items():
        gains = [
            score - scores[PAIRS][seed]
            for seed, score in scores[name].items()
            if seed in scores[PAIRS] and name != PAIRS
        ]
        cells = [str(len(scores[name])), format_scores(scores[name].values()), format_scores(gains)]
        lines.append(row([title, *cells]))
    return "\n".join(lines)


def main(
    data: Annotated[Path, typer.Argument(help="folder of Multi30k: train.de.gz and so on")],
    *,
    pair: Annotated[str, typer.Option(help="languages")] = "de-en",
    num_pairs: Annotated[int, typer.Option(help="pairs with both languages")] = 10_000,
    seeds: Annotated[int, typer.Option(help="trainings of each system")] = 3,
    only: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(TITLES)}")] = None,
    recipe: Annotated[str, typer.Option(help="recipe of all models")] = "default",
    captions: Annotated[
        Path | None, typer.Option(help="captions.tsv.gz of Flickr8k, as further texts")
    ] = None,
    steps: Annotated[int, typer.Option(help="steps of each model")] = 3000,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="setting of all models; repeatable")
    ] = None,
    folder: Annotated[Path, typer.Option(help="runs and results")] = Path("runs/back-translation"),
    jobs: Annotated[int, typer.Option(help="trainings at a time")] = 8,
    minutes: Annotated[float, typer.Option(help="start no training after this time")] = 1e9,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
    results: Annotated[
        Path | None, typer.Option(help="JSON lines of results; FOLDER/results.jsonl if not given")
    ] = None,
) -> None:
    """Train with few pairs, without and with back-translations; print a table of BLEU.

    Results are kept; the same command trains what is missing.

    Example: python -m experiments.back_translation multi30k --num-pairs 10000
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Those that train two models first, so that none of them ends alone.
    order = (*((CAPTIONS,) if captions else ()), BACK_TRANSLATION, NOISE, PAIRS, ALL)
    planned = [
        Job(system, pair, num_pairs, seed)
        for seed in range(1, seeds + 1)
        for system in order
        if system in (only or TITLES)
    ]
    experiment = Experiment(data, folder, recipe, steps, device, tuple(set_ or ()), captions)
    train_one = partial(train_job, experiment=experiment)
    path = results or folder / "results.jsonl"
    done = run_jobs(planned, train_one, path, workers=jobs, max_minutes=minutes)
    typer.echo("\n" + format_table(done))


if __name__ == "__main__":
    typer.run(main)
