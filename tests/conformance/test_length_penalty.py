"""The length penalty of GNMT, and two others of the same name."""

import pytest

from heedful.search.penalties import LengthPenalty


def fork(log_prob, step, alpha):
    """A fork of fairseq: ((step + 1) / 6) ^ alpha, with steps from 0."""
    return log_prob / ((step + 1) / 6) ** alpha


def opennmt(log_prob, length, alpha):
    """OpenNMT-py's "wu": ((5 + length) / 6) ^ alpha."""
    return log_prob / ((5 + length) / 6.0) ** alpha


def fairseq(log_prob, length, alpha):
    """fairseq's lenpen: length ^ alpha."""
    return log_prob / length**alpha


@pytest.mark.parametrize(("length", "divisor"), [(1, 1.0), (7, 2.0), (13, 3.0)])
def test_length_penalty_same_as_paper(length, divisor):
    # (5 + 1) / 6 = 1, (5 + 7) / 6 = 2, (5 + 13) / 6 = 3
    assert LengthPenalty(1.0)(-6.0, length) == pytest.approx(-6.0 / divisor)
    assert LengthPenalty(0.2)(-6.0, length) == pytest.approx(-6.0 / divisor**0.2)
    assert LengthPenalty(0.2)(-6.0, length) == pytest.approx(opennmt(-6.0, length, 0.2))


def test_length_penalties_agree_for_alpha_zero():
    scores = {penalty(-6.0, 4, 0.0) for penalty in (fork, opennmt, fairseq)}
    assert scores == {LengthPenalty(0.0)(-6.0, 4)} == {-6.0}


def test_fork_ranks_by_plain_length_not_as_paper():
    # Of one word with log P = -2 and three with -3.2 the paper prefers the first, -2 to -2.4;
    # the fork the second, -12 to -6.4, and so does division by the length, -2 to -1.07.
    paper = LengthPenalty(1.0)
    assert paper(-2.0, 1) == pytest.approx(-2.0)
    assert paper(-3.2, 3) == pytest.approx(-2.4)
    assert fork(-2.0, 0, 1.0) == pytest.approx(-12.0)
    assert fork(-3.2, 2, 1.0) == pytest.approx(-6.4)
    assert fairseq(-3.2, 3, 1.0) == pytest.approx(-3.2 / 3)
    assert paper(-2.0, 1) > paper(-3.2, 3)
    assert fork(-2.0, 0, 1.0) < fork(-3.2, 2, 1.0)
    assert fairseq(-2.0, 1, 1.0) < fairseq(-3.2, 3, 1.0)
