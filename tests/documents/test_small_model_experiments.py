"""Experiments with small models: order of trainings, tables, and both commands at a tiny size."""

import gzip
import json

import pytest
import typer
from typer.testing import CliRunner

from experiments import back_translation, small_models
from experiments.jobs import run_jobs
from experiments.small_models import Job
from heedful.recipes import load_recipe

LANGUAGES = "de-en"


def row_of(job, bleu, **values):
    return {**job._asdict(), "bleu": bleu, "bytes": 900_000, **values}


def invoke(experiment, *options):
    app = typer.Typer()
    app.command()(experiment.main)
    result = CliRunner().invoke(app, list(map(str, options)))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_students_need_the_outputs_of_a_teacher_and_it_its_members(tmp_path):
    experiment = make_experiment(tmp_path)
    members = experiment.members(LANGUAGES)
    jobs = small_models.plan_jobs(members, [LANGUAGES], [1, 2], 2)
    assert len(jobs) == len(set(jobs)) == 2 + 1 + 2 * 2 * 2
    teacher = Job(LANGUAGES, "teacher")
    needed = {job.system: experiment.needed(job) for job in jobs}
    students = {"references": [], "distilled": [teacher]}
    assert needed == {"member": [], "teacher": members, **students}
    done = set()
    for job in jobs:
        assert done.issuperset(experiment.needed(job))
        done.add(job)


def make_experiment(folder):
    return small_models.Experiment(
        data=folder,
        folder=folder,
        teacher_recipe="transformer-2017-small",
        teacher_steps=2,
        num_teachers=2,
        student_recipe="default",
        steps=2,
        batch_tokens=500,
        device="cpu",
        settings=(),
    )


def test_table_of_sizes_has_mean_and_deviation_of_seeds():
    scores = {("references", 1): 37.0, ("references", 2): 39.0, ("distilled", 1): 40.5}
    results = [row_of(Job(LANGUAGES, name, 1, seed), bleu) for (name, seed), bleu in scores.items()]
    results += [row_of(Job(LANGUAGES, "member", seed=seed), 40.0 + seed) for seed in (1, 2)]
    results.append(row_of(Job(LANGUAGES, "teacher"), 42.04, bytes=80_000_000))
    lines = small_models.format_table(results, LANGUAGES, "default").splitlines()
    assert lines[2] == "| ensemble of 2 |  | 80.0 | 42.0 |  |"
    assert lines[3] == "| its members |  |  | 41.5 \u00b1 0.7 |  |"
    assert lines[4] == "| 1 MB | 112 | 0.90 | 38.0 \u00b1 1.4 | 40.5 |"


def test_gain_of_back_translations_is_counted_seed_by_seed():
    scores = {("pairs", 1): 30.0, ("pairs", 2): 32.0, ("back-translation", 2): 35.0}
    results = [
        {"system": name, "seed": seed, "bleu": bleu} for (name, seed), bleu in scores.items()
    ]
    lines = back_translation.format_table(results).splitlines()
    assert lines[2] == "| pairs alone | 2 | 31.0 \u00b1 1.4 |  |"
    assert lines[3] == "| with back-translations | 1 | 35.0 | 3.0 |"


def fail_for_two(job):
    """Stand for a training, in a process of its own."""
    if job.seed == 2:
        raise ValueError("no memory")
    return {"bleu": job.seed}


@pytest.mark.slow
def test_failed_job_is_named_and_the_others_are_kept(tmp_path, capsys):
    jobs = [Job(LANGUAGES, "references", 1, seed) for seed in (1, 2, 3)]
    results = run_jobs(jobs, fail_for_two, tmp_path / "results.jsonl", workers=2)
    assert sorted(item["bleu"] for item in results) == [1, 3]
    assert "de-en references 1 2 failed: ValueError: no memory" in capsys.readouterr().out


@pytest.fixture
def multi30k(tmp_path):
    """Write Latin with its translation under the names of Multi30k."""
    folder = tmp_path / "data"
    folder.mkdir()
    data = load_recipe("latin-demo", {"data.train.num_examples": 600}).data
    splits = {"train": data.train, "val": data.dev, "test_2016_flickr": data.test}
    for split, source in splits.items():
        pairs = source.read()
        for language, texts in zip(LANGUAGES.split("-"), zip(*pairs, strict=True), strict=True):
            with gzip.open(folder / f"{split}.{language}.gz", "wt") as file:
                file.write("\n".join(texts) + "\n")
    return folder


WORDS = [
    part
    for side in ("source", "target")
    for part in ("--set", f"tokenizers.{side}={json.dumps({'type': 'word'})}")
]
TINY = ("--seeds", 1, "--steps", 2, "--jobs", 2, "--device", "cpu", *WORDS)


@pytest.mark.slow
def test_small_models_are_trained_once(tmp_path, multi30k):
    options = (multi30k, "--pair", LANGUAGES, "--size", 0.2, "--teachers", 2, "--teacher-steps", 2)
    options += ("--batch-tokens", 500, "--folder", tmp_path / "runs", *TINY)
    first = invoke(small_models, *options)
    assert "5 of 5" in first
    assert len((tmp_path / "runs" / "de-en-teacher.txt").read_text().splitlines()) == 600
    again = invoke(small_models, *options)  # trains nothing
    assert again.strip() == first[first.index("| de-en") :].strip()


@pytest.mark.slow
def test_back_translation_experiment_has_all_systems(tmp_path, multi30k):
    captions = tmp_path / "captions.tsv"
    captions.write_text("1.jpg\ttrain\tA girl runs .\n2.jpg\ttrain\tA dog , a man .\n")
    options = (multi30k, "--num-pairs", 300, "--folder", tmp_path / "runs", *TINY)
    options += ("--captions", captions)
    printed = invoke(back_translation, *options)
    assert all(f"| {title} | 1 |" in printed for title in back_translation.TITLES.values())
    folder = tmp_path / "runs" / "back-translation-de-en-300-1"
    assert len((folder / "back-translation" / "outputs.txt").read_text().splitlines()) > 0
