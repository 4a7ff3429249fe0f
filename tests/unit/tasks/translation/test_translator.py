"""Translating: order and count are kept, neighbours change nothing, evidence comes along."""

import numpy as np
import pytest

from heedful import load
from heedful.errors import DataError

TEXTS = ["a b c", "", "h", "e d c b a", "b", "   ", "c c", "d e f g", "a h"]


@pytest.fixture(scope="module")
def translator(trained):
    return load(trained)


def test_every_text_gives_one_output_in_its_place(translator):
    results = translator.translate(TEXTS)
    assert [result.source for result in results] == TEXTS
    assert [result.text for result in results if result.source.strip()] == [
        text for text in TEXTS if text.strip()
    ]


def test_an_empty_text_gives_an_empty_output(translator):
    (result,) = translator.translate([""])
    assert result.text == ""
    assert result.tokens == []
    assert result.weights.shape == (0, 1)


@pytest.mark.parametrize("beam", [1, 3])
def test_output_does_not_depend_on_company_or_order(translator, beam):
    together = {each.source: each for each in translator.translate(TEXTS, beam=beam)}
    backwards = {each.source: each for each in translator.translate(TEXTS[::-1], beam=beam)}
    for text in TEXTS:
        (alone,) = translator.translate([text], beam=beam)
        for other in (together[text], backwards[text]):
            assert other.text == alone.text
            assert other.score == pytest.approx(alone.score, abs=1e-4)
            np.testing.assert_allclose(other.weights, alone.weights, atol=1e-5)


def test_evidence_fits_the_output(translator):
    for result in translator.translate(TEXTS):
        assert result.weights.shape == (len(result.tokens), len(result.source_tokens))
        assert result.source_tokens[-1] == "(end)"
        np.testing.assert_allclose(result.weights.sum(1), 1, atol=1e-5)


def test_a_copying_model_looks_at_what_it_copies(translator):
    (result,) = translator.translate(["a b c d"])
    assert result.weights.argmax(1).tolist() == [0, 1, 2, 3]


def test_a_stream_is_read_a_window_at_a_time(translator):
    taken = []

    def no_end_error():
        while True:
            taken.append(None)
            yield "a b"

    assert next(translator.stream(no_end_error())).text == "a b"
    assert len(taken) <= 1024


def test_too_long_a_text_is_named_by_its_line(translator):
    with pytest.raises(DataError) as caught:
        translator.translate(["a", "a " * 50])
    assert str(caught.value) == (
        "text:2: the text has 51 tokens, and this model takes at most 40\n"
        "  split the text into sentences, or raise the limit with "
        "--set decoding.max_source_length=N"
    )


def test_results_show_themselves_in_notebooks(translator):
    (result,) = translator.translate(["a b"])
    assert "<iframe" in result._repr_html_()
