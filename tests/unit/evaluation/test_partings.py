import pytest

from heedful.evaluation.metrics import MEASURES, exact_match
from heedful.evaluation.partings import ByKind, ByLabel, ByLength, ByRarity

SOURCES = ["Who sleeps?", "a b c d e f", "a b"]
OUTPUTS, REFERENCES = ["x y", "y", "z"], ["x y", "y", "w"]


@pytest.mark.parametrize(
    ("parting", "parts"),
    [
        (ByLength(SOURCES), {"1-5": 50, "6-10": 100}),
        (ByLength(SOURCES, width=6), {"1-6": pytest.approx(200 / 3)}),
        (ByRarity({"x": 1, "y": 3}, REFERENCES), {"0": 0, "1": 100, "2-4": 100}),
        (ByKind(SOURCES), {"question": 100, "plain": 50}),
        (ByLabel(["b", "a", "a"]), {"a": 50, "b": 100}),
    ],
)
def test_each_part_is_measured_by_itself(parting, parts):
    found = parting.groups(MEASURES["exact-match"], OUTPUTS, REFERENCES)
    assert {each.name: each.metric.value for each in found} == parts
    assert sum(each.size for each in found) == 3
    assert all(each.metric.name == exact_match(["a"], ["a"]).name for each in found)
    assert parting.title


def test_rare_words_are_those_of_texts_even_where_links_are_measured():
    parting = ByRarity({"x": 1, "y": 3}, REFERENCES)
    found = parting.groups(MEASURES["aer"], ["0-0", "0-0", "0-1"], ["0-0", "0-0", "0-0"])
    assert [(each.name, each.metric.value) for each in found] == [("0", 100), ("1", 0), ("2-4", 0)]
