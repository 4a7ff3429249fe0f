import pytest

import heedful
from heedful.comparison.test_sets import TextEvaluationSet
from heedful.errors import RunError
from heedful.runs import Run, load
from tests.language_modeling import LINES, write_text_recipe
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


def evaluate(*systems):
    task = Run(systems[0][0]).read_recipe().task
    systems = [[(run,) for run in runs] for runs in systems]
    evaluation_set = TextEvaluationSet("letters", LINES, task)
    return evaluation_set.evaluate(systems, baseline=0, device="cpu").results


def test_models_compared_by_the_scores_of_evaluate(texts):
    results = evaluate([texts / "characters"], [texts / "words"])
    for result, name in zip(results, ("characters", "words"), strict=True):
        expected = {score.name: score for score in load(texts / name).evaluate(LINES)}
        assert {compared.score.name: compared.score for compared in result.scores} == expected
        assert result.scores[0].score.name == "perplexity per word"
        assert {each.direction for each in result.scores} == {"lower"}
        assert all(each.difference is None for each in result.scores)
        assert result.outputs == ()
    of_characters, of_words = results
    rates = [each.tokens_per_second.mean / each.sentences_per_second.mean for each in results]
    # 3 lines of 9 characters, or of 2 words and a blank between them, and each an end.
    assert rates == [pytest.approx(10), pytest.approx(rates[1])]
    assert rates[1] < rates[0]
    assert of_characters.num_parameters > 0 < of_words.num_parameters


def test_masked_models_with_equal_masks_compared(texts):
    one, other = evaluate([texts / "masked"], [texts / "masked"])
    assert [each.score.name for each in one.scores] == [
        "perplexity per token",
        "nats per token",
        "token accuracy",
    ]
    assert [each.direction for each in one.scores] == ["lower", "lower", "higher"]
    assert one.scores == other.scores


def test_masked_models_with_different_tokenizers_reported(texts):
    with pytest.raises(RunError) as caught:
        evaluate([texts / "masked"], [texts / "masked-words"])
    assert str(caught.value) == (
        f"{texts}/masked-words: predicts other targets than {texts}/masked\n"
        "  compare runs with equal `tokenizers`, `data.lm_batching` and `model.masking`"
    )


def test_size_is_the_number_of_lines():
    assert TextEvaluationSet("letters", LINES, None).size == 3
