"""Sampling: as likely as the model finds, and no row at the expense of another."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import StepOutput, greedy_search
from heedful.search.logits_processors import ForbiddenTokens, MinLength, NoRepeatNGram
from heedful.search.sampling import SamplingOptions, random_generators, sample

SIZE, BEGIN, END = 6, 0, 1
# P(chi-square > 38) is less than 1e-6 for four degrees of freedom, and less for fewer.
UNLIKELY = 38.0


class Table:
    """A model in which what comes next depends on the last token, and on the row's own number."""

    def __init__(self, seed=0, rows=1):
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(rows, SIZE, SIZE, generator=generator)
        logits[:, :, BEGIN] = -torch.inf
        self.log_probs = logits.log_softmax(dim=-1)

    def step(self, tokens, state):
        said = self.log_probs[state % len(self.log_probs), tokens]
        return StepOutput(said, state, said.new_zeros(len(tokens), 0))


def draws(model, rows, length, how=None, *, end=END, seed=0):
    numbers = torch.as_tensor(rows)
    return sample(
        model,
        numbers,
        bos=torch.full_like(numbers, BEGIN),
        eos=end,
        max_lengths=torch.full_like(numbers, length),
        options=how,
        seed=seed,
    )


def first_tokens(how, count=20_000):
    found = draws(Table(), [0] * count, 1, how, end=None)
    return torch.bincount(torch.tensor(found).flatten(), minlength=SIZE)


def kept(how):
    """The distribution that is drawn from, by the definitions, token by token."""
    chances = (Table().log_probs[0, BEGIN].double() / how.temperature).exp().tolist()
    ranking = sorted(range(SIZE), key=lambda token: -chances[token])[: how.top_k]
    total, nucleus = sum(chances[token] for token in ranking), []
    for token in ranking:
        if sum(chances[each] for each in nucleus) / total < how.top_p:
            nucleus.append(token)
    nucleus = [token for token in nucleus if chances[token] >= how.min_p * chances[ranking[0]]]
    total = sum(chances[token] for token in nucleus)
    shares = {token: chances[token] / total for token in nucleus}
    entropy = -sum(share * log(share) for share in shares.values())
    typical_p, mass = [], 0.0
    for token in sorted(nucleus, key=lambda token: abs(-log(shares[token]) - entropy)):
        if mass < how.typical_p:
            typical_p.append(token)
        mass += shares[token]
    total = sum(shares[token] for token in typical_p)
    return [shares[token] / total if token in typical_p else 0 for token in range(SIZE)]


