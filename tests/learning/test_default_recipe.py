"""`heedful train` with nothing but two files gives a usable model in minutes on a CPU."""

import json

import pytest

import heedful
from heedful.evaluation.registry import compute_metrics
from heedful.experiment import load_training_recipe, train
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning


def bleu_after_training(run, train_data, test_data, *overrides):
    """Train `default` on a source of pairs; return the BLEU score on another."""
    settings = [f"data.train={json.dumps(train_data)}", *overrides]
    recipe = load_training_recipe("default", settings, "cpu")
    with unchecked():
        train(recipe, run, device="cpu")
        test_settings = [f"data.train={json.dumps(test_data)}"]
        pairs = load_training_recipe("default", test_settings, "cpu").data.train.read()
        outputs = heedful.load(run).translate([pair.source for pair in pairs])
    texts = [output.text for output in outputs]
    return compute_metrics(texts, [pair.target for pair in pairs], ["bleu"])[0].value


def test_three_hundred_steps_on_synthetic_latin(tmp_path):
    latin = {"type": "synthetic", "name": "latin"}
    train_data = latin | {"split": "train", "num_examples": 8000}
    test_data = latin | {"split": "test", "num_examples": 200}
    steps = "training.max_steps=300"
    assert bleu_after_training(tmp_path / "run", train_data, test_data, steps) >= 40


@pytest.mark.parametrize(("language", "expected"), [("fr", 33), ("de", 26)])
def test_five_minutes_on_multi30k(heedful_data, tmp_path, language, expected):
    def files(name):
        paths = (heedful_data / "multi30k" / f"{name}.{side}.gz" for side in (language, "en"))
        source, target = map(str, paths)
        return {"type": "parallel-files", "source": source, "target": target}

    score = bleu_after_training(tmp_path / "run", files("train"), files("test_2016_flickr"))
    assert score >= expected


OTHER_DATA = [
    ({"type": "built-in-pictures", "name": "shapes", "num_examples": 3000}, 150, "bleu-4", 90),
    ({"type": "built-in-digits", "num_examples": 3000}, 400, "accuracy", 0.8),
]


@pytest.mark.parametrize(("data", "steps", "metric", "expected"), OTHER_DATA)
def test_default_of_other_data_learns_in_few_steps(tmp_path, data, steps, metric, expected):
    settings = [f"data.train={json.dumps(data)}", f"training.max_steps={steps}"]
    with unchecked():
        train(load_training_recipe("default", settings, "cpu"), tmp_path / "run", device="cpu")
    assert best_score(tmp_path / "run", metric) >= expected


def best_score(run, metric):
    """The best score of a dev metric during training."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(values[metric] for values in map(json.loads, lines) if metric in values)
