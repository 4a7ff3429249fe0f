import json
import shutil
from dataclasses import replace
from itertools import product
from statistics import mean, stdev
from types import SimpleNamespace

import numpy as np
import pytest

import heedful as library
from heedful.comparison.systems import group_runs
from heedful.comparison.test_sets import (
    BATCH_SIZE,
    MAX_EXAMPLES,
    AdditionalTestSet,
    ParallelEvaluationSet,
    TextEvaluationSet,
    count_parameters,
    decode_interleaved,
    evenly_spaced,
    group_by_system,
    score_systems,
    select_examples,
)
from heedful.data.text.pair_dataset import Pair
from heedful.errors import ConfigError, RunError
from heedful.evaluation.breakdowns import LengthBreakdown
from heedful.evaluation.registry import METRICS, SOURCE_METRICS, get_metrics
from heedful.evaluation.score_table import score_outputs
from heedful.runs import Run, load
from tests.commands import LETTERS, heedful
from tests.language_modeling import LINES, write_text_recipe
from tests.shape_checking import unchecked
from tests.unit.evaluation.systems import REFERENCES, system

pytestmark = pytest.mark.wide

METRIC_NAMES = ["exact-match", "chrf"]


@pytest.fixture
def evaluation_set(runs):
    sources = (runs / "test.src").read_text().splitlines()
    return ParallelEvaluationSet(
        "letters", sources, [(line,) for line in sources], get_metrics(METRIC_NAMES), beam_size=1
    )


def test_systems_scored_by_the_outputs_of_runs(runs, evaluation_set):
    systems = [[(runs / "small-0",), (runs / "small-1",)], [(runs / "large",)]]
    evaluated = evaluation_set.evaluate(systems, baseline=0, device="cpu")
    outputs = {
        run: [each.text for each in load(run).translate(evaluation_set.sources, beam_size=1)]
        for folders in systems
        for (run,) in folders
    }
    for folders, result in zip(systems, evaluated.results, strict=True):
        for name, score in zip(METRIC_NAMES, result.scores, strict=True):
            values = [
                score_outputs(METRICS[name], outputs[run], evaluation_set.references)
                for (run,) in folders
            ]
            mean = sum(entry.score.value for entry in values) / len(values)
            assert score.stats.mean == pytest.approx(mean)
            assert (score.stats.std is None) == (len(folders) == 1)
        model = load(folders[0][0]).model
        assert result.num_parameters == sum(weight.numel() for weight in model.parameters())
        assert result.sentences_per_second.mean > 0
        assert result.tokens_per_second.mean > 0
    expected = score_outputs(METRICS["chrf"], outputs[runs / "large"], evaluation_set.references)
    assert evaluated.results[1].scores[1].interval is not None
    assert evaluated.results[1].scores[1].score == expected.score


def test_examples_have_a_source_a_reference_and_outputs(runs, evaluation_set):
    evaluated = evaluation_set.evaluate(
        [[(runs / "small-0",)], [(runs / "large",)]], baseline=0, device="cpu"
    )
    assert len(evaluated.sources) == MAX_EXAMPLES
    assert evaluated.references == evaluated.sources  # they are to be copied
    for name, result in zip(("small-0", "large"), evaluated.results, strict=True):
        outputs = load(runs / name).translate(evaluated.sources, beam_size=1)
        assert result.outputs == [each.text for each in outputs]


def test_examples_prefer_sentences_with_differing_outputs():
    assert select_examples([["x", "y", "z"], ["x", "y", "w"]]) == [0, 1, 2]
    differing = [3, 29]
    other = ["y" if row in differing else "x" for row in range(30)]
    rows = select_examples([["x"] * 30, other])
    assert len(rows) == MAX_EXAMPLES
    assert {*differing} < {*rows}
    assert rows == sorted(rows)


@pytest.mark.parametrize("size", [0, 1, 5, 8, 9, 100])
def test_evenly_spaced_rows_ordered_and_bounded(size):
    rows = evenly_spaced(range(size), 8)
    assert len(rows) == min(8, size)
    assert rows == sorted(set(rows))


def test_items_grouped_by_system():
    assert group_by_system([1, 2, 3], [["a"], ["b", "c"]]) == [[1], [2, 3]]


def test_shared_parameters_count_once():
    from torch import nn

    layer = nn.Linear(3, 2)
    assert count_parameters(SimpleNamespace(model=nn.ModuleList([layer, layer]))) == 8


