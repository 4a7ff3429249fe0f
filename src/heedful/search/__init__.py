"""Beam search, sampling and forced decoding for any model with a `step` method.

Reading order: `hypotheses` (the interface of models), `beam_search`, `candidates`, `stopping`,
`penalties`, `logits_processors` and `constraints`; `sampling` and `minimum_bayes_risk`.
"""

from heedful.search.beam_search import BeamSearchOptions, beam_search, greedy_search
from heedful.search.candidates import BeamGroups, BeamPruning, Node, Trellis
from heedful.search.constraints import DisjunctiveConstraint, require_phrase
from heedful.search.hypotheses import Hypothesis, StepOutput, StepwiseModel, score_targets
from heedful.search.logits_processors import LogitsProcessor
from heedful.search.penalties import MEAN_LOG_PROB, CoveragePenalty, LengthPenalty
from heedful.search.stopping import (
    FIRST_FINISHED,
    PatienceStopping,
    StoppingCriterion,
    heuristic_stopping,
    optimal_stopping,
)

__all__ = [
    "FIRST_FINISHED",
    "MEAN_LOG_PROB",
    "BeamGroups",
    "BeamPruning",
    "BeamSearchOptions",
    "CoveragePenalty",
    "DisjunctiveConstraint",
    "Hypothesis",
    "LengthPenalty",
    "LogitsProcessor",
    "Node",
    "PatienceStopping",
    "StepOutput",
    "StepwiseModel",
    "StoppingCriterion",
    "Trellis",
    "beam_search",
    "greedy_search",
    "heuristic_stopping",
    "optimal_stopping",
    "require_phrase",
    "score_targets",
]
