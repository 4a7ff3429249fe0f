"""Bounds: what they leave of candidates is what the rules of lengths leave of all words."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import BeamGroups, BeamSearchOptions
from heedful.search.beam_search import split_min_length
from heedful.search.logits_processors import ForbiddenTokens, MaxLength, MinLength, NoRepeatNGram
from tests.unit.search.tables import END, Table, search


def told(found):
    return [
        [(each.tokens, each.score, each.log_probs.tolist()) for each in outputs]
        for outputs in found
    ]


@given(
    seed=st.integers(0, 999),
    least=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    width=st.sampled_from([1, 2, 4]),
    groups=st.sampled_from([1, 2]),
)
def test_bounds_are_what_the_rules_are(seed, least, width, groups):
    table = Table(seed, 4, sentences=3)
    diversity = BeamGroups(groups if width % groups == 0 else 1)
    at_least = MinLength(torch.tensor(least), eos=END)
    # A second rule, that forbids nothing, makes the search apply them one by one.
    by_rules = (at_least, MaxLength(torch.full((3,), 4), eos=END), ForbiddenTokens([]))
    found, wanted = (
        search(
            table,
            width=width,
            longest=4,
            sentences=3,
            options=BeamSearchOptions(processors=rules, diversity=diversity),
        )
        for rules in ((at_least,), by_rules)
    )
    assert told(found) == told(wanted)


def test_only_a_lone_rule_is_taken_out():
    least, other = MinLength(torch.tensor([1]), eos=END), NoRepeatNGram(2)
    assert split_min_length((least,)) == ((), least)
    assert split_min_length((least, other)) == ((least, other), None)
    assert split_min_length((other,)) == ((other,), None)
    assert split_min_length(()) == ((), None)
