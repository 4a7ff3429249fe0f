"""The data of a run: what models of text are shown, and that validation is always the same."""

from itertools import islice

import pytest
import torch
from rich.console import Console

from heedful.corpora import read_corpora
from heedful.data.prepare import Position
from heedful.errors import ConfigError
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.text.vocabulary import EOS, PAD
from tests.running_text import LINES, write_text_recipe

START = Position(0, 0)


def corpora(folder, model, *overrides):
    recipe = load_recipe(str(write_text_recipe(folder, model)), overrides)
    return read_corpora(recipe, Run(folder / "run"), Console(quiet=True))


def same(one, other):
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def test_the_end_of_the_text_is_held_out(tmp_path):
    found = corpora(tmp_path, "language-model")
    lines = found.text.target.encode_all(LINES * 40)
    learned, held_out = lines[:114], lines[114:]
    assert found.train.tolist() == [EOS, *(token for line in learned for token in (*line, EOS))]
    assert found.dev.tolist() == [EOS, *(token for line in held_out for token in (*line, EOS))]


def test_each_token_is_asked_for_the_next(tmp_path):
    batch = next(iter(corpora(tmp_path, "language-model").stream(START)))
    assert batch.inputs.shape == (4, 16)
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])


def test_some_tokens_are_hidden_and_others_at_every_place_of_training(tmp_path):
    found = corpora(tmp_path, "masked-language-model")
    mask = len(found.text.target)
    first, second = islice(found.stream(START), 2)
    assert (first.inputs == mask).any()
    assert 0 < first.num_targets < first.num_tokens
    assert not torch.equal(first.targets != PAD, second.targets != PAD)
    assert same(next(iter(found.stream(Position(0, 1)))), second)


@pytest.mark.parametrize("model", ["language-model", "masked-language-model"])
def test_validation_is_always_the_same(model, tmp_path):
    found = corpora(tmp_path, model)
    torch.rand(5)
    batches = list(found.held_out())
    assert batches
    assert all(map(same, batches, found.held_out()))


def test_without_a_text_it_is_said_how_to_give_one(tmp_path):
    with pytest.raises(ConfigError) as caught:
        corpora(tmp_path, "language-model", "data.train=null")
    assert str(caught.value) == (
        "data.train: the recipe does not say what to learn from\n  give a file: --text FILE"
    )
