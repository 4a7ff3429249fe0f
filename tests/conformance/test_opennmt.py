"""OpenNMT-py: the values that its own tests of beam search expect; where its attention differs.

Its tests (onmt/tests/test_beam_search.py, 3.5.1) give the scores of the rows of a beam. Here they
belong to the tokens of these rows, since a finished hypothesis makes room for another one here. Its
tests expect no values of attention, which is compared by hand calculation.
"""

import math

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, CoverageFeature
from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore
from heedful.search import FIRST_FINISHED, BeamSearchOptions, StepOutput, beam_search
from heedful.search.logits_processors import MinLength, NoRepeatNGram
from heedful.search.penalties import LengthPenalty
from tests.conformance.inputs import attend, column, row, softmax, visible

BOS, EOS, BEAM_SIZE = 1, 2, 5


class TableModel:
    """A model whose log-probabilities are a function of the tokens so far."""

    def __init__(self, log_probs):
        self.log_probs = log_probs

    def step(self, tokens, state):
        state = torch.cat([state, tokens.unsqueeze(1)], dim=1)
        log_probs = torch.stack([self.log_probs(row[1:]) for row in state.tolist()])
        return StepOutput(log_probs, state, torch.zeros(len(state), 1))

    def search(self, num_sentences=1, max_length=9, **settings):
        state = torch.empty(num_sentences, 0, dtype=torch.long)
        max_lengths = torch.full([num_sentences], max_length)
        sizes = {"bos": BOS, "eos": EOS, "beam_size": BEAM_SIZE, "max_lengths": max_lengths}
        return beam_search(self, state, **sizes, **settings)


# ----- TestBeamSearchAgainstReferenceCase and TestBeamWithLengthPenalty

# Logits that are not 0, by the tokens so far.
REFERENCE = {
    (): {3: 4, 4: 5, 5: 3, 6: 2, 7: 1},
    (4,): {3: 0.3, 5: 0.51, 6: 0.2},
    (3,): {EOS: 1.5},
    (5,): {4: 0.49, 5: 0.48},
    (6,): dict.fromkeys(range(3, 8), 0.2),
    (7,): dict.fromkeys(range(3, 8), 0.2),
    (4, 5): {3: 0.3, 5: 0.51, 6: 0.2},
    (4, 6): {EOS: 50} | dict.fromkeys(range(3, 8), 0.2),
    (4, 0): dict.fromkeys(range(3, 8), 0.2),
    (4, 5, 3): {EOS: 10000, 5: 5000},
    (4, 5, 6): {EOS: 50} | dict.fromkeys(range(3, 8), 0.2),
    (4, 5, 0): {EOS: 50} | dict.fromkeys(range(4, 8), 0.2),
}
# log softmax of 4 at the first step and of 1.5 at the second, then the numbers in their comments.
FINISHED = {
    (3,): 4 - math.log(3 + sum(map(math.exp, range(1, 6)))) + 1.5 - math.log(7 + math.exp(1.5)),
    (4, 6): -2.4879,
    (4, 5, 3): -4.1010,
    (4, 5, 6): -4.2010,
    (4, 5, 0): -4.4010,
}
FIVE_FINISHED = BeamSearchOptions(stopping=FIRST_FINISHED)


def reference_log_probs(tokens):
    logits = torch.zeros(8, dtype=torch.float64)
    for token, logit in REFERENCE.get(tuple(tokens), {}).items():
        logits[token] = logit
    ties = 1e-9 * torch.arange(8)  # the first of equals is the best one, as in their topk
    return (logits - ties).log_softmax(dim=0)


def test_beam_search_same_as_opennmt_reference_case():
    for hypotheses in TableModel(reference_log_probs).search(3, options=FIVE_FINISHED):
        assert [tuple(hypothesis.tokens) for hypothesis in hypotheses] == list(FINISHED)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == pytest.approx(list(FINISHED.values()), abs=5e-5)


def test_mean_length_penalty_same_as_opennmt_but_for_bos():
    # Their lengths, 3 after the second step and so on, count BOS; ours are one less.
    mean = LengthPenalty(1.0, "power")
    (hypotheses,) = TableModel(reference_log_probs).search(
        length_penalty=mean, options=FIVE_FINISHED
    )
    opennmt_lengths = {1: 3, 2: 4, 3: 5}  # by tokens without BOS and EOS
    expected = {
        tokens: log_prob / (opennmt_lengths[len(tokens)] - 1)
        for tokens, log_prob in FINISHED.items()
    }
    assert {tuple(item.tokens): item.score for item in hypotheses} == pytest.approx(
        expected, abs=5e-5
    )


# ----- TestBeamSearch


def sparse_log_probs(scores, default=-math.inf):
    log_probs = torch.full([100], default, dtype=torch.float64)
    for token, score in scores.items():
        log_probs[token] = score
    return log_probs


