"""Selecting rows of a tracked state copies what it must and nothing else."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.acceleration.cpu.decoding_state import TrackedState
from heedful.pytree import select_rows, tensors_of


@given(data=st.data())
def test_rows_of_tracked_state_are_rows_of_every_tensor(data):
    """Random steps change one part of the state and pass on the other."""
    rows = list(range(data.draw(st.integers(1, 4))))
    plain = (torch.tensor(rows), (torch.tensor(rows).float()[:, None], None))
    tracked = TrackedState.from_initial(plain)
    for _ in range(4):
        changed = plain[1][0] * 3 + torch.arange(len(plain[0]))[:, None]
        plain = (plain[0], (changed, None))
        tracked = tracked.advance((tracked.state[0], (changed, None)))
        indices = st.integers(0, len(plain[0]) - 1)
        parents = torch.tensor(data.draw(st.lists(indices, min_size=1, max_size=6)))
        plain, tracked = select_rows(plain, parents), select_rows(tracked, parents)
        for expected, actual in zip(tensors_of(plain), tensors_of(tracked.state), strict=True):
            assert torch.equal(expected, actual)


def beam_of_two():
    source, hidden = torch.arange(2), torch.arange(2)
    tracked = select_rows(TrackedState.from_initial((source, hidden)), torch.tensor([0, 0, 1, 1]))
    return tracked.advance((tracked.state[0], torch.arange(4)))


def test_unchanged_tensors_not_copied_within_sentences():
    tracked = beam_of_two()
    reordered = select_rows(tracked, torch.tensor([1, 0, 3, 3]))
    assert reordered.state[0] is tracked.state[0]
    assert reordered.state[1].tolist() == [1, 0, 3, 3]


def test_unchanged_tensors_copied_when_sentences_leave():
    left = select_rows(beam_of_two(), torch.tensor([2, 3]))
    assert left.state[0].tolist() == [1, 1]


def test_nothing_is_copied_when_every_row_continues_itself():
    tracked = beam_of_two()
    assert select_rows(tracked, torch.arange(4)) is tracked
