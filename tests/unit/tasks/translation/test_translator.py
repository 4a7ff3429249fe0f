"""Translators: order and number of outputs, independence of the batch, log-probs and weights."""

import numpy as np
import pytest

from heedful import load
from heedful.decoding.requests import Request
from heedful.errors import DataError
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import MAX_NBEST, NBEST_METRICS
from heedful.tasks.translation.task import TranslationOutputs
from tests.unit.decoding.untrained import build_translator

TEXTS = ["a b c", "", "h", "e d c b a", "b", "   ", "c c", "d e f g", "a h"]


@pytest.fixture(scope="module")
def translator(trained):
    return load(trained)


def test_every_text_has_one_output_in_order(translator):
    results = translator.translate(TEXTS)
    assert [result.source for result in results] == TEXTS
    outputs = [result.text for result in results if result.source.strip()]
    assert outputs == [text for text in TEXTS if text.strip()]


def test_empty_text_has_an_empty_output(translator):
    (result,) = translator.translate([""])
    assert result.text == ""
    assert result.tokens == []
    assert result.weights.shape == (0, 1)


def test_weights_have_a_row_per_token_that_sums_to_one(translator):
    for result in translator.translate(TEXTS):
        assert result.weights.shape == (len(result.tokens), len(result.source_tokens))
        assert result.source_tokens[-1] == "(end)"
        np.testing.assert_allclose(result.weights.sum(1), 1, atol=1e-5)


def test_copying_model_attends_to_the_token_it_copies(translator):
    (result,) = translator.translate(["a b c d"])
    assert result.weights.argmax(1).tolist() == [0, 1, 2, 3]


def test_stream_reads_a_bounded_number_of_texts(translator):
    num_read = 0

    def endless_texts():
        nonlocal num_read
        while True:
            num_read += 1
            yield "a b"

    assert next(translator.predict(endless_texts())).text == "a b"
    assert num_read <= 1024


def test_long_text_raises_with_the_index(translator):
    with pytest.raises(DataError) as caught:
        translator.translate(["a", "a " * 50])
    assert str(caught.value) == (
        "text:2: the text has 51 tokens, but max_source_length is 40\n"
        "  split the text into sentences, or raise the limit with "
        "--set decoding.max_source_length=N"
    )


LONG = "a b c d e f g h " * 8  # 64 letters; the limit is 40 tokens


def test_long_text_is_skipped_with_a_warning(translator):
    with pytest.warns(
        UserWarning, match=r"^text:2: the text has \d+ tokens, but the limit is 40: "
    ):
        first, skipped, last = translator.translate(["a b", LONG, "c"], too_long="skip", n_best=2)
    assert (first.text, skipped.text, last.text) == ("a b", "", "c")
    assert skipped.source == LONG
    assert skipped.to_json()["score"] is None
    assert len(skipped.source_word_ids) == len(skipped.source_tokens) == skipped.weights.shape[1]


def test_beginning_of_a_long_text_is_translated(translator):
    with pytest.warns(UserWarning, match=r"cut after '.* h'$"):
        cut = translator.translate(LONG, too_long="cut")
    assert LONG.startswith(cut.source)
    assert 35 <= len(cut.source_tokens) - 1 <= 40
    assert cut.text == translator.translate(cut.source).text


def test_given_output_of_a_skipped_text_has_no_score(translator):
    requests = [Request(LONG, target="a"), Request("a", target="a")]
    with pytest.warns(UserWarning, match="its output is empty"):
        skipped, scored = translator.translate(requests, too_long="skip")
    assert np.isnan(skipped.score)
    assert scored.score < 0


def test_result_is_drawn_in_notebooks(translator):
    (result,) = translator.translate(["a b"])
    assert "<iframe" in result._repr_html_()


def test_empty_lines_cost_no_translation(translator, monkeypatch):
    builder = translator._translation_builder
    monkeypatch.setattr(builder, "build", lambda *args: pytest.fail("built"))
    assert list(translator.predict_texts([""] * 5)) == [""] * 5


def test_nbest_lists_are_those_of_a_widened_beam():
    translator = build_translator("character", min_length=2)
    sources = ["the dog", "a cat"]
    outputs = TranslationOutputs(
        translator, sources, [("x",), ("y",)], lambda stream, total: stream
    )
    metric = NBEST_METRICS["exact-match@5"]
    lines = outputs.metric_inputs(metric)
    expected = translator.translate(sources, n_best=MAX_NBEST)
    texts = [[best.text, *(other.text for other in best.alternatives)] for best in expected]
    assert [line.split("\t") for line in lines] == texts
    assert {len(row) for row in texts} == {MAX_NBEST}
    # The fourth of ten outputs is among the first five, the seventh is not.
    assert compute_score(metric, lines, [texts[0][3], texts[1][6]]).value == 50
