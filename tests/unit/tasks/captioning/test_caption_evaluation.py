"""Scores of captioners against all captions of an image: baselines, groups, comparisons."""

import json

import pytest

import heedful
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import CAPTION_METRICS
from tests.captioning import caption_recipe, write_images
from tests.commands import heedful as run_heedful

COLORS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, the second of which was trained for longer."""
    folder = tmp_path_factory.mktemp("runs")
    images = {"type": "captions", "path": str(write_images(folder / "images"))}
    for name, steps in (("short", 1), ("long", 6)):
        training = {"max_steps": steps, "validate_every": steps, "batching": {"max_tokens": 240}}
        heedful.train(caption_recipe(images, training=training), folder / name)
    return folder


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_heedful(capsys, monkeypatch, *words, "--device", "cpu")


def test_outputs_scored_against_all_captions(call, runs):
    options = ("--metrics", "bleu-1,caption-rouge-l,cider-d", "--json")
    scores = json.loads(call("evaluate", str(runs / "long"), *options).out)
    captioner = heedful.load(runs / "long")
    names = [str(runs / "images" / f"{row}.png") for row in range(12)]
    outputs = [caption.text for caption in captioner.caption(names)]
    texts = [(f"a {COLORS[row % 3]} image", f"{COLORS[row % 3]} all over") for row in range(12)]
    for score, name in zip(scores, options[1].split(","), strict=True):
        expected = compute_score(CAPTION_METRICS[name], outputs, texts)
        assert score["value"] == pytest.approx(expected.value)
        assert score["signature"] == expected.signature
        assert expected.signature.startswith("nrefs:2|")


def test_baseline_and_word_frequency_of_captions(call, runs):
    baseline = ("--baseline", str(runs / "short"), "--group-by", "word-frequency", "--json")
    ended = call("evaluate", str(runs / "long"), "--metrics", "cider-d", *baseline)
    assert ended.code == 0, ended.err
    cider_d, recall = json.loads(ended.out)
    assert cider_d["baseline"]["num_trials"] == 10_000
    # Each color is in 8 training captions, the rarest word of any caption.
    assert [(group["name"], group["size"]) for group in cider_d["groups"]] == [("5-9", 12)]
    assert recall["name"] == "word recall"


def test_comparison_has_the_paired_test(call, runs):
    names = [str(runs / name) for name in ("short", "long")]
    ended = call("compare", *names, "--metrics", "cider-d,bleu-1", "-o", "out")
    assert ended.code == 0, ended.err
    assert "CIDEr-D" in ended.out
    assert "by approximate randomization (10000 trials)" in ended.out
