"""Drawing: whole outputs as often as they are likely, each with its evidence."""

from collections import Counter
from math import exp

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import score_targets
from heedful.search.logits_processors import ForbiddenTokens, ForcedPrefix
from heedful.search.sampling import SamplingOptions, random_generators, sample_hypotheses
from tests.shape_checking import unchecked
from tests.unit.search.tables import BEGIN, END, Table

COUNT = 20_000
# P(chi-square > 75) is less than 1e-6 for 24 degrees of freedom, and less for fewer.
UNLIKELY = 75.0


def drawn(table, sentences, longest, *, how=None, rules=(), seed=0):
    rows = torch.tensor(sentences)
    return sample_hypotheses(
        table,
        (rows, torch.full((len(rows), table.depth + 2), BEGIN)),
        bos=BEGIN,
        eos=END,
        sentence_ids=rows,
        max_lengths=torch.tensor(longest),
        options=how or SamplingOptions(),
        generators=random_generators(seed, range(len(rows))),
        processors=rules,
    )


@pytest.mark.parametrize("longest", [0, 1, 2])
def test_outputs_are_drawn_as_often_as_they_are_likely(longest):
    """The end of what has grown to its limit is certain; all else is as the table has it."""
    table = Table(5, 2)
    with unchecked():
        found = Counter(tuple(each.tokens) for each in drawn(table, [0] * COUNT, [longest]))
    wanted = {}
    for tokens in table.outputs(longest):
        own = table.of(tokens)
        likely = sum(own[:-1]) if len(tokens) == longest else sum(own)
        wanted[tuple(tokens)] = COUNT * exp(likely)
    assert sum(wanted.values()) == pytest.approx(COUNT)
    assert found.keys() <= wanted.keys()
    assert sum((found[each] - n) ** 2 / n for each, n in wanted.items()) < UNLIKELY


@given(seed=st.integers(0, 9999), rules=st.sampled_from([(), (ForbiddenTokens([2]),)]))
def test_what_is_drawn_carries_what_the_table_says_of_it(seed, rules):
    """Rules and temperature change what is drawn, and not what the model thinks of it."""
    table, sentences = Table(seed, 4, sentences=3), [0, 0, 1, 2, 2]
    how = SamplingOptions(temperature=2.0)
    found = drawn(table, sentences, [4, 2, 0], how=how, rules=rules, seed=seed)
    for each, sentence in zip(found, sentences, strict=True):
        own = table.of(each.tokens, sentence)
        assert len(each.tokens) <= [4, 2, 0][sentence]
        assert each.log_probs.tolist() == pytest.approx(own)
        assert each.log_prob == each.score == pytest.approx(sum(own))
        looked = table.looked(each.tokens).numpy()
        assert each.weights == pytest.approx(looked[:-1])
        assert each.eos_weights == pytest.approx(looked[-1])


def test_no_targets_have_no_worth():
    table = Table(0, 1)
    assert score_targets(table, table.start(0), [], bos=BEGIN, eos=END) == []


def test_rules_that_no_output_can_keep_to_are_refused():
    with pytest.raises(ConfigError, match="prefix of sentence 1: it has 3 tokens"):
        drawn(Table(0, 2), [0], [2], rules=(ForcedPrefix([[2, 2, 2]]),))
