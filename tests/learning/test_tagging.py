"""Taggers learn within a number of steps."""

import pytest

import heedful
from tests.tagged_words import (
    CONVOLUTION,
    LSTM,
    RECURRENT,
    TRANSFORMER,
    tagged_sentences,
    write_tagging_recipe,
)

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("head", ["softmax", "crf"])
@pytest.mark.parametrize("characters", ["null", CONVOLUTION, LSTM])
@pytest.mark.parametrize("encoder", [RECURRENT, TRANSFORMER])
def test_tagger_finds_names_after_titles_in_100_steps(encoder, characters, head, tmp_path):
    settings = {"encoder": encoder, "characters": characters, "head": head}
    recipe, conll = write_tagging_recipe(tmp_path, steps=100, every=50, **settings)
    heedful.train(str(recipe), tmp_path / "run", conll=conll)
    sentences = tagged_sentences(100, seed=1)
    results = heedful.load(tmp_path / "run").tag([[word for word, _ in rows] for rows in sentences])
    assert [result.tags for result in results] == [[tag for _, tag in rows] for rows in sentences]
