"""Taggers learn within a number of steps."""

import pytest

import heedful
from tests.shape_checking import unchecked
from tests.tagged_words import (
    CONVOLUTION,
    LSTM,
    RECURRENT,
    TRANSFORMER,
    tagged_sentences,
    write_tagging_recipe,
)

pytestmark = pytest.mark.learning


@pytest.mark.parametrize(
    ("encoder", "characters", "head"),
    [
        (RECURRENT, "null", "softmax"),
        (RECURRENT, LSTM, "crf"),
        (TRANSFORMER, CONVOLUTION, "softmax"),
        (TRANSFORMER, "null", "crf"),
    ],
    ids=["recurrent", "LSTM characters, CRF", "convolution over characters", "transformer, CRF"],
)
def test_tagger_finds_names_after_titles_in_100_steps(encoder, characters, head, tmp_path):
    settings = {"encoder": encoder, "characters": characters, "head": head}
    recipe, conll = write_tagging_recipe(tmp_path, steps=100, every=50, **settings)
    sentences = tagged_sentences(100, seed=1)
    with unchecked():
        heedful.train(str(recipe), tmp_path / "run", conll=conll)
        tagger = heedful.load(tmp_path / "run")
        results = tagger.tag([[word for word, _ in rows] for rows in sentences])
    assert [result.tags for result in results] == [[tag for _, tag in rows] for rows in sentences]
