"""Experiments: from a recipe to a run folder.

The same call goes on where an interrupted one stopped. What a person wants to know on the way
is said to a console; what a program wants to know is in `metrics.jsonl`.
"""

from heedful.experiment.session import Outcome
from heedful.experiment.training import train

__all__ = ["Outcome", "train"]
