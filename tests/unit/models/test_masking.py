"""Masking and sentence pairs: the probabilities of Devlin et al. 2019, and their laws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from heedful.models.masked_language_model import MaskingConfig, mask_tokens, sample_sentence_pairs
from heedful.pytree import tensors_of
from heedful.tokenization.vocabulary import EOS, NUM_SPECIAL_TOKENS, PAD

SIZE = 50  # of the vocabulary; the mask symbol is 50
# P(chi-square > 38) is less than 1e-6 for four degrees of freedom, and less for fewer.
UNLIKELY = 38.0


def chi_square(counts, shares):
    total = sum(counts)
    expected = [total * share for share in shares]
    return sum(
        (count - expected_count) ** 2 / expected_count
        for count, expected_count in zip(counts, expected, strict=True)
    )


def texts(rows, columns):
    return torch.randint(NUM_SPECIAL_TOKENS, SIZE, (rows, columns))


def masked(tokens, seed="0", **shares):
    return mask_tokens(tokens, MaskingConfig(**shares), vocab_size=SIZE, seed=seed)


def test_masking_follows_probabilities():
    tokens = texts(200, 500)
    batch = masked(tokens)
    chosen = batch.targets != PAD
    hidden = chosen & (batch.inputs == SIZE)
    same = chosen & (batch.inputs == tokens)
    counts = [int(each.sum()) for each in (hidden, chosen & ~hidden & ~same, same, ~chosen)]
    # One random token in 46 is the one that stood there.
    by_luck = 0.1 / (SIZE - NUM_SPECIAL_TOKENS)
    shares = [0.15 * 0.8, 0.15 * (0.1 - by_luck), 0.15 * (0.1 + by_luck), 0.85]
    assert chi_square(counts, shares) < UNLIKELY


def test_random_replacement_is_uniform_over_ordinary_tokens():
    tokens = torch.full((100, 400), NUM_SPECIAL_TOKENS)
    shown = masked(tokens, mlm_probability=1, mask_replace_prob=0, random_replace_prob=1).inputs
    counts = torch.bincount(shown.flatten(), minlength=SIZE)
    assert counts[:NUM_SPECIAL_TOKENS].sum() == 0
    kinds = SIZE - NUM_SPECIAL_TOKENS
    # For 45 degrees of freedom P(chi-square > 120) is less than 1e-6.
    assert chi_square(counts[NUM_SPECIAL_TOKENS:].tolist(), [1 / kinds] * kinds) < 120


@given(seed=st.text(max_size=3), length=st.integers(1, 20), chosen=st.floats(0.01, 1))
def test_unselected_tokens_are_inputs_but_not_targets(seed, length, chosen):
    tokens = texts(3, 20)
    tokens[1, length:] = PAD
    batch = masked(tokens, seed, mlm_probability=chosen)
    is_target = batch.targets != PAD
    assert torch.equal(batch.inputs[~is_target], tokens[~is_target])
    assert torch.equal(batch.targets[is_target], tokens[is_target])
    assert (batch.inputs[1, length:] == PAD).all()
    assert batch.num_targets >= 1
    assert torch.equal(batch.lengths, torch.tensor([20, length, 20]))


def test_masking_is_determined_by_seed():
    tokens = texts(4, 50)
    torch.rand(7)  # the random numbers that training draws have no part in it
    one, again, other = masked(tokens, "a"), masked(tokens, "a"), masked(tokens, "b")
    assert torch.equal(one.inputs, again.inputs)
    assert not torch.equal(one.inputs, other.inputs)


def test_probabilities_above_one_raise():
    with pytest.raises(ValidationError, match=r"is 1\.1, above 1"):
        MaskingConfig(mask_replace_prob=0.8, random_replace_prob=0.3)


def distinct_texts(rows, columns, line_length):
    """Texts without a common token, in lines of a few tokens."""
    tokens = torch.arange(rows * columns).view(rows, columns) + NUM_SPECIAL_TOKENS
    tokens[:, line_length - 1 :: line_length] = EOS
    return tokens


@given(
    seed=st.text(max_size=3),
    rows=st.integers(2, 5),
    columns=st.integers(2, 12),
    line_length=st.integers(1, 14),
)
def test_second_segment_follows_in_the_text_or_comes_from_another_row(
    seed, rows, columns, line_length
):
    tokens = distinct_texts(rows, columns, line_length)
    batch = sample_sentence_pairs(tokens, seed=seed)
    has_line_ends = line_length < columns
    for row in range(rows):
        ids, segments = batch.inputs[row].tolist(), batch.segments[row].tolist()
        split = segments.index(1)
        assert segments == [0] * split + [1] * (columns - split)
        assert ids[:split] == tokens[row, :split].tolist()
        assert not has_line_ends or ids[split - 1] == EOS
        second = [token for token in ids[split:] if token != PAD]
        assert ids[split:] == second + [PAD] * (columns - split - len(second))
        if batch.is_next[row]:
            assert ids == tokens[row].tolist()
            continue
        sources = [
            (other, start)
            for other in range(rows)
            for start in range(1, columns)
            if second == tokens[other, start : start + len(second)].tolist()
        ]
        assert any(
            other != row and (not has_line_ends or tokens[other, start - 1] == EOS)
            for other, start in sources
        )


def test_half_of_the_second_segments_follow():
    batch = sample_sentence_pairs(distinct_texts(4000, 6, 3), seed="0")
    count = int(batch.is_next.sum())
    assert chi_square([count, 4000 - count], [0.5, 0.5]) < UNLIKELY


def test_sentence_pairs_determined_by_seed():
    tokens = distinct_texts(20, 12, 3)
    first, same, other = (sample_sentence_pairs(tokens, seed=seed) for seed in ("a", "a", "b"))
    assert all(map(torch.equal, tensors_of(first), tensors_of(same)))
    assert not torch.equal(first.inputs, other.inputs)


def test_single_row_has_own_continuation():
    assert sample_sentence_pairs(distinct_texts(1, 8, 3), seed="0").is_next.all()
