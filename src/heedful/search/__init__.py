"""Search: which output is likely, given a model that can be asked step by step?"""

from heedful.search.beam import Searching, beam_search
from heedful.search.choosing import Diversity
from heedful.search.forced import score
from heedful.search.greedy import greedy_search
from heedful.search.penalties import AVERAGE, CoveragePenalty, LengthPenalty
from heedful.search.phrases import Must, must_say
from heedful.search.protocol import Step, Steps
from heedful.search.rules import Rule
from heedful.search.stopping import FIRST, Optimal, Patience, Settled, Stopping
from heedful.search.trellis import Hypothesis, Node, Trellis

__all__ = [
    "AVERAGE",
    "FIRST",
    "CoveragePenalty",
    "Diversity",
    "Hypothesis",
    "LengthPenalty",
    "Must",
    "Node",
    "Optimal",
    "Patience",
    "Rule",
    "Searching",
    "Settled",
    "Step",
    "Steps",
    "Stopping",
    "Trellis",
    "beam_search",
    "greedy_search",
    "must_say",
    "score",
]