@pytest.mark.parametrize(
    "how",
    [
        SamplingOptions(),
        SamplingOptions(temperature=0.5),
        SamplingOptions(temperature=3.0),
        SamplingOptions(top_k=3),
        SamplingOptions(top_p=0.8),
        SamplingOptions(top_p=1e-9),
        SamplingOptions(temperature=2.0, top_k=4, top_p=0.7),
        SamplingOptions(min_p=0.1),
        SamplingOptions(min_p=1.0),
        SamplingOptions(typical_p=0.5),
        SamplingOptions(typical_p=0.95),
        SamplingOptions(typical_p=1e-9),
        SamplingOptions(temperature=3.0, top_k=5, top_p=0.95, min_p=0.05, typical_p=0.8),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_are_likely(how):
    counts, shares = first_tokens(how), torch.tensor(kept(how))
    assert counts[shares == 0].sum() == 0
    due = counts.sum() * shares[shares > 0]
    assert ((counts[shares > 0] - due) ** 2 / due).sum() < UNLIKELY


def test_successive_draws_of_a_row_do_not_know_of_one_another():
    """Pairs of tokens are as frequent as the chances of both, multiplied."""
    model = Table()
    model.log_probs = model.log_probs[:, BEGIN : BEGIN + 1].expand(1, SIZE, SIZE)
    found = torch.tensor(draws(model, [0] * 20_000, 2, end=None))
    counts = torch.bincount(found[:, 0] * SIZE + found[:, 1], minlength=SIZE**2)
    chances = model.log_probs[0, 0].exp()
    due = 20_000 * (chances[:, None] * chances).flatten()
    is_possible = due > 0
    # For 24 degrees of freedom P(chi-square > 80) is less than 1e-6.
    assert ((counts - due)[is_possible] ** 2 / due[is_possible]).sum() < 80


@given(seed=st.integers(0, 99), count=st.integers(1, 6), length=st.integers(0, 8))
def test_a_row_does_not_depend_on_its_neighbours(seed, count, length):
    model = Table(seed, rows=count)
    together = draws(model, range(count), length, seed=seed)
    more = draws(model, [*range(count), 0, 0], length, seed=seed)
    assert more[:count] == together
    assert all(len(tokens) <= length and END not in tokens for tokens in together)


def test_a_row_depends_on_its_number_and_the_seed():
    model = Table()
    rows = draws(model, [0] * 50, 20, end=None)
    others = draws(model, [0] * 50, 20, end=None, seed=1)
    assert len({tuple(row) for row in rows + others}) == 100
    assert draws(model, [0] * 50, 20, end=None) == rows


@pytest.mark.parametrize("how", [SamplingOptions(temperature=0), SamplingOptions(top_k=1)])
@given(seed=st.integers(0, 99))
def test_what_leaves_only_the_likeliest_token_is_greedy(how, seed):
    model = Table(seed, rows=4)
    rows, limits = torch.arange(4), torch.full((4,), 7)
    greedy = greedy_search(model, rows, bos=BEGIN, eos=END, max_lengths=limits)
    assert draws(model, rows, 7, how, seed=seed) == [each.tokens for each in greedy]


def test_rows_have_lengths_of_their_own():
    limits = torch.tensor([3, 0, 1])
    begin = torch.full((3,), BEGIN)
    found = sample(Table(), torch.zeros(3).long(), bos=begin, eos=None, max_lengths=limits)
    assert [len(tokens) for tokens in found] == [3, 0, 1]


def test_what_is_ruled_out_is_never_drawn():
    how = SamplingOptions(temperature=5.0, forbidden_tokens=(1, 3))
    counts = first_tokens(how)
    assert counts[[1, 3]].sum() == 0
    assert (counts[[2, 4, 5]] > 0).all()


@given(seed=st.integers(0, 99))
def test_typical_draws_can_leave_out_the_likeliest(seed):
    """Of 0.6 and ten of 0.04 the surprise that is expected is 1.59 nats; of 0.3 and 0.07, 2.22."""
    said = torch.tensor([[0.6, *[0.04] * 10]]).log()
    uniforms = torch.rand(1, generator=torch.Generator().manual_seed(seed)).tolist()
    # |-log 0.6 - 1.59| = 1.08 and |-log 0.04 - 1.59| = 1.63: here the likeliest is nearer.
    assert SamplingOptions(typical_p=0.2).sample_tokens(said, uniforms).tolist() == [0]
    flat = torch.tensor([[0.3, *[0.07] * 10]]).log()  # 1.02 from the one, 0.44 from the ten
    assert SamplingOptions(typical_p=0.2).sample_tokens(flat, uniforms).tolist() != [0]


@given(seed=st.integers(0, 99))
def test_draws_keep_to_rules(seed):
    model, rows = Table(seed, rows=4), torch.arange(4)
    rules = (NoRepeatNGram(1), ForbiddenTokens([4]), MinLength(torch.full((4,), 2), eos=END))
    found = sample(
        model,
        rows,
        bos=torch.full_like(rows, BEGIN),
        eos=END,
        max_lengths=torch.full_like(rows, 7),
        seed=seed,
        processors=rules,
    )
    for tokens in found:
        assert 4 not in tokens
        assert len(set(tokens)) == len(tokens) >= 2


def test_rules_leave_the_chances_of_what_is_left_in_proportion():
    rules = (ForbiddenTokens([2]),)
    count = 20_000
    begin = torch.full((count,), BEGIN)
    found = sample(
        Table(),
        torch.zeros(count).long(),
        bos=begin,
        eos=None,
        max_lengths=torch.ones_like(begin),
        processors=rules,
    )
    counts = torch.bincount(torch.tensor(found).flatten(), minlength=SIZE)
    shares = Table().log_probs[0, BEGIN].exp()
    shares[2] = 0
    due = count * shares / shares.sum()
    is_possible = due > 0
    assert counts[~is_possible].sum() == 0
    assert ((counts - due)[is_possible] ** 2 / due[is_possible]).sum() < UNLIKELY


@pytest.mark.parametrize(
    "how", [SamplingOptions(), SamplingOptions(top_k=4), SamplingOptions(top_p=0.99)], ids=str
)
def test_what_is_all_but_equally_likely_does_not_change_places(how):
    """A batch of another size rounds in another way, and must not thereby draw anew."""
    said = torch.tensor([0.3, 0.2, 0.2, 0.2, 0.1]).double().log()
    nudges = 1e-12 * torch.tensor([[0, 1, 0, -1, 0], [0, -1, 0, 1, 0], [0, 0, 1, 0, 0]])
    uniforms = [place / 100 + 0.005 for place in range(100)]
    drawn = [
        how.sample_tokens((said + nudge).expand(100, -1).log_softmax(dim=-1), uniforms).tolist()
        for nudge in nudges
    ]
    assert drawn[0] == drawn[1] == drawn[2]


def test_the_greatest_luck_draws_what_can_be_drawn():
    """Rounding may carry it to the very top, where nothing is left."""
    said = torch.tensor([[0.1, 0.2, 0.7, 0.0]]).log()
    for how in (
        SamplingOptions(),
        SamplingOptions(temperature=1.7),
        SamplingOptions(top_k=2),
        SamplingOptions(top_p=0.7),
    ):
        assert how.sample_tokens(said, [1 - 2**-53]).item() == 2
        assert how.sample_tokens(said, [1.0]).item() == 2


def test_the_random_numbers_of_a_key_follow_from_it_and_the_seed():
    ours = [each.random() for each in random_generators(3, [7, "7 0", 8])]
    assert [each.random() for each in random_generators(3, [8, 7])] == [ours[2], ours[0]]
    assert len({*ours, *(each.random() for each in random_generators(4, [7, "7 0", 8]))}) == 6
