"""Choices of decoding: each builds the part of a search that it names."""

import pytest

from heedful.search import BeamGroups, HeuristicStopping, OptimalStopping, PatienceStopping
from heedful.search.penalties import (
    GNMTCoveragePenalty,
    RepeatedCoveragePenalty,
    SummaryCoveragePenalty,
)
from heedful.search.sampling import SamplingConfig, SamplingOptions
from tests.unit.decoding.untrained import settings


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("gnmt", GNMTCoveragePenalty),
        ("see", RepeatedCoveragePenalty),
        ("summary", SummaryCoveragePenalty),
    ],
)
def test_a_coverage_penalty_has_its_strength(kind, made):
    penalty = settings(coverage_penalty={"type": kind, "beta": 0.3}).coverage_penalty.build()
    assert isinstance(penalty, made)
    assert penalty.beta == 0.3


@pytest.mark.parametrize(
    ("kind", "made"),
    [("settled", HeuristicStopping), ("optimal", OptimalStopping), ("patience", PatienceStopping)],
)
def test_a_stopping_policy_is_built_by_its_name(kind, made):
    assert isinstance(settings(stopping=kind).stopping.build(), made)


def test_groups_and_draws_are_built_as_they_are_told():
    assert settings(
        diversity={"num_beam_groups": 5, "diversity_penalty": 2}
    ).diversity.build() == BeamGroups(5, 2.0)
    drawn = SamplingConfig(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, typical_p=0.8)
    assert drawn.build() == SamplingOptions(0.5, 3, 0.9, min_p=0.1, typical_p=0.8)
