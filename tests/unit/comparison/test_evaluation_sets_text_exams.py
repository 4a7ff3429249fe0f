import pytest

import heedful
from heedful.comparison.evaluation_sets import SHOWN_METRICS, TextEvaluationSet
from heedful.errors import RunError
from heedful.runs import load
from tests.running_text import LINES, write_text_recipe
from tests.shape_checking import unchecked


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Language models that were trained for a few steps."""
    folder = tmp_path_factory.mktemp("texts")
    kinds = {
        "characters": ("language-model", "character"),
        "words": ("language-model", "word"),
        "masked": ("masked-language-model", "character"),
        "masked-words": ("masked-language-model", "word"),
    }
    with unchecked():
        for name, (model, tokenizer) in kinds.items():
            recipe = write_text_recipe(folder / f"{name}-data", model, tokenizer=tokenizer, steps=5)
            heedful.train(str(recipe), folder / name)
    return folder


def hold(*systems):
    return TextEvaluationSet("letters", LINES).evaluate(systems, baseline=0, device="cpu").results


def test_models_are_compared_by_what_evaluation_measures(texts):
    results = hold([texts / "characters"], [texts / "words"])
    names = ["perplexity per word", "bits per character", "perplexity per token"]
    for result, name in zip(results, ("characters", "words"), strict=True):
        wanted = {metric.name: metric for metric in load(texts / name).evaluate(LINES)}
        assert [each.score for each in result.scores] == [wanted[each] for each in names]
        assert {each.direction for each in result.scores} == {"lower"}
        assert all(each.difference is None for each in result.scores)
        assert result.outputs == ()
    of_characters, of_words = results
    rates = [each.tokens_per_second.mean / each.sentences_per_second.mean for each in results]
    # 3 lines of 9 characters, or of 2 words and a blank between them, and each an end.
    assert rates == [pytest.approx(10), pytest.approx(rates[1])]
    assert rates[1] < rates[0]
    assert of_characters.num_parameters > 0 < of_words.num_parameters


def test_masked_models_are_compared_where_the_same_is_hidden(texts):
    one, other = hold([texts / "masked"], [texts / "masked"])
    assert [each.score.name for each in one.scores] == ["perplexity per token", "token accuracy"]
    assert [each.direction for each in one.scores] == ["lower", "higher"]
    assert one.scores == other.scores


def test_masked_models_that_cut_text_otherwise_are_refused(texts):
    with pytest.raises(RunError) as caught:
        hold([texts / "masked"], [texts / "masked-words"])
    assert str(caught.value) == (
        f"{texts}/masked-words: other tokens would be hidden from this run than from "
        f"{texts}/masked\n  compare masked language models with the same `text`, `data.lm_batching` "
        "and `model.masking`"
    )


def test_an_exam_knows_its_size():
    assert TextEvaluationSet("letters", LINES).size == 3
    assert {"lower", "higher"} == {*SHOWN_METRICS.values()}