def test_min_length_same_as_opennmt():
    # EOS is the best token of the first row at every step, but blocked before the sixth.
    eos_score, *scores = torch.tensor([6.0, 5, 4, 3, 2, 1]).double().log_softmax(0).tolist()
    tokens = [47, 51, 13, 88, 99]

    def log_probs(prefix):
        if not prefix:
            return sparse_log_probs({EOS: eos_score, **dict(zip(tokens, scores, strict=True))})
        row = tokens.index(prefix[-1])
        return sparse_log_probs({tokens[row]: scores[row]} | ({} if row else {EOS: eos_score}))

    options = BeamSearchOptions(processors=(MinLength(torch.tensor([5]), eos=EOS),))
    ((best, *_),) = TableModel(log_probs).search(options=options)
    assert best.tokens == [47] * 5
    assert best.score == pytest.approx(5 * scores[0] + eos_score)


UNLIKELY = -50.0


def repeating_log_probs(prefix):
    # The first row repeats 47, the second counts on from 48; all end after seven tokens. The other
    # tokens are unlikely, not impossible: a blocked row has to go on with one of them.
    if not prefix:
        return sparse_log_probs({47: -0.1, 48: -2.3}, UNLIKELY)
    if len(prefix) == 7:
        return sparse_log_probs({EOS: 0.0}, UNLIKELY)
    return sparse_log_probs({47 if prefix[-1] == 47 else prefix[-1] % 99 + 1: 0.0}, UNLIKELY)


def test_repeated_trigrams_blocked_as_in_opennmt():
    search = TableModel(repeating_log_probs).search
    (free,) = search()
    assert [hypothesis.tokens for hypothesis in free[:2]] == [[47] * 7, [*range(48, 55)]]
    (blocked,) = search(options=BeamSearchOptions(processors=(NoRepeatNGram(3),)))
    assert blocked[0].tokens == [*range(48, 55)]
    assert blocked[0].score == pytest.approx(-2.3)
    assert all(hypothesis.score <= UNLIKELY for hypothesis in blocked[1:])


# ----- attention


def with_coverage(weight):
    """See's score in one dimension, with W = U = v = 1: tanh(q + k + weight * coverage)."""
    score = AdditiveScore(1, 1, hidden_size=1, features=[CoverageFeature(1)]).double()
    score.load_state_dict(
        {
            "query_projection.weight": row(1),
            "key_projection.weight": row(1),
            "score_vector.weight": row(1),
            "features.0.projection.weight": row(weight),
        }
    )
    return SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout())


def test_opennmt_sparsemax_matches():
    # Scores 1, 0.5 and -1: the projection is 0.75 and 0.25, each 0.25 below its score.
    queries, values = column(1.0), column(1.0, 0.5, -1.0)
    weights = attend(
        DotScore(), queries, values, visible(values), alignment=SparsemaxAlignment()
    ).weights
    torch.testing.assert_close(weights[0], row(0.75, 0.25, 0))


def test_coverage_affects_scores_here_but_not_in_opennmt():
    # The same query twice over keys 1 and 0. OpenNMT-py keeps coverage but does not use it.
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    first = softmax(math.tanh(1), math.tanh(0))
    second = softmax(math.tanh(1 - 3 * first[0]), math.tanh(0 - 3 * first[1]))
    opennmt = torch.stack([first, first])
    attention = with_coverage(-3.0)
    weights = attention(queries, attention.build_memory(values, visible(values))).weights[0]
    torch.testing.assert_close(weights, torch.stack([first, second]))
    torch.testing.assert_close(weights[0], opennmt[0])
    assert (weights[1] - opennmt[1]).abs().max() > 0.1


def test_coverage_with_zero_weight_same_as_opennmt():
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    attention = with_coverage(0.0)
    weights = attention(queries, attention.build_memory(values, visible(values))).weights[0]
    first = softmax(math.tanh(1), math.tanh(0))
    torch.testing.assert_close(weights, torch.stack([first, first]))


def test_coverage_does_not_modify_values_unlike_opennmt_branch():
    # The branch adds w c to the encoder states in place and averages their tanh.
    queries, values = column(0.0, 0.0), column(1.0, 0.0)
    first = softmax(math.tanh(1), math.tanh(0))
    second = softmax(math.tanh(1 - 3 * first[0]), math.tanh(0 - 3 * first[1]))
    modified = (values[0, :, 0] - 3 * first).tanh()
    attention = with_coverage(-3.0)
    memory = attention.build_memory(values, visible(values))
    context = attention(queries, memory).context[0, :, 0]
    torch.testing.assert_close(context[1], second[0] * 1.0 + second[1] * 0.0)
    torch.testing.assert_close(memory.values, column(1.0, 0.0))
    assert (context[1] - second @ modified).abs() > 0.1
