"""Exact Markov models: inference in linear chains, hidden Markov models and their EM.

Read `chain` first (forward, backward, Viterbi, posteriors of any linear chain), then `emissions`
and `hmm`.
"""

from heedful.markov.chain import ChainPosteriors, ForwardOutput, LinearChain, ViterbiOutput
from heedful.markov.emissions import CategoricalEmission, Emission, GaussianEmission
from heedful.markov.hmm import HiddenMarkovModel, HMMSample, baum_welch

__all__ = [
    "CategoricalEmission",
    "ChainPosteriors",
    "Emission",
    "ForwardOutput",
    "GaussianEmission",
    "HMMSample",
    "HiddenMarkovModel",
    "LinearChain",
    "ViterbiOutput",
    "baum_welch",
]
