"""Following: nothing is spared that had to be copied."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.pytree import select_rows, tensors_of
from heedful.search.beam_search import StateReorderer


@given(data=st.data())
def test_what_is_followed_is_what_is_selected(data):
    """Sentences with hypotheses of their own, through random steps that change one part."""
    held, owners = 1, list(range(data.draw(st.integers(1, 4))))
    state = (torch.tensor(owners), (torch.tensor(owners).float()[:, None], None))
    plain, follower = state, StateReorderer(state)
    for time in range(4):
        changed = plain[1][0] * 3 + torch.arange(len(owners))[:, None]
        after, spared = (plain[0], (changed, None)), (state[0], (changed, None))
        goes_on = [owner for owner in dict.fromkeys(owners) if data.draw(st.booleans())]
        rows, width = [], 2
        for owner in goes_on:
            own = [row for row, each in enumerate(owners) if each == owner]
            rows += data.draw(st.lists(st.sampled_from(own), min_size=width, max_size=width))
        same_sentences = width == held and goes_on == list(dict.fromkeys(owners))
        same_rows = same_sentences and rows == list(range(len(owners)))
        chosen = torch.tensor(rows, dtype=torch.long)
        plain = select_rows(after, chosen)
        state = follower.reorder(spared, chosen, same_rows=same_rows, same_sentences=same_sentences)
        for one, other in zip(tensors_of(plain), tensors_of(state), strict=True):
            assert torch.equal(one, other), time
        owners, held = [owners[row] for row in rows], width
        if not owners:
            return


def test_what_no_step_has_touched_is_not_copied_within_a_sentence():
    memory, moving = torch.arange(4), torch.arange(4)
    follower = StateReorderer((memory, moving))
    rows = torch.tensor([1, 0, 3, 3])
    followed = follower.reorder((memory, moving + 1), rows, same_rows=False, same_sentences=True)
    assert followed[0] is memory
    assert followed[1].tolist() == [2, 1, 4, 4]