def test_additional_sets_scored_by_the_main_metric(runs, evaluation_set):
    pairs = [Pair("a b c", "a b c"), Pair("b b", "b b")]
    additional = [AdditionalTestSet.from_pairs("short", pairs)]
    novelty = SOURCE_METRICS["novelty-1"]
    compared = replace(evaluation_set, additional_sets=additional, metrics=[novelty])
    systems = [[(runs / "small-0",)], [(runs / "large",)]]
    (one, other) = compared.evaluate(systems, baseline=0, device="cpu").results
    for ((run,),), result in zip(systems, (one, other), strict=True):
        by_name = {score.score.name: score for score in result.scores}
        assert list(by_name) == ["novel 1-grams", "novel 1-grams, short"]
        for sources, name in ((compared.sources, ""), (["a b c", "b b"], ", short")):
            outputs = [each.text for each in load(run).translate(sources, beam_size=1)]
            expected = score_outputs(novelty, outputs, sources)
            assert by_name[f"novel 1-grams{name}"].stats.mean == expected.score.value
        assert (by_name["novel 1-grams, short"].difference is None) == (result is one)


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
            library.train(str(recipe), folder / name)
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


@pytest.fixture
def translators(runs):
    return [load(runs / name, settings=["decoding.beam_size=1"]) for name in ("small-0", "large")]


def test_interleaving_does_not_change_outputs(translators):
    sources = [" ".join(LETTERS[: 1 + number % 8]) for number in range(BATCH_SIZE + 5)]
    batch_sizes = []

    def watch(batches):
        batch_sizes.extend(map(len, batches))
        yield from batches

    results = decode_interleaved(translators, sources, with_progress=watch)
    assert batch_sizes == [BATCH_SIZE, 5]
    for translator, result in zip(translators, results, strict=True):
        expected = translator.translate(sources)
        assert result.outputs == [translation.text for translation in expected]
        assert result.num_tokens == sum(len(translation.tokens) for translation in expected)
        assert result.seconds > 0


def test_another_predictor_starts_every_round(translators):
    order = []

    class LoggingPredictor:
        def __init__(self, name, inner):
            self.name, self.inner = name, inner

        def predict(self, texts):
            order.append((self.name, len(texts)))
            return self.inner.predict(texts[:1])

    predictors = [
        LoggingPredictor(name, translator)
        for name, translator in zip("ab", translators, strict=True)
    ]
    decode_interleaved(predictors, ["a"] * (2 * BATCH_SIZE + 1))
    assert order == [
        *[("a", 16), ("b", 16)],
        *[("a", BATCH_SIZE), ("b", BATCH_SIZE)],
        *[("b", BATCH_SIZE), ("a", BATCH_SIZE)],
        *[("a", 1), ("b", 1)],
    ]


EXACT = METRICS["exact-match"]
TARGETS = [(line,) for line in REFERENCES]


def exact_scores(*rights):
    """Return outputs, correct where the digit is 1, and their references."""
    references = [(f"r{place}",) for place in range(len(rights[0]))]
    outputs = [
        [f"r{place}" if right == "1" else "wrong" for place, right in enumerate(each)]
        for each in rights
    ]
    return outputs, references


@pytest.mark.parametrize("name", ["exact-match", "bleu", "chrf", "ter"])
def test_single_runs_scored_as_by_evaluate(name):
    measure, one, other = METRICS[name], system(0.1), system(0.3, seed=1)
    first, second = score_systems(measure, [[one], [other]], REFERENCES, TARGETS)
    for result, outputs in ((first, one), (second, other)):
        expected = score_outputs(measure, outputs, TARGETS, confidence=True)
        assert result.score == expected.score
        assert result.interval == expected.interval
        assert result.stats == (expected.score.value, None)
        assert result.direction == measure.direction
    expected = score_outputs(measure, other, TARGETS, baseline=one).difference
    assert first.difference is None
    assert second.difference.p_value == expected.p_value
    assert second.difference.value == pytest.approx(expected.value)


def test_score_of_several_runs_is_the_mean():
    (one, other), references = exact_scores("1110000000", "1111100000")
    (result,) = score_systems(EXACT, [[one, other]], references_as_sources(references), references)
    assert result.stats == (mean([30, 50]), pytest.approx(stdev([30, 50])))
    assert result.score.value == 40
    assert result.interval == score_outputs(EXACT, one, references, confidence=True).interval


