"""Ways: how are the outputs of a batch found?

By a search, by drawing, by the consensus of what is drawn, or not at all where they are given and
only judged. Law: what is found for a text depends on nothing else in its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.collate import Sources, collate_sources
from heedful.decoding.asked import Asked
from heedful.decoding.choices import SamplingConfig
from heedful.decoding.config import DecodingConfig
from heedful.decoding.gains import GAINS
from heedful.search import Hypothesis, Node, Rule, Searching, Trellis
from heedful.search.consensus import count_distinct, expected_gains
from heedful.search.lengths import AtLeast
from heedful.search.repetition import NoRepeats, RepetitionPenalty
from heedful.search.rules import BeginWith, PerSentence
from heedful.shapes import Int
from heedful.tasks.decodable import Decodable
from heedful.text.vocabulary import EOS


class Found(NamedTuple):
    """The outputs of a text, and how the search went if that was to be seen."""

    outputs: list[Hypothesis]
    tree: list[Node] | None = None


class Ways:
    """The ways that settings leave, for one model."""

    def __init__(
        self,
        model: Decodable,
        settings: DecodingConfig,
        *,
        decode: Callable[[list[int]], str],
        device: torch.device | str,
    ) -> None:
        self.model = model
        self.settings = settings
        self.decode = decode
        self.device = device

    def find(self, asked: Sequence[Asked], *, want_tree: bool = False) -> list[Found]:
        """Find outputs: all of these are free, or all are given."""
        if asked[0].target is not None:
            return [Found([each]) for each in self._judge(asked)]
        if self.settings.consensus:
            drawn = self._draw(asked, self.settings.consensus.samples)
            return [Found([self._agree(outputs)]) for outputs in drawn]
        if self.settings.sampling:
            return [Found(outputs) for outputs in self._draw(asked, self.settings.nbest)]
        return self._search(asked, want_tree=want_tree)

    def _search(self, asked: Sequence[Asked], *, want_tree: bool) -> list[Found]:
        settings, trellis = self.settings, Trellis() if want_tree else None
        found = self.model.search(
            self._sources(asked),
            width=settings.beam,
            max_lengths=self._numbers([each.most for each in asked]),
            penalty=settings.length_penalty.build(),
            how=Searching(
                coverage=settings.coverage.build() if settings.coverage else None,
                stopping=settings.stopping.build(),
                diversity=settings.diversity.build(),
                rules=self._rules(asked),
                musts=[each.musts for each in asked] if any(each.musts for each in asked) else None,
            ),
            trellis=trellis,
        )
        trees = [trellis.tree(row, end=EOS) if trellis else None for row in range(len(asked))]
        return [
            Found(outputs[: settings.nbest], tree)
            for outputs, tree in zip(found, trees, strict=True)
        ]

    def _draw(self, asked: Sequence[Asked], count: int) -> list[list[Hypothesis]]:
        sampling = self.settings.sampling or SamplingConfig()
        penalty = self.settings.length_penalty.build()
        drawn = self.model.sample(
            self._sources(asked),
            count,
            max_lengths=self._numbers([each.most for each in asked]),
            how=sampling.build(),
            seed=sampling.seed,
            keys=[each.number for each in asked],
            rules=self._rules(asked),
        )
        return [
            [each._replace(score=penalty(each.log_prob, len(each.log_probs))) for each in outputs]
            for outputs in drawn
        ]

    def _agree(self, outputs: list[Hypothesis]) -> Hypothesis:
        """Take what all the others would be nearest to; its score is the gain to be expected."""
        assert self.settings.consensus, "only a consensus agrees"
        texts = [self.decode(output.tokens) for output in outputs]
        places, counts = count_distinct(texts)
        among = GAINS[self.settings.consensus.gain]([texts[place] for place in places])
        gains = expected_gains(among, counts)
        best = int(gains.argmax())
        return outputs[places[best]]._replace(score=float(gains[best]))

    def _judge(self, asked: Sequence[Asked]) -> list[Hypothesis]:
        coverage = self.settings.coverage
        return self.model.score(
            self._sources(asked),
            [each.target or [] for each in asked],
            penalty=self.settings.length_penalty.build(),
            coverage=coverage.build() if coverage else None,
        )

    def _rules(self, asked: Sequence[Asked]) -> tuple[Rule, ...]:
        settings, rules = self.settings, list[Rule]()
        if any(each.least for each in asked):
            rules.append(AtLeast(self._numbers([each.least for each in asked]), end=EOS))
        if settings.no_repeat:
            rules.append(NoRepeats(settings.no_repeat))
        if settings.repetition_penalty > 1:
            rules.append(RepetitionPenalty(settings.repetition_penalty))
        rules += _never([each.never for each in asked])
        if any(each.prefix for each in asked):
            rules.append(BeginWith([each.prefix for each in asked]))
        return tuple(rules)

    def _sources(self, asked: Sequence[Asked]) -> Sources:
        sources = collate_sources([each.source for each in asked])
        return Sources(*(part.to(self.device) for part in sources))

    def _numbers(self, numbers: list[int]) -> Int[Tensor, "B"]:
        return torch.tensor(numbers, device=self.device)


def _never(rules: Sequence[Rule | None]) -> list[Rule]:
    """What holds for all sentences is one rule, and not one for each."""
    first = rules[0]
    if any(rule is not first for rule in rules):
        return [PerSentence(rules)]
    return [first] if first else []
