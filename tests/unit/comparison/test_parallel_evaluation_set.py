from dataclasses import replace
from types import SimpleNamespace

import pytest

from heedful.comparison.test_sets import (
    MAX_EXAMPLES,
    AdditionalTestSet,
    ParallelEvaluationSet,
    count_parameters,
    evenly_spaced,
    group_by_system,
    select_examples,
)
from heedful.data.text.pair_dataset import Pair
from heedful.evaluation.registry import METRICS, SOURCE_METRICS, get_metrics
from heedful.evaluation.score_table import score_outputs
from heedful.runs import load

METRIC_NAMES = ["exact-match", "chrf"]


@pytest.fixture
def evaluation_set(runs):
    sources = (runs / "test.src").read_text().splitlines()
    return ParallelEvaluationSet(
        "letters", sources, [(line,) for line in sources], get_metrics(METRIC_NAMES), beam_size=1
    )


def test_systems_scored_by_the_outputs_of_their_runs(runs, evaluation_set):
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
