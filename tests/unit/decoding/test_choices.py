"""Choices of decoding: each builds the part of a search that it names."""

import pytest

from heedful.decoding.choices import SamplingConfig
from heedful.search import Diversity, Optimal, Patience, Settled
from heedful.search.penalties import LookedAgain, LookedTooLong, Overlooked
from heedful.search.sampling import Sampling
from tests.unit.decoding.untrained import settings


@pytest.mark.parametrize(
    ("kind", "made"), [("gnmt", Overlooked), ("see", LookedAgain), ("summary", LookedTooLong)]
)
def test_a_coverage_penalty_has_its_strength(kind, made):
    penalty = settings(coverage={"kind": kind, "beta": 0.3}).coverage.build()
    assert isinstance(penalty, made)
    assert penalty.beta == 0.3


@pytest.mark.parametrize(
    ("kind", "made"), [("settled", Settled), ("optimal", Optimal), ("patience", Patience)]
)
def test_a_stopping_policy_is_built_by_its_name(kind, made):
    assert isinstance(settings(stopping=kind).stopping.build(), made)


def test_groups_and_draws_are_built_as_they_are_told():
    assert settings(diversity={"groups": 5, "strength": 2}).diversity.build() == Diversity(5, 2.0)
    drawn = SamplingConfig(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, typical=0.8)
    assert drawn.build() == Sampling(0.5, 3, 0.9, min_p=0.1, typical=0.8)
