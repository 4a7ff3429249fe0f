"""Models learn within a number of steps."""

import pytest

import heedful
from heedful.data.sources import SyntheticPairsConfig
from heedful.evaluation.registry import compute_metrics
from tests.catalogue import SYSTEMS
from tests.commands import write_recipe

pytestmark = pytest.mark.learning


def exact_match_of(run, name, split, size):
    pairs = SyntheticPairsConfig(name=name, split=split, num_examples=size).read()
    outputs = heedful.load(run).translate([pair.source for pair in pairs])
    return compute_metrics(
        [each.text for each in outputs], [pair.target for pair in pairs], ["exact-match"]
    )[0].value


# With a softmax the weights of a linear score do not depend on the query: it cannot learn to copy.
LEARNABLE = [name for name in SYSTEMS if not name.endswith(", linear")]


@pytest.mark.parametrize("name", LEARNABLE)
def test_system_learns_to_copy_short_words_in_600_steps(name, tmp_path):
    model = SYSTEMS[name]
    overrides = [
        f"model.{side}.{key}={value}"
        for side, settings in model.items()
        for key, value in settings.items()
        if key not in {"type", "embedding_size", "hidden_size", "attention", "wiring"}
    ]
    wiring = model["decoder"].get("wiring", {"type": "attend-then-step"})
    overrides += [f"model.decoder.wiring.{key}={value}" for key, value in wiring.items()]
    score = model["decoder"].get("attention", {"score": {"type": "additive"}})["score"]["type"]
    overrides.append(f"model.decoder.attention.score.type={score}")
    recipe = write_recipe(tmp_path, steps=600, every=200)
    heedful.train(str(recipe), tmp_path / "run", settings=overrides)
    words = ["a b c", "h g f e d", "b b a c", "e", "d a d"]
    outputs = heedful.load(tmp_path / "run").translate(words)
    assert [each.text for each in outputs] == words


def test_tiny_recipe_learns_to_reverse_letters(tmp_path):
    heedful.train("reverse-tiny", tmp_path / "run")
    assert exact_match_of(tmp_path / "run", "reverse", "test", 200) >= 95


def test_demo_translates_unseen_latin(tmp_path):
    heedful.train("latin-demo", tmp_path / "run")
    assert exact_match_of(tmp_path / "run", "latin", "test", 1000) >= 95
    translations = {
        "Caecilius est in horto.": "Caecilius is in the garden.",
        "Puella servum in via videt.": "The girl sees the slave in the street.",
        "Servum puella in via videt.": "The girl sees the slave in the street.",
        "Ubi est Marcus?": "Where is Marcus?",
    }
    outputs = heedful.load(tmp_path / "run").translate(list(translations))
    assert {each.source: each.text for each in outputs} == translations
