"""Logits processors: the invariants of all of them, and what each keeps out of outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.search import BeamGroups, BeamSearchOptions, require_phrase
from heedful.search.logits_processors import (
    ForbiddenPhrases,
    ForbiddenTokens,
    ForcedBOSToken,
    ForcedPrefix,
    MinLength,
    NoRepeatNGram,
    PerSentenceProcessor,
    RepetitionPenalty,
    apply_processors,
    lengths_from_ratio,
)
from tests.unit.search.tables import EOS, TableModel, contains, search

VOCAB_SIZE, NUM_ROWS = 7, 5
LENGTHS = torch.tensor([0, 2, 9])
PROCESSORS = {
    "forbidden tokens": ForbiddenTokens([2, 5]),
    "forbidden phrases": ForbiddenPhrases([[2, 3], [4], [3, 3, 2]]),
    "forced prefix": ForcedPrefix([[2, 2, 3], [], [4]]),
    "min length": MinLength(LENGTHS, eos=EOS),
    "no repeated bigram": NoRepeatNGram(2),
    "no repeated token": NoRepeatNGram(1),
    "repetition penalty": RepetitionPenalty(1.3),
    "per sentence": PerSentenceProcessor([ForbiddenTokens([3]), None, NoRepeatNGram(1)]),
}
NEUTRAL_PROCESSORS = {
    "forbidden tokens": ForbiddenTokens([]),
    "forbidden phrases": ForbiddenPhrases([]),
    "forced prefix": ForcedPrefix([[], [], []]),
    "min length": MinLength(torch.zeros(3).long(), eos=EOS),
    "no repeated n-gram": NoRepeatNGram(99),
    "repetition penalty": RepetitionPenalty(1.0),
    "per sentence": PerSentenceProcessor([None, None, None]),
}
each_processor = pytest.mark.parametrize("processor", PROCESSORS.values(), ids=PROCESSORS)
step_cases = given(seed=st.integers(0, 9999), depth=st.integers(0, 6))


def random_step(seed, depth):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(NUM_ROWS, VOCAB_SIZE, generator=generator).double()
    logits[:, 0] = -torch.inf
    generated = torch.randint(2, 5, (NUM_ROWS, depth), generator=generator)
    sentence_ids = torch.randint(0, 3, (NUM_ROWS,), generator=generator)
    return logits.log_softmax(-1), generated, sentence_ids


@each_processor
@step_cases
def test_processor_only_lowers_and_does_not_change_input(processor, seed, depth):
    log_probs, generated, sentence_ids = random_step(seed, depth)
    before = log_probs.clone()
    after = processor.apply(log_probs, generated, sentence_ids)
    assert torch.equal(log_probs, before)
    assert not after.isnan().any()
    assert (after <= before).all()


@each_processor
@step_cases
def test_processor_rows_are_independent(processor, seed, depth):
    log_probs, generated, sentence_ids = random_step(seed, depth)
    batched = processor.apply(log_probs, generated, sentence_ids)
    for row in range(NUM_ROWS):
        rows = slice(row, row + 1)
        alone = processor.apply(log_probs[rows], generated[rows], sentence_ids[rows])
        assert torch.equal(alone, batched[rows])


@given(
    seed=st.integers(0, 9999),
    depth=st.integers(0, 6),
    names=st.sets(st.sampled_from(sorted(PROCESSORS))),
)
def test_processors_together_never_forbid_every_token(seed, depth, names):
    processors = [PROCESSORS[name] for name in PROCESSORS if name in names]
    processors.append(ForbiddenTokens(range(2, VOCAB_SIZE)))
    log_probs, generated, sentence_ids = random_step(seed, depth)
    allowed, hard = apply_processors(processors, log_probs, generated, sentence_ids, eos=EOS)
    assert (allowed > -torch.inf).any(dim=-1).all()
    assert (allowed <= hard).all()
    assert (hard <= log_probs).all()
    is_forced = (hard > -torch.inf).sum(-1) == 1
    assert torch.equal(allowed[is_forced] > -torch.inf, hard[is_forced] > -torch.inf)


def test_processors_without_eos_fall_back_to_every_token():
    log_probs, generated, sentence_ids = random_step(0, 2)
    processors = [ForbiddenTokens(range(VOCAB_SIZE))]
    allowed, _ = apply_processors(processors, log_probs, generated, sentence_ids, eos=None)
    assert torch.equal(allowed, log_probs)


@pytest.mark.parametrize("processor", NEUTRAL_PROCESSORS.values(), ids=NEUTRAL_PROCESSORS)
@step_cases
def test_neutral_processor_changes_nothing(processor, seed, depth):
    log_probs, generated, sentence_ids = random_step(seed, depth)
    assert torch.equal(processor.apply(log_probs, generated, sentence_ids), log_probs)


def test_forced_first_token_costs_nothing():
    log_probs, generated, sentence_ids = random_step(0, 0)
    forced = ForcedBOSToken(4).apply(log_probs, generated, sentence_ids)
    assert forced[:, 4].tolist() == [0.0] * NUM_ROWS
    assert (forced.exp().sum(-1) == 1).all()


@step_cases
def test_forced_first_token_changes_nothing_after_the_first(seed, depth):
    log_probs, generated, sentence_ids = random_step(seed, depth + 1)
    assert ForcedBOSToken(4).apply(log_probs, generated, sentence_ids) is log_probs


def test_processors_keep_nan():
    log_probs, generated, sentence_ids = random_step(0, 3)
    log_probs[2] = torch.nan
    processors = list(PROCESSORS.values())
    allowed, _ = apply_processors(processors, log_probs, generated, sentence_ids, eos=EOS)
    assert allowed[2].isnan().any()


def check_exhaustive_beam(processors, keep, seed):
    """A beam as large as the output space finds every allowed output, best first."""
    model = TableModel(seed, 3, num_letters=3)
    options = BeamSearchOptions(processors=processors)
    outputs = search(model, beam_size=80, max_length=3, options=options)[0]
    expected = model.ranked_outputs(3, keep=keep)
    assert [output.tokens for output in outputs] == [tokens for _, tokens in expected]
    totals = [total for total, _ in expected]
    assert [output.log_prob for output in outputs] == pytest.approx(totals)


@given(seed=st.integers(0, 999))
def test_outputs_do_not_contain_forbidden_tokens_and_phrases(seed):
    check_exhaustive_beam((ForbiddenTokens([3]),), lambda tokens: 3 not in tokens, seed)
    phrases = [[2, 3], [4]]
    check_exhaustive_beam(
        (ForbiddenPhrases(phrases),),
        lambda tokens: not any(contains(tokens, phrase) for phrase in phrases),
        seed,
    )


@given(seed=st.integers(0, 999))
def test_outputs_start_with_forced_prefix(seed):
    check_exhaustive_beam((ForcedPrefix([[4, 2]]),), lambda tokens: tokens[:2] == [4, 2], seed)
    check_exhaustive_beam(
        (ForcedPrefix([[4, 2]]), ForbiddenTokens([2])),
        lambda tokens: tokens in ([4, 2, 3], [4, 2, 4], [4, 2]),
        seed,
    )


@given(seed=st.integers(0, 999))
def test_sentences_have_own_processors(seed):
    model = TableModel(seed, 3, num_letters=3, num_sentences=3)
    processors = (
        ForcedPrefix([[4], [], [2, 3]]),
        PerSentenceProcessor([ForbiddenPhrases([[4, 4]]), ForbiddenTokens([2]), None]),
    )
    first, second, third = search(
        model,
        beam_size=4,
        max_length=[3, 2, 3],
        num_sentences=3,
        options=BeamSearchOptions(processors=processors),
    )
    assert all(output.tokens[0] == 4 and output.tokens[:2] != [4, 4] for output in first)
    assert all(2 not in output.tokens for output in second)
    assert all(output.tokens[:2] == [2, 3] for output in third)


@given(seed=st.integers(0, 999), minimum=st.integers(0, 3), maximum=st.integers(0, 3))
def test_outputs_between_min_and_max_length_found(seed, minimum, maximum):
    model, maximum = TableModel(seed, 3), max(minimum, maximum)
    options = BeamSearchOptions(processors=(MinLength(torch.tensor([minimum]), eos=EOS),))
    outputs = search(model, beam_size=40, max_length=maximum, options=options)[0]
    expected = model.ranked_outputs(maximum, keep=lambda tokens: len(tokens) >= minimum)
    assert [output.tokens for output in outputs] == [tokens for _, tokens in expected]


def test_lengths_from_ratio_round_down():
    assert lengths_from_ratio(torch.tensor([1, 4, 10]), 0.5).tolist() == [0, 2, 5]
    assert lengths_from_ratio(torch.tensor([1, 4, 10]), 1.5, extra=2).tolist() == [3, 8, 17]


def has_repeated_ngram(tokens, size):
    ngrams = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


@given(seed=st.integers(0, 999), size=st.integers(1, 3))
def test_outputs_without_repeated_ngrams_found(seed, size):
    model, options = TableModel(seed, 4), BeamSearchOptions(processors=(NoRepeatNGram(size),))
    outputs = search(model, beam_size=40, max_length=4, options=options)[0]
    expected = model.ranked_outputs(4, keep=lambda tokens: not has_repeated_ngram(tokens, size))
    assert [output.tokens for output in outputs] == [tokens for _, tokens in expected]


@given(seed=st.integers(0, 999), penalty=st.sampled_from([1.0, 1.2, 3.0]))
def test_repetition_penalty_changes_scores_but_not_log_probs(seed, penalty):
    model = TableModel(seed, 3)
    options = BeamSearchOptions(processors=(RepetitionPenalty(penalty),))
    outputs = search(model, beam_size=30, max_length=3, options=options)[0]

    def score(tokens):
        output = [*tokens, None]
        return sum(
            log_prob * (penalty if output[time] in tokens[:time] else 1)
            for time, log_prob in enumerate(model.token_log_probs(tokens))
        )

    expected = sorted(model.outputs(3), key=score, reverse=True)
    assert [output.tokens for output in outputs] == expected
    scores = [score(tokens) for tokens in expected]
    assert [output.score for output in outputs] == pytest.approx(scores)
    for output in outputs:
        expected = model.token_log_probs(output.tokens)
        assert output.log_probs.tolist() == pytest.approx(expected)


def test_prefix_longer_than_max_length_raises():
    options = BeamSearchOptions(processors=(ForcedPrefix([[2, 3]]),))
    with pytest.raises(ConfigError) as caught:
        search(TableModel(0, 3), beam_size=2, max_length=1, options=options)
    assert str(caught.value) == (
        "prefix of sentence 1: the prefix has 2 tokens, but max_length is 1\n"
        "  shorten the prefix, or raise max_length"
    )


def test_empty_forbidden_phrase_raises():
    with pytest.raises(ConfigError) as caught:
        ForbiddenPhrases([[2], []])
    expected = "forbidden_phrases: a phrase is empty\n  remove the empty phrase"
    assert str(caught.value) == expected


def test_min_length_above_max_length_raises():
    model, processors = (
        TableModel(0, 3, num_sentences=2),
        (MinLength(torch.tensor([1, 4]), eos=EOS),),
    )
    options = BeamSearchOptions(processors=processors)
    with pytest.raises(ConfigError) as caught:
        search(model, beam_size=2, max_length=3, num_sentences=2, options=options)
    assert str(caught.value) == (
        "lengths of sentence 2: min_length is 4, but max_length is 3\n"
        "  lower min_length, or raise max_length"
    )


IMPOSSIBLE_END_OPTIONS = {
    "plain": {},
    "processors": {"processors": (ForbiddenTokens([]), MinLength(torch.tensor([1, 1]), eos=EOS))},
    "constraints": {"constraints": [[require_phrase([2])], [require_phrase([3], [2, 2])]]},
    "groups": {"diversity": BeamGroups(2)},
}
each_option = pytest.mark.parametrize("name", IMPOSSIBLE_END_OPTIONS)


@each_option
@given(seed=st.integers(0, 999), beam_size=st.sampled_from([2, 4, 40]))
def test_hypotheses_that_cannot_end_at_max_length_dropped(name, seed, beam_size):
    """One sentence of the batch can end after a 2 only; the other is not affected."""
    model, options = (
        TableModel(seed, 3, num_sentences=2),
        BeamSearchOptions(**IMPOSSIBLE_END_OPTIONS[name]),
    )
    shared = {"beam_size": beam_size, "max_length": 3, "num_sentences": 2, "options": options}
    _, expected = search(model, **shared)
    for history, index in model.history_ids.items():
        if history[-1:] != (2,):
            model.log_probs[0, index, EOS] = -torch.inf
    outputs, unaffected = search(model, **shared)
    assert [output.tokens for output in unaffected] == [output.tokens for output in expected]
    assert outputs
    if beam_size == 40:
        assert all(output.tokens[-1] == 2 for output in outputs)
    else:
        is_possible = [output.tokens[-1:] == [2] for output in outputs]
        assert all(is_possible) or len(outputs) == 1


@each_option
def test_sentence_that_never_ends_is_cut_off_with_score_of_minus_infinity(name):
    model, options = (
        TableModel(0, 3, num_sentences=2),
        BeamSearchOptions(**IMPOSSIBLE_END_OPTIONS[name]),
    )
    model.log_probs[0, :, EOS] = -torch.inf
    shared = {"beam_size": 2, "max_length": 3, "num_sentences": 2, "options": options}
    (cut_off,), outputs = search(model, **shared)
    assert len(cut_off.tokens) == 3
    assert cut_off.score == cut_off.log_prob == -torch.inf
    assert cut_off.log_probs.tolist() == pytest.approx(model.token_log_probs(cut_off.tokens))
    assert outputs
    assert all(output.score > -torch.inf for output in outputs)


def test_beam_without_any_possible_token_is_cut_off():
    model = TableModel(0, 3)
    model.log_probs[:, model.history_ids[2,]] = -torch.inf
    model.log_probs[:, model.history_ids[3,]] = -torch.inf
    model.log_probs[:, model.history_ids[()], EOS] = -torch.inf
    ((cut_off,),) = search(model, beam_size=4, max_length=3)
    assert cut_off.score == -torch.inf
    first = model.log_probs[0, model.history_ids[()]]
    assert cut_off.tokens == [int(first.argmax())]
