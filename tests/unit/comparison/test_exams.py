import pytest

from heedful.comparison.exams import MOST_EXAMPLES, PairExam, count_parameters, deal, spread
from heedful.evaluation.metrics import MEASURES, choose
from heedful.evaluation.sheet import judge
from heedful.runs import load_translator

MEASURED = ["exact-match", "chrf"]


@pytest.fixture
def exam(runs):
    sources = (runs / "test.src").read_text().splitlines()
    return PairExam("letters", sources, [(line,) for line in sources], choose(MEASURED), beam=1)


def test_systems_are_judged_by_what_their_runs_say(runs, exam):
    systems = [[runs / "small-0", runs / "small-1"], [runs / "large"]]
    held = exam.hold(systems, baseline=0, device="cpu")
    said = {
        run: [each.text for each in load_translator(run).translate(exam.sources, beam=1)]
        for folders in systems
        for run in folders
    }
    for folders, result in zip(systems, held.results, strict=True):
        for name, judged in zip(MEASURED, result.judged, strict=True):
            values = [judge(MEASURES[name], said[run], exam.references) for run in folders]
            mean = sum(entry.metric.value for entry in values) / len(values)
            assert judged.over.mean == pytest.approx(mean)
            assert (judged.over.deviation is None) == (len(folders) == 1)
        model = load_translator(folders[0]).model
        assert result.num_parameters == sum(weight.numel() for weight in model.parameters())
        assert result.sentences_per_second.mean > 0
        assert result.tokens_per_second.mean > 0
    wanted = judge(MEASURES["chrf"], said[runs / "large"], exam.references)
    assert held.results[1].judged[1].interval is not None
    assert held.results[1].judged[1].metric == wanted.metric


def test_examples_are_of_one_length_and_of_the_test_set(runs, exam):
    held = exam.hold([[runs / "small-0"], [runs / "large"]], baseline=0, device="cpu")
    assert len(held.sources) == MOST_EXAMPLES
    assert held.references == held.sources  # they are to be copied
    for name, result in zip(("small-0", "large"), held.results, strict=True):
        said = load_translator(runs / name).translate(held.sources, beam=1)
        assert result.outputs == [each.text for each in said]


def test_examples_are_first_those_that_were_answered_unlike():
    exam = PairExam("few", ["a", "b", "c"], [("a",)] * 3, [])
    assert exam._examples([["x", "y", "z"], ["x", "y", "w"]]) == [0, 1, 2]
    exam = PairExam("many", ["a"] * 30, [("a",)] * 30, [])
    unlike = [3, 29]
    other = ["y" if row in unlike else "x" for row in range(30)]
    found = exam._examples([["x"] * 30, other])
    assert len(found) == MOST_EXAMPLES
    assert {*unlike} < {*found}
    assert found == sorted(found)


@pytest.mark.parametrize("size", [0, 1, 5, 8, 9, 100])
def test_what_is_spread_is_in_order_and_no_more_than_asked(size):
    found = spread(range(size), 8)
    assert len(found) == min(8, size)
    assert found == sorted(set(found))


def test_runs_are_dealt_to_their_systems():
    assert deal([1, 2, 3], [["a"], ["b", "c"]]) == [[1], [2, 3]]


def test_parameters_that_are_shared_count_once():
    from torch import nn

    layer = nn.Linear(3, 2)
    assert count_parameters(nn.ModuleList([layer, layer])) == 8
