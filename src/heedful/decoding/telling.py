"""Telling: from what was found to translations that people can read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heedful.decoding.asked import Asked
from heedful.decoding.config import DecodingConfig
from heedful.decoding.spelling import Speller, owners, words_of
from heedful.decoding.translation import END_LABEL, NO_WORD, Branch, Translation
from heedful.decoding.unknowns import NO_DICTIONARY, read_dictionary, replace_unknowns
from heedful.decoding.ways import Found
from heedful.search import Hypothesis, Node
from heedful.text.config import TextPair
from heedful.text.vocabulary import EOS, UNK


class Telling:
    """Tells what was found, in the words of these texts."""

    def __init__(self, text: TextPair, settings: DecodingConfig) -> None:
        self.text = text
        self._source, self._target = Speller(text.source), Speller(text.target)
        self.is_copying = settings.unknowns == "copy"
        self.dictionary = NO_DICTIONARY
        if settings.dictionary is not None:
            self.dictionary = read_dictionary(settings.dictionary)

    def tell(self, asked: Asked, found: Found) -> Translation:
        """Put the first output in front, and the others beside it."""
        spelled = self._source.spell_source(asked.source, asked.request.text)
        first, *others = (self._translation(asked, spelled, each) for each in found.outputs)
        tree = None if found.tree is None else [self._branch(node) for node in found.tree]
        return first._replace(alternatives=tuple(others), tree=tree)

    def tell_nothing(self, asked: Asked, *, want_tree: bool) -> Translation:
        """Say of an empty text that nothing follows from it."""
        nowhere = np.zeros((1, len(asked.source) + 1), np.float32)
        nothing = Hypothesis([], 0.0, 0.0, nowhere[:0], np.zeros(1), nowhere[0])
        return self.tell(asked, Found([nothing], [] if want_tree else None))

    def _translation(self, asked: Asked, source: Sequence[str], output: Hypothesis) -> Translation:
        places, pieces = len(asked.source) + 1, self._spell(source, output)
        text = "".join(pieces)
        return Translation(
            source=asked.request.text,
            text=text if asked.request.target is None else asked.request.target,
            score=output.score,
            log_prob=output.log_prob,
            source_tokens=[*self.text.source.pieces(asked.source), END_LABEL],
            tokens=self.text.target.pieces(output.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, :places],
            end_weights=output.end_weights[:places],
            source_owner=[*owners(source, words_of("".join(source))), NO_WORD],
            owner=owners(pieces, words_of(text)),
        )

    def _branch(self, node: Node) -> Branch:
        shown = END_LABEL if node.token == EOS else None
        if node.token not in (None, EOS):
            (shown,) = self.text.target.pieces([node.token])
        return Branch(node.parent, shown, *node[2:])

    def _spell(self, source: Sequence[str], output: Hypothesis) -> list[str]:
        spelled = self._target.spell(output.tokens)
        if not self.is_copying or UNK not in output.tokens:
            return spelled
        return replace_unknowns(
            spelled, output.tokens, output.weights, source=source, dictionary=self.dictionary
        )
