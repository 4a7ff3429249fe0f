"""Edits as values: their JSON and text forms, and what they do to a row."""

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.edits import AttentionEdit, find_attention, with_edits
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore
from heedful.errors import ConfigError

SYNTAX = "write 'layer=PATH, step=3, head=0, set=5'; docs/edits.md has all keys"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("layer=a.b, step=3, set=5", {"layer": "a.b", "step": 3, "set": {"5": 1.0}}),
        ("head=1, set=5:0.25 6:0.5", {"head": 1, "set": {"5": 0.25, "6": 0.5}}),
        ("row=0.5 0.5", {"row": [0.5, 0.5]}),
        ("scale=2:3", {"scale": {"2": 3.0}}),
        ("layer=source,drop=0 2", {"layer": "source", "scale": {"0": 0.0, "2": 0.0}}),
        ("temperature=0.2", {"alignment": {"type": "softmax", "temperature": 0.2}}),
        ("alignment=sparsemax", {"alignment": {"type": "sparsemax"}}),
        ("alignment=diagonal", {"alignment": {"type": "fixed", "pattern": "diagonal"}}),
    ],
)
def test_text_and_json_are_the_same_edit(text, fields):
    edit = AttentionEdit.parse(text)
    assert edit.to_json() == fields
    assert AttentionEdit.from_json(fields) == edit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"--edit: '' is not KEY=VALUE\n  {SYNTAX}"),
        (
            "stp=3",
            "--edit: no key is called 'stp'; did you mean 'step'?\n  choose from: alignment,",
        ),
        ("step=one, set=1", f"--edit: step=one cannot be read\n  {SYNTAX}"),
        (
            "step=-1, set=1",
            f"--edit: step: should be greater than or equal to 0, got -1\n  {SYNTAX}",
        ),
        ("scale=5", f"--edit: scale=5 cannot be read\n  {SYNTAX}"),
        ("step=1, step=2", f"--edit: 'step' is given twice, or with another\n  {SYNTAX}"),
        ("drop=1, scale=2:3", f"--edit: 'scale' is given twice, or with another\n  {SYNTAX}"),
        ("step=1", "--edit: needs one of row, set, scale and alignment, but has none"),
        ("set=1, row=1", "--edit: needs one of row, set, scale and alignment, but has row and set"),
        ("row=0.9 0.9", "--edit: the weights of a row sum to at most 1, but these to 1.8"),
        (
            "alignment=local",
            "--edit: alignment.type: no alignment is called 'local'\n  choose from",
        ),
        ("temperature=0", "--edit: alignment.temperature: should be greater than 0"),
        ("set=nan", "--edit: set=nan cannot be read"),
        ("set=1:nan", "--edit: set: "),
    ],
)
def test_text_that_is_no_edit_is_rejected(text, message):
    with pytest.raises(ConfigError) as caught:
        AttentionEdit.parse(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", [None, 3, "step=3", [], {"step": "x"}, {"set": {"a": 1}}])
def test_json_that_is_no_edit_is_rejected(value):
    with pytest.raises(ConfigError, match="edit"):
        AttentionEdit.from_json(value)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (AttentionEdit(set={1: 1}), [0, 1, 0, 0]),
        (AttentionEdit(set={1: 0.2}), [0.1, 0.2, 0.3, 0.4]),  # the others had 0.1, 0.3 and 0.4
        (AttentionEdit(row=(0.5, 0.5)), [0.5, 0.5, 0, 0]),
        (AttentionEdit(scale={3: 0}), [1 / 6, 2 / 6, 3 / 6, 0]),
        (AttentionEdit(scale={0: 4}), [4 / 13, 2 / 13, 3 / 13, 4 / 13]),
        (AttentionEdit(alignment={"type": "fixed"}), [0.25] * 4),
        (AttentionEdit(alignment={"type": "softmax", "temperature": 0.5}), [1, 4, 9, 16]),
    ],
)
def test_row_of_weights_as_computed_by_hand(edit, expected):
    attention = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())
    edited = with_edits(attention, [edit])
    keys = torch.tensor([1.0, 2, 3, 4], dtype=torch.double).log()[None, :, None]
    output = edited(torch.ones(1, 1, 1).double(), edited.build_memory(keys), need_weights=False)
    total = torch.tensor(expected, dtype=torch.double)
    torch.testing.assert_close(output.weights[0, 0], total / total.sum())


def test_attention_in_a_single_module_needs_no_name():
    attention = SingleHeadAttention(DotScore(), SoftmaxAlignment(), WeightedSumReadout())
    (site,) = find_attention(attention)
    assert (site.path, site.num_heads, site.role) == ("", 1, "cross")