def references_as_sources(references):
    return [text for (text,) in references]


def test_equal_outputs_have_p_one():
    outputs = system(0.2)
    for runs in ([[outputs], [outputs]], [[outputs, outputs], [outputs]], [[outputs]] * 3):
        _, *others = score_systems(EXACT, runs, REFERENCES, TARGETS)
        assert {result.difference.p_value for result in others} == {1.0}
        assert {result.difference.value for result in others} == {0.0}


def test_baseline_may_be_any_system():
    runs = [[system(0.1)], [system(0.3, seed=1)]]
    first, second = score_systems(EXACT, runs, REFERENCES, TARGETS, baseline=1)
    _, other = score_systems(EXACT, runs, REFERENCES, TARGETS)
    assert second.difference is None
    assert first.difference.p_value == other.difference.p_value
    assert first.difference.value == pytest.approx(-other.difference.value)


def test_sentences_swapped_with_the_outputs_of_all_runs():
    """By trying all swaps of eight sentences."""
    texts = ["11101110", "11011100", "00000110", "01000100"]
    outputs, references = exact_scores(*texts)
    rights = np.array([[int(digit) for digit in text] for text in texts])
    gaps = rights[:2].sum(axis=0) - rights[2:].sum(axis=0)  # of each sentence
    totals = [abs((gaps * signs).sum()) for signs in product([1, -1], repeat=len(gaps))]
    expected = np.mean([total >= abs(gaps.sum()) for total in totals])
    sources = references_as_sources(references)
    _, result = score_systems(EXACT, [outputs[2:], outputs[:2]], sources, references)
    assert result.difference.p_value == pytest.approx(expected, abs=0.015)
    assert result.difference.value == pytest.approx(100 * (rights[:2].mean() - rights[2:].mean()))


def test_systems_may_have_different_numbers_of_runs():
    """Two runs against three: both are repeated to six."""
    texts = ["11101110", "11011100", "00000110", "01000100", "01100000"]
    outputs, references = exact_scores(*texts)
    sources = references_as_sources(references)
    _, result = score_systems(EXACT, [outputs[2:], outputs[:2]], sources, references)
    even = [outputs[2:] * 2, outputs[:2] * 3]
    _, expected = score_systems(EXACT, even, sources, references)
    assert result.difference.p_value == expected.difference.p_value
    assert result.difference.value == pytest.approx(expected.difference.value)


def test_length_groups_are_those_of_evaluate():
    one, other = system(0.1), system(0.3, seed=1)
    (result,) = score_systems(EXACT, [[one, other]], REFERENCES, TARGETS)
    groups = [
        LengthBreakdown(REFERENCES).score_groups(EXACT, each, TARGETS) for each in (one, other)
    ]
    assert result.by_length == [
        (first.name, first.size, mean([first.score.value, second.score.value]))
        for first, second in zip(*groups, strict=True)
    ]


def test_ensemble_is_a_system_with_the_scores_of_evaluate(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = runs / "small-0", runs / "large"
    ensemble, options = f"{one}+{two}", ["--metrics", "chrf,perplexity", "--json"]
    words = "compare", one, ensemble, "--baseline", ensemble, *options, "--device", "cpu"
    ended = heedful(capsys, monkeypatch, *words)
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert [system["name"] for system in report["systems"]] == ["small-0", "small-0+large"]
    assert report["baseline"] == "small-0+large"
    words = "evaluate", one, "--ensemble-with", two, *options, "--device", "cpu"
    expected = [entry["value"] for entry in json.loads(heedful(capsys, monkeypatch, *words).out)]
    assert [each["stats"]["mean"] for each in report["systems"][1]["scores"]] == expected
    costs = [system["cost"] for system in report["systems"]]
    for name in ("steps", "training_seconds", "training_flops"):
        assert costs[1][name]["mean"] > costs[0][name]["mean"]
    assert report["systems"][1]["runs"] == [ensemble]


def test_folder_whose_name_has_a_plus_is_one_run(runs, tmp_path):
    folder = shutil.copytree(runs / "large", tmp_path / "a+b")
    (system,) = group_runs([folder])
    assert (system.name, system.runs, system.is_ensemble) == ("a+b", [(folder,)], False)


def test_member_that_is_named_twice_raises(runs):
    with pytest.raises(ConfigError, match="given twice"):
        group_runs([runs / f"large+{runs}/large"])
