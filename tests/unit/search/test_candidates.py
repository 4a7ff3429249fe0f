"""Candidates: ranking by chunks, length bounds and diverse groups against direct computation."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError, RunError
from heedful.search import BeamGroups, BeamSearchOptions
from heedful.search.candidates import find_candidates
from heedful.search.logits_processors import ForbiddenTokens, MinLength
from tests.unit.search.tables import EOS, TableModel, never_stop, search

MAX_LENGTH = 3
seeds = st.integers(0, 9999)


@given(
    seed=seeds,
    vocab_size=st.sampled_from([3, 127, 640, 1280, 1281, 1300, 2559]),
    beam_size=st.integers(1, 3),
    count=st.integers(1, 4),
    forbidden=st.sampled_from([0.0, 0.5, 0.999]),
)
def test_every_kernel_ranks_as_sorting_everything(seed, vocab_size, beam_size, count, forbidden):
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(2 * beam_size, vocab_size, generator=generator).double()
    log_probs[torch.rand(log_probs.shape, generator=generator) < forbidden] = -torch.inf
    totals = torch.randn(2, beam_size, generator=generator).double()
    arguments = (log_probs, log_probs, totals.numpy(), count)
    kernels = [kernel for kernel in find_candidates.kernels if kernel.supports(*arguments)]
    for rank in [find_candidates.reference, *(kernel.run for kernel in kernels)]:
        candidates = rank(*arguments)
        chosen = log_probs.numpy()[candidates.rows, candidates.tokens]
        assert candidates.log_probs.tolist() == chosen.tolist()
        sums = chosen + totals.flatten().numpy()[candidates.rows]
        assert candidates.cumulative_log_probs.tolist() == sums.tolist()
        for beam in range(2):
            of_beam = log_probs[beam * beam_size : (beam + 1) * beam_size] + totals[beam, :, None]
            expected = of_beam.flatten().sort(descending=True).values[:count]
            assert candidates.cumulative_log_probs[beam].tolist() == expected.tolist()
            rows, tokens = candidates.rows[beam].tolist(), candidates.tokens[beam].tolist()
            num_real = int((expected > -torch.inf).sum())
            assert len(set(zip(rows, tokens, strict=True))) >= num_real


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_ranked_in_float32(dtype):
    log_probs = torch.randn(4, 1300).to(dtype)
    totals = np.array([[-1.0, -1.001], [-2.0, -2.001]])
    candidates = find_candidates(log_probs, log_probs, totals, 3)
    expected = find_candidates(log_probs.float(), log_probs.float(), totals, 3)
    assert candidates.cumulative_log_probs.tolist() == expected.cumulative_log_probs.tolist()
    assert candidates.tokens.tolist() == expected.tokens.tolist()


def test_candidates_keep_model_log_probs_and_processed_scores():
    model_log_probs = torch.tensor([[-1.0, -2.0, -3.0]])
    allowed = torch.tensor([[-torch.inf, -2.5, -3.0]])
    candidates = find_candidates(allowed, model_log_probs, np.array([[-10.0]]), 2)
    assert candidates.cumulative_log_probs.tolist() == [[-12.5, -13.0]]
    assert candidates.log_probs.tolist() == [[-2.0, -3.0]]
    assert candidates.tokens.tolist() == [[1, 2]]


def test_nan_log_probs_reported():
    model = TableModel(0, 3)
    model.log_probs[:, 1:] = torch.nan
    with pytest.raises(RunError) as caught:
        search(model, beam_size=2, max_length=3)
    assert str(caught.value) == (
        "search: the model's log-probabilities are NaN after 1 token\n"
        "  the parameters or activations have overflowed: use an earlier checkpoint, or float32"
    )


@given(
    seed=st.integers(0, 999),
    min_lengths=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    beam_size=st.sampled_from([1, 2, 4]),
    num_groups=st.sampled_from([1, 2]),
)
def test_length_bounds_equal_length_processors(seed, min_lengths, beam_size, num_groups):
    model = TableModel(seed, 4, num_sentences=3)
    diversity = BeamGroups(num_groups if beam_size % num_groups == 0 else 1)
    min_length = MinLength(torch.tensor(min_lengths), eos=EOS)
    # A second processor that forbids nothing makes the search apply all of them one by one.
    by_bounds, by_processors = (
        search(
            model,
            beam_size=beam_size,
            max_length=4,
            num_sentences=3,
            options=BeamSearchOptions(processors=processors, diversity=diversity),
        )
        for processors in ((min_length,), (min_length, ForbiddenTokens([])))
    )
    for outputs, expected in zip(by_bounds, by_processors, strict=True):
        assert [(output.tokens, output.score, output.log_probs.tolist()) for output in outputs] == [
            (output.tokens, output.score, output.log_probs.tolist()) for output in expected
        ]


def diverse_beam_search(model, num_groups, group_size, penalty):
    """Vijayakumar et al. 2018, algorithm 1, candidate by candidate to the maximum length.

    Hypotheses that end among the best `group_size` are finished.
    """
    beams = [[(0.0, [])] for _ in range(num_groups)]
    finished = [[] for _ in range(num_groups)]
    for depth in range(MAX_LENGTH + 1):
        counts = Counter()
        for group in range(num_groups):
            candidates = [
                (total + float(log_probs[token]), [*tokens, token])
                for total, tokens in beams[group]
                for log_probs in [model.log_probs[0, model.history_ids[tuple(tokens)]]]
                for token in ([EOS] if depth == MAX_LENGTH else [EOS, *model.letters])
            ]
            candidates.sort(key=lambda scored: penalty * counts[scored[1][-1]] - scored[0])
            ended = [scored for scored in candidates[:group_size] if scored[1][-1] == EOS]
            beams[group] = [scored for scored in candidates if scored[1][-1] != EOS][:group_size]
            finished[group] += ended
            counts.update(scored[1][-1] for scored in ended + beams[group])
    best = [sorted(of_group, reverse=True)[:group_size] for of_group in finished]
    distinct = {tuple(tokens[:-1]): total for of_group in best for total, tokens in of_group}
    return sorted([(total, list(tokens)) for tokens, total in distinct.items()], reverse=True)


@given(
    seed=seeds,
    num_groups=st.integers(1, 3),
    group_size=st.integers(1, 3),
    penalty=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_diverse_groups_equal_algorithm_of_the_paper(seed, num_groups, group_size, penalty):
    model = TableModel(seed, MAX_LENGTH + 1, num_letters=3)
    options = BeamSearchOptions(diversity=BeamGroups(num_groups, penalty), stopping=never_stop)
    outputs = search(
        model, beam_size=num_groups * group_size, max_length=MAX_LENGTH, options=options
    )[0]
    expected = diverse_beam_search(model, num_groups, group_size, penalty)
    assert [output.tokens for output in outputs] == [tokens for _, tokens in expected]
    assert [output.score for output in outputs] == pytest.approx([total for total, _ in expected])


@given(seed=seeds, beam_size=st.integers(1, 5), penalty=st.floats(0, 9))
def test_one_group_is_a_plain_beam(seed, beam_size, penalty):
    model = TableModel(seed, MAX_LENGTH, num_letters=3, num_sentences=2)
    shared = {"beam_size": beam_size, "max_length": [MAX_LENGTH, 2], "num_sentences": 2}
    options = BeamSearchOptions(diversity=BeamGroups(1, penalty))
    plain = search(model, **shared)
    for outputs, expected in zip(search(model, options=options, **shared), plain, strict=True):
        assert [output[:3] for output in outputs] == [output[:3] for output in expected]


@given(seed=seeds)
def test_groups_with_a_large_penalty_start_with_different_tokens(seed):
    model = TableModel(seed, MAX_LENGTH, num_letters=3)
    processors = (MinLength(torch.tensor([1]), eos=EOS),)
    options = BeamSearchOptions(diversity=BeamGroups(3, 1e6), processors=processors)
    outputs = search(model, beam_size=3, max_length=MAX_LENGTH, options=options)[0]
    assert {output.tokens[0] for output in outputs} == set(model.letters)


@given(seed=seeds)
def test_groups_are_independent_of_other_sentences(seed):
    def build_model():
        return TableModel(seed, MAX_LENGTH, num_letters=3, num_sentences=3)

    shared = {"beam_size": 4, "options": BeamSearchOptions(diversity=BeamGroups(2, 0.8))}
    batched = search(build_model(), max_length=[1, 3, 2], num_sentences=3, **shared)
    for sentence, max_length in enumerate([1, 3, 2]):
        alone = search(build_model().only(sentence), max_length=max_length, **shared)[0]
        expected = [output.tokens for output in batched[sentence]]
        assert [output.tokens for output in alone] == expected


def test_groups_must_divide_beam_size():
    options = BeamSearchOptions(diversity=BeamGroups(2))
    with pytest.raises(ConfigError) as caught:
        search(TableModel(0, 2), beam_size=5, max_length=2, options=options)
    assert str(caught.value) == (
        "diversity.num_beam_groups: beam_size 5 is not divisible by 2 groups\n"
        "  choose a number of groups that divides beam_size"
    )
