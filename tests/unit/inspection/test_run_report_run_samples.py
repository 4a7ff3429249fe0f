"""Samples: grouped by validation, bounded, and with a map only where there can be one."""

import math

import pytest

from heedful.inspection import run_report
from heedful.inspection.run_report import MAX_TOKENS, MAX_VALIDATIONS, group_by_step

SAMPLE = {
    "step": 10,
    "source": ["a", "b"],
    "reference": "x y",
    "output": ["x"],
    "text": "x",
    "weights": [[0.25, 0.75]],
}


def only_item(**changes):
    ((validation,), _) = group_by_step([{**SAMPLE, **changes}]).values()
    (item,) = validation["items"]
    return item


def test_samples_are_grouped_by_their_step_in_order():
    found = group_by_step([{**SAMPLE, "step": step} for step in (20, 20, 10)])
    assert [each["step"] for each in found["validations"]] == [10, 20]
    assert [len(each["items"]) for each in found["validations"]] == [1, 2]


def test_a_sample_keeps_its_texts_and_weights():
    assert only_item() == {
        "source": ["a", "b"],
        "output": ["x"],
        "reference": "x y",
        "text": "x",
        "weights": [[0.25, 0.75]],
        "is_cut": False,
    }


@pytest.mark.parametrize(
    "weights",
    [[], None, "none", [[0.5]], [[1, 0], [0, 1]], [[1], [0, 1]], [[math.nan, 0]], [[-1, 1]]],
    ids=str,
)
def test_weights_that_are_no_map_are_not_drawn(weights):
    assert only_item(weights=weights)["weights"] is None


def test_a_sample_without_most_of_its_parts_is_shown_as_far_as_it_goes():
    ((validation,), total) = group_by_step([{"step": 1}, {"tokenizers": "no step"}]).values()
    assert total == 1
    assert validation["items"][0]["text"] == ""


def test_texts_and_tokens_that_hide_something_are_made_visible():
    item = only_item(source=[" ", "\u202e"], text="a\u202eb\n\x00c")
    assert item["source"] == ["\u2423", "\\u202e"]
    assert item["tokenizers"] == "a\\u202eb\n\\x00c"


def test_long_sequences_are_cut_and_it_is_said():
    tokens = ["w"] * 500
    weights = [[1 / 500] * 500] * 500
    item = only_item(source=tokens, output=tokens, weights=weights, text="w " * 5000)
    assert item["is_cut"]
    assert len(item["source"]) == len(item["output"]) == len(item["weights"]) == MAX_TOKENS
    assert {len(row) for row in item["weights"]} == {MAX_TOKENS}
    assert len(item["tokenizers"]) <= 2003


def test_many_validations_are_thinned_and_the_first_and_last_kept():
    found = group_by_step([{**SAMPLE, "step": step} for step in range(1000)])
    steps = [each["step"] for each in found["validations"]]
    assert found["total"] == 1000
    assert len(steps) == len(set(steps)) == MAX_VALIDATIONS
    assert (steps[0], steps[-1]) == (0, 999)


def test_large_maps_leave_room_for_fewer(monkeypatch):
    monkeypatch.setattr(run_report, "MAX_WEIGHTS", 10_000)
    tokens = ["w"] * 16
    large = {**SAMPLE, "source": tokens, "output": tokens, "weights": [[1 / 16] * 16] * 16}
    found = group_by_step([{**large, "step": step} for step in range(99) for _ in range(4)])
    assert len(found["validations"]) == 10_000 // (16 * 16 * 4)
