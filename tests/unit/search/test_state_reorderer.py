"""Reordering the state of a search: only copies that change nothing are left out."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.pytree import select_rows, tensors_of
from heedful.search.beam_search import StateReorderer


@given(data=st.data())
def test_reordered_state_equals_selected_rows(data):
    """Random steps with one constant and one changing part, over several sentences."""
    beam_size, sentence_ids = 1, list(range(data.draw(st.integers(1, 4))))
    state = (torch.tensor(sentence_ids), (torch.tensor(sentence_ids).float()[:, None], None))
    expected, reorderer = state, StateReorderer(state)
    for time in range(4):
        changed = expected[1][0] * 3 + torch.arange(len(sentence_ids))[:, None]
        before, after = (expected[0], (changed, None)), (state[0], (changed, None))
        sentences = list(dict.fromkeys(sentence_ids))
        kept = [sentence for sentence in sentences if data.draw(st.booleans())]
        rows, next_beam_size = [], 2
        for sentence in kept:
            of_sentence = [row for row, owner in enumerate(sentence_ids) if owner == sentence]
            rows += data.draw(
                st.lists(
                    st.sampled_from(of_sentence), min_size=next_beam_size, max_size=next_beam_size
                )
            )
        same_sentences = next_beam_size == beam_size and kept == sentences
        same_rows = same_sentences and rows == list(range(len(sentence_ids)))
        parents = torch.tensor(rows, dtype=torch.long)
        expected = select_rows(before, parents)
        state = reorderer.reorder(
            after, parents, same_rows=same_rows, same_sentences=same_sentences
        )
        for tensor, other in zip(tensors_of(expected), tensors_of(state), strict=True):
            assert torch.equal(tensor, other), time
        sentence_ids, beam_size = [sentence_ids[row] for row in rows], next_beam_size
        if not sentence_ids:
            return


def test_constant_tensors_are_not_copied_within_a_sentence():
    memory, changing = torch.arange(4), torch.arange(4)
    reorderer = StateReorderer((memory, changing))
    rows = torch.tensor([1, 0, 3, 3])
    state = reorderer.reorder((memory, changing + 1), rows, same_rows=False, same_sentences=True)
    assert state[0] is memory
    assert state[1].tolist() == [2, 1, 4, 4]
