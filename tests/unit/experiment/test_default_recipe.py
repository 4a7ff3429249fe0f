import json

import pytest
import torch

from heedful.config import to_overrides
from heedful.experiment import load_training_recipe
from heedful.experiment.default_recipe import complete_default, describe_default
from heedful.recipes import load_recipe


def write_pairs(folder, count, text="a b c"):
    """Two files of `count` pairs; return the override that names them."""
    paths = {}
    for side in ("source", "target"):
        paths[side] = folder / f"{side}.txt"
        paths[side].write_text(f"{text}\n" * count, encoding="utf-8")
    files = {"type": "parallel-files", **{side: str(path) for side, path in paths.items()}}
    return f"data.train={json.dumps(files)}"


def vocab_sizes(recipe):
    return recipe.tokenizers.source.vocab_size, recipe.tokenizers.target.vocab_size


def test_other_recipes_are_loaded_as_they_are():
    changes = ["training.max_steps=7"]
    expected = load_recipe("transformer-2017-small", changes)
    assert load_training_recipe("transformer-2017-small", changes) == expected


@pytest.mark.parametrize(("count", "size"), [(2, 100), (400, 400), (10_000, 2200)])
def test_vocabulary_grows_with_the_square_root_of_the_data(tmp_path, count, size):
    recipe = load_training_recipe("default", [write_pairs(tmp_path, count)], "cpu")
    assert vocab_sizes(recipe) == (256 + size, 256 + size)


def test_vocab_size_covers_every_character(tmp_path):
    text = "".join(chr(0x4E00 + index) for index in range(1000))
    recipe = load_training_recipe("default", [write_pairs(tmp_path, 30, text)], "cpu")
    assert vocab_sizes(recipe) == (3256, 3256)


def test_training_takes_five_minutes_and_more_for_more_data(tmp_path):
    for count, minutes in ((100, 5), (320_000, 8)):
        recipe = load_training_recipe("default", [write_pairs(tmp_path, count)], "cpu")
        assert recipe.training.max_minutes == minutes


def test_given_settings_win(tmp_path):
    pairs = write_pairs(tmp_path, 400)
    changes = ["tokenizers.source.vocab_size=300", "training.max_minutes=2"]
    recipe = load_training_recipe("default", [pairs, *changes], "cpu")
    assert recipe.training.max_minutes == 2
    assert vocab_sizes(recipe)[0] == 300


@pytest.mark.parametrize("limit", ["max_steps", "max_epochs", "max_flops"])
def test_another_limit_replaces_the_minutes(tmp_path, limit):
    pairs = write_pairs(tmp_path, 400)
    recipe = load_training_recipe("default", [pairs, f"training.{limit}=9"], "cpu")
    assert recipe.training.max_minutes is None
    assert getattr(recipe.training, limit) == 9


def test_own_tokenizer_of_another_type_is_kept(tmp_path):
    word = ["tokenizers.source={type: word}", "tokenizers.target={type: word}"]
    recipe = load_training_recipe("default", [write_pairs(tmp_path, 400), *word], "cpu")
    assert recipe.tokenizers.source.type == "word"


def test_gpu_gets_a_transformer_with_a_shared_vocabulary(tmp_path):
    recipe = complete_default(to_overrides([write_pairs(tmp_path, 10_000)]), torch.device("cuda"))
    assert recipe.model.encoder.type == "transformer"
    assert recipe.tokenizers.tokenizer.vocab_size == 2 * (256 + 2200)
    assert "Transformer for a GPU, 5 minutes" in describe_default(recipe)


def test_prepared_tokens_decide_the_tokenizers(tmp_path, capsys, monkeypatch):
    from tests.commands import heedful

    paths = json.loads(write_pairs(tmp_path, 500).partition("=")[2])
    source, target = paths["source"], paths["target"]
    tokens = tmp_path / "tokens"
    heedful(
        *(capsys, monkeypatch, "prepare", "--source", source, "--target", target),
        *("--output-dir", tokens),
    )
    prepared = json.dumps({"type": "prepared", "path": str(tokens)})
    recipe = load_training_recipe("default", [f"data.train={prepared}"], "cpu")
    expected = load_training_recipe("default", [write_pairs(tmp_path, 500)], "cpu")
    assert recipe.tokenizers == expected.tokenizers
