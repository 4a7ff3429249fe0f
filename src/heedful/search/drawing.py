"""Drawing: whole outputs, as likely as the model finds them, with the evidence of a search.

Law: an output that is drawn carries what forced decoding says of it. As in a search, one that has
grown to its longest length must end.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from torch import Tensor

from heedful.search.evidence import Evidence
from heedful.search.lengths import AtMost
from heedful.search.protocol import State, Steps
from heedful.search.rules import Rule
from heedful.search.sampling import Sampling, draws
from heedful.search.trellis import Hypothesis
from heedful.shapes import Int


def draw_outputs(
    model: Steps[State],
    state: State,
    *,
    begin: int,
    end: int,
    sentences: Int[Tensor, "R"],
    max_lengths: Int[Tensor, "B"],
    how: Sampling,
    chance: Sequence[Random],
    rules: Sequence[Rule] = (),
) -> list[Hypothesis]:
    """Draw an output for every row of `state`, which belongs to one of the sentences.

    Lengths and rules are those of sentences, chances those of rows. What an output scores is its
    log-probability, as the model has it: rules and temperature change what is drawn, not that.
    """
    for rule in rules:
        rule.refuse(max_lengths.tolist())
    evidence = Evidence(len(sentences))
    for _, step, tokens, alive in draws(
        model,
        state,
        begin=sentences.new_full(sentences.shape, begin),
        end=end,
        limits=max_lengths[sentences] + 1,  # the end is drawn too
        how=how,
        chance=chance,
        rules=(*rules, AtMost(max_lengths, end=end)),
        sentences=sentences,
    ):
        evidence.note(step, tokens, alive)
    return evidence.hypotheses()
