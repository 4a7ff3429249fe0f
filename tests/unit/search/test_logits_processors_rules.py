"""Rules: the laws all of them keep, and what each of them keeps out of outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import BeamSearchOptions
from heedful.search.logits_processors import (
    ForbiddenPhrases,
    ForbiddenTokens,
    ForcedPrefix,
    MaxLength,
    MinLength,
    NoRepeatNGram,
    PerSentenceProcessor,
    RepetitionPenalty,
    apply_processors,
)
from tests.unit.search.tables import END, Table, contains, search

SIZE, ROWS = 7, 5
LIMITS = torch.tensor([0, 2, 9])
RULES = {
    "never": ForbiddenTokens([2, 5]),
    "phrases": ForbiddenPhrases([[2, 3], [4], [3, 3, 2]]),
    "begin": ForcedPrefix([[2, 2, 3], [], [4]]),
    "at least": MinLength(LIMITS, eos=END),
    "at most": MaxLength(LIMITS, eos=END),
    "no repeats": NoRepeatNGram(2),
    "no word twice": NoRepeatNGram(1),
    "repetition": RepetitionPenalty(1.3),
    "per sentence": PerSentenceProcessor([ForbiddenTokens([3]), None, NoRepeatNGram(1)]),
}
EMPTY = {
    "never": ForbiddenTokens([]),
    "phrases": ForbiddenPhrases([]),
    "begin": ForcedPrefix([[], [], []]),
    "at least": MinLength(torch.zeros(3).long(), eos=END),
    "at most": MaxLength(torch.full((3,), 99), eos=END),
    "no repeats": NoRepeatNGram(99),
    "repetition": RepetitionPenalty(1.0),
    "per sentence": PerSentenceProcessor([None, None, None]),
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def asked(seed, depth):
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(ROWS, SIZE, generator=generator).double()
    log_probs[:, 0] = -torch.inf
    written = torch.randint(2, 5, (ROWS, depth), generator=generator)
    sentences = torch.randint(0, 3, (ROWS,), generator=generator)
    return log_probs.log_softmax(-1), written, sentences


cases = given(seed=st.integers(0, 9999), depth=st.integers(0, 6))


@each_rule
@cases
def test_a_rule_only_lowers_and_leaves_what_it_was_given_alone(rule, seed, depth):
    log_probs, written, sentences = asked(seed, depth)
    before = log_probs.clone()
    after = rule.apply(log_probs, written, sentences)
    assert torch.equal(log_probs, before)
    assert not after.isnan().any()
    assert (after <= before).all()


@each_rule
@cases
def test_rows_do_not_know_of_one_another(rule, seed, depth):
    log_probs, written, sentences = asked(seed, depth)
    together = rule.apply(log_probs, written, sentences)
    for row in range(ROWS):
        one = slice(row, row + 1)
        alone = rule.apply(log_probs[one], written[one], sentences[one])
        assert torch.equal(alone, together[one])


@given(
    seed=st.integers(0, 9999),
    depth=st.integers(0, 6),
    names=st.sets(st.sampled_from(sorted(RULES))),
)
def test_no_rules_together_forbid_everything(seed, depth, names):
    rules = [RULES[name] for name in sorted(names)] + [ForbiddenTokens(range(2, SIZE))]
    log_probs, written, sentences = asked(seed, depth)
    left, bound = apply_processors(rules, log_probs, written, sentences, eos=END)
    assert (left > -torch.inf).any(dim=-1).all()
    assert (left <= bound).all()
    assert (bound <= log_probs).all()
    is_forced = (bound > -torch.inf).sum(-1) == 1
    assert torch.equal(left[is_forced] > -torch.inf, bound[is_forced] > -torch.inf)


def test_where_there_is_no_end_what_is_all_forbidden_is_free():
    log_probs, written, sentences = asked(0, 2)
    left, _ = apply_processors(
        [ForbiddenTokens(range(SIZE))], log_probs, written, sentences, eos=None
    )
    assert torch.equal(left, log_probs)


@pytest.mark.parametrize("rule", EMPTY.values(), ids=EMPTY)
@cases
def test_an_empty_rule_is_no_rule(rule, seed, depth):
    log_probs, written, sentences = asked(seed, depth)
    assert torch.equal(rule.apply(log_probs, written, sentences), log_probs)


def test_what_is_no_number_stays_none():
    log_probs, written, sentences = asked(0, 3)
    log_probs[2] = torch.nan
    left, _ = apply_processors(list(RULES.values()), log_probs, written, sentences, eos=END)
    assert left[2].isnan().any()


def kept(rules, keep, seed, width=80):
    """What a beam as wide as the space finds is everything that is allowed, best first."""
    table = Table(seed, 3, num_letters=3)
    found = search(table, width=width, longest=3, options=BeamSearchOptions(processors=rules))[0]
    allowed = table.exhaust(3, keep=keep)
    assert [each.tokens for each in found] == [tokens for _, tokens in allowed]
    assert [each.log_prob for each in found] == pytest.approx([total for total, _ in allowed])


@given(seed=st.integers(0, 999))
def test_forbidden_tokens_and_phrases_are_in_no_output(seed):
    kept((ForbiddenTokens([3]),), lambda tokens: 3 not in tokens, seed)
    phrases = [[2, 3], [4]]
    kept(
        (ForbiddenPhrases(phrases),),
        lambda tokens: not any(contains(tokens, phrase) for phrase in phrases),
        seed,
    )


@given(seed=st.integers(0, 999))
def test_outputs_begin_as_they_must(seed):
    kept((ForcedPrefix([[4, 2]]),), lambda tokens: tokens[:2] == [4, 2], seed)
    kept(
        (ForcedPrefix([[4, 2]]), ForbiddenTokens([2])),
        lambda tokens: tokens in ([4, 2, 3], [4, 2, 4], [4, 2]),
        seed,
    )


@given(seed=st.integers(0, 999))
def test_sentences_keep_rules_of_their_own(seed):
    table = Table(seed, 3, num_letters=3, sentences=3)
    rules = (
        ForcedPrefix([[4], [], [2, 3]]),
        PerSentenceProcessor([ForbiddenPhrases([[4, 4]]), ForbiddenTokens([2]), None]),
    )
    first, second, third = search(
        table, width=4, longest=[3, 2, 3], sentences=3, options=BeamSearchOptions(processors=rules)
    )
    assert all(each.tokens[0] == 4 and each.tokens[:2] != [4, 4] for each in first)
    assert all(2 not in each.tokens for each in second)
    assert all(each.tokens[:2] == [2, 3] for each in third)


def complaint(rule, longest):
    with pytest.raises(ConfigError) as caught:
        search(Table(0, 3), width=2, longest=longest, options=BeamSearchOptions(processors=(rule,)))
    return str(caught.value)


def test_a_prefix_that_does_not_fit_is_refused():
    assert complaint(ForcedPrefix([[2, 3]]), 1) == (
        "prefix of sentence 1: it has 2 tokens, but the output may have 1\n"
        "  give a shorter prefix, or let outputs be longer"
    )


def test_a_phrase_of_nothing_cannot_be_forbidden():
    with pytest.raises(ConfigError) as caught:
        ForbiddenPhrases([[2], []])
    assert str(caught.value) == (
        "rules.never: an empty phrase is in every output, and cannot be forbidden\n  leave it out"
    )
