"""Samples are grouped by validation, bounded, and have a map only if weights are valid."""

import math

import pytest

from heedful.inspection import run_report
from heedful.inspection.run_report import MAX_TOKENS, MAX_VALIDATIONS, group_by_step
from heedful.training.callbacks import LoggedSample

LOGGED = LoggedSample(
    source=["a", "b"], reference="x y", output=["x"], text="x", attention=[[0.25, 0.75]]
)
SAMPLE = {"step": 10, **LOGGED._asdict()}


def only_item(**changes):
    ((validation,), _) = group_by_step([{**SAMPLE, **changes}]).values()
    (item,) = validation["items"]
    return item


def test_samples_grouped_by_step():
    grouped = group_by_step([{**SAMPLE, "step": step} for step in (20, 20, 10)])
    assert [part["step"] for part in grouped["validations"]] == [10, 20]
    assert [len(part["items"]) for part in grouped["validations"]] == [1, 2]


def test_sample_keeps_texts_and_weights():
    assert only_item() == {
        "source": ["a", "b"],
        "output": ["x"],
        "reference": "x y",
        "text": "x",
        "weights": [[0.25, 0.75]],
        "notes": [""],
        "grid": None,
        "is_cut": False,
    }


def image_sample(rows, columns, grid=None):
    cells = rows * columns
    weights = [[1 / cells] * cells]
    labels = [str(cell) for cell in range(cells)]
    options = {"source_text": "dog.png", "grid": [rows, columns] if grid is None else grid}
    return only_item(source=labels, attention=weights, **options)


def test_sample_of_an_image_has_grid_and_all_cells():
    item = image_sample(14, 14)
    assert (item["grid"], item["source"], item["is_cut"]) == ((14, 14), ["dog.png"], False)
    assert len(item["weights"][0]) == 196


@pytest.mark.parametrize("grid", ["2", [2], [2, "3"], [0, 6], [-2, -3], 5, []], ids=str)
def test_invalid_grid_is_a_list_of_tokens(grid):
    item = image_sample(2, 3, grid)
    assert item["grid"] is None
    assert item["source"] == ["0", "1", "2", "3", "4", "5"]


def test_grid_with_other_cells_than_weights_is_not_drawn():
    assert image_sample(2, 3, [2, 2])["weights"] is None


@pytest.mark.parametrize(
    "weights",
    [
        [],
        None,
        "none",
        [[0.5]],
        [[1, 0], [0, 1]],
        [[1], [0, 1]],
        [[math.nan, 0]],
        [[-1, 1]],
        [[10**400, 0]],
    ],
    ids=str,
)
def test_invalid_weights_not_drawn(weights):
    assert only_item(attention=weights)["weights"] is None


def test_incomplete_sample_is_shown():
    ((validation,), total) = group_by_step([{"step": 1}, {"text": "no step"}]).values()
    assert total == 1
    assert validation["items"][0]["text"] == ""


def test_invisible_characters_of_samples_escaped():
    item = only_item(source=[" ", "\u202e"], text="a\u202eb\n\x00c")
    assert item["source"] == ["\u2423", "\\u202e"]
    assert item["text"] == "a\\u202eb\n\\x00c"


def test_long_sequences_cut():
    tokens = ["w"] * 500
    weights = [[1 / 500] * 500] * 500
    item = only_item(source=tokens, output=tokens, attention=weights, text="w " * 5000)
    assert item["is_cut"]
    assert len(item["source"]) == len(item["output"]) == len(item["weights"]) == MAX_TOKENS
    assert {len(row) for row in item["weights"]} == {MAX_TOKENS}
    assert len(item["text"]) <= 2003


def test_validations_thinned_between_the_first_and_the_last():
    grouped = group_by_step([{**SAMPLE, "step": step} for step in range(1000)])
    steps = [part["step"] for part in grouped["validations"]]
    assert grouped["total"] == 1000
    assert len(steps) == len(set(steps)) == MAX_VALIDATIONS
    assert (steps[0], steps[-1]) == (0, 999)


def test_large_maps_reduce_the_number_of_validations(monkeypatch):
    monkeypatch.setattr(run_report, "MAX_WEIGHTS", 10_000)
    tokens = ["w"] * 16
    large = {**SAMPLE, "source": tokens, "output": tokens, "weights": [[1 / 16] * 16] * 16}
    grouped = group_by_step([{**large, "step": step} for step in range(99) for _ in range(4)])
    assert len(grouped["validations"]) == 10_000 // (16 * 16 * 4)


def test_bytes_of_a_sample_joined_to_characters():
    weights = [[0.25, 0.25, 0.5], [0.0, 1.0, 0.0]]
    tokens = {"source": ["<0xC3>", "<0xA9>", "b"], "output": ["x", "y"]}
    grouped = group_by_step([{**SAMPLE, **tokens, "attention": weights, "step": 1}])
    (item,) = grouped["validations"][0]["items"]
    assert item["source"] == ["\u00e9", "b"]
    assert item["weights"] == [[0.5, 0.5], [1.0, 0.0]]
