"""Search: which output is likely, given a model that can be asked step by step?"""

from heedful.search.beam import beam_search
from heedful.search.greedy import greedy_search
from heedful.search.penalties import LengthPenalty
from heedful.search.protocol import Step, Steps
from heedful.search.trellis import Hypothesis

__all__ = [
    "Hypothesis",
    "LengthPenalty",
    "Step",
    "Steps",
    "beam_search",
    "greedy_search",
]
