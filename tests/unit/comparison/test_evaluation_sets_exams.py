import pytest

from heedful.comparison.evaluation_sets import (
    MAX_EXAMPLES,
    ParallelEvaluationSet,
    count_parameters,
    evenly_spaced,
    group_by_system,
)
from heedful.evaluation.registry import METRICS, get_metrics
from heedful.evaluation.score_table import score_outputs
from heedful.runs import load_translator

MEASURED = ["exact-match", "chrf"]


@pytest.fixture
def evaluation_set(runs):
    sources = (runs / "test.src").read_text().splitlines()
    return ParallelEvaluationSet(
        "letters", sources, [(line,) for line in sources], get_metrics(MEASURED), beam_size=1
    )


def test_systems_are_judged_by_what_their_runs_say(runs, evaluation_set):
    systems = [[runs / "small-0", runs / "small-1"], [runs / "large"]]
    held = evaluation_set.evaluate(systems, baseline=0, device="cpu")
    said = {
        run: [
            each.text
            for each in load_translator(run).translate(evaluation_set.sources, beam_size=1)
        ]
        for folders in systems
        for run in folders
    }
    for folders, result in zip(systems, held.results, strict=True):
        for name, judged in zip(MEASURED, result.scores, strict=True):
            values = [
                score_outputs(METRICS[name], said[run], evaluation_set.references)
                for run in folders
            ]
            mean = sum(entry.score.value for entry in values) / len(values)
            assert judged.stats.mean == pytest.approx(mean)
            assert (judged.stats.std is None) == (len(folders) == 1)
        model = load_translator(folders[0]).model
        assert result.num_parameters == sum(weight.numel() for weight in model.parameters())
        assert result.sentences_per_second.mean > 0
        assert result.tokens_per_second.mean > 0
    wanted = score_outputs(METRICS["chrf"], said[runs / "large"], evaluation_set.references)
    assert held.results[1].scores[1].interval is not None
    assert held.results[1].scores[1].score == wanted.score


def test_examples_are_of_one_length_and_of_the_test_set(runs, evaluation_set):
    held = evaluation_set.evaluate([[runs / "small-0"], [runs / "large"]], baseline=0, device="cpu")
    assert len(held.sources) == MAX_EXAMPLES
    assert held.references == held.sources  # they are to be copied
    for name, result in zip(("small-0", "large"), held.results, strict=True):
        said = load_translator(runs / name).translate(held.sources, beam_size=1)
        assert result.outputs == [each.text for each in said]


def test_examples_are_first_those_that_were_answered_unlike():
    evaluation_set = ParallelEvaluationSet("few", ["a", "b", "c"], [("a",)] * 3, [])
    assert evaluation_set._examples([["x", "y", "z"], ["x", "y", "w"]]) == [0, 1, 2]
    evaluation_set = ParallelEvaluationSet("many", ["a"] * 30, [("a",)] * 30, [])
    unlike = [3, 29]
    other = ["y" if row in unlike else "x" for row in range(30)]
    found = evaluation_set._examples([["x"] * 30, other])
    assert len(found) == MAX_EXAMPLES
    assert {*unlike} < {*found}
    assert found == sorted(found)


@pytest.mark.parametrize("size", [0, 1, 5, 8, 9, 100])
def test_what_is_spread_is_in_order_and_no_more_than_asked(size):
    found = evenly_spaced(range(size), 8)
    assert len(found) == min(8, size)
    assert found == sorted(set(found))


def test_runs_are_dealt_to_their_systems():
    assert group_by_system([1, 2, 3], [["a"], ["b", "c"]]) == [[1], [2, 3]]


def test_parameters_that_are_shared_count_once():
    from torch import nn

    layer = nn.Linear(3, 2)
    assert count_parameters(nn.ModuleList([layer, layer])) == 8
