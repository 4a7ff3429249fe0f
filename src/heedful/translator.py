"""The translator: a trained model with its text, asked for outputs.

What comes out of a text does not depend on what is translated beside it: texts are sorted and
batched for speed, and come back in the order they went in. What is drawn for a text depends on the
seed and on its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import nn

from heedful.decoding.asked import Asked, Asking
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import Request, as_request
from heedful.decoding.telling import Telling
from heedful.decoding.translation import END_LABEL, Translation
from heedful.decoding.ways import Found, Ways
from heedful.errors import ConfigError
from heedful.layers.fused.packing import weights_at_rest
from heedful.tasks.decodable import Decodable
from heedful.text.config import TextPair

__all__ = ["END_LABEL", "DecodingConfig", "Request", "Translation", "Translator"]

_WINDOW = 1024  # texts that are sorted by length together when streaming


class Translator:
    """A trained model, or several that are asked together, with its text."""

    def __init__(
        self,
        model: Decodable,
        text: TextPair,
        decoding: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.eval().to(device) if isinstance(model, nn.Module) else model
        self.text = text
        self.decoding = decoding
        self.device = device
        self._asking = Asking(text, decoding)
        self._telling = Telling(text, decoding)

    def translate(
        self,
        texts: Sequence[str | Request],
        *,
        beam: int | None = None,
        nbest: int | None = None,
        want_tree: bool = False,
    ) -> list[Translation]:
        """Translate texts; an empty text gives an empty output, unless it is asked for more."""
        return list(self.stream(texts, beam=beam, nbest=nbest, want_tree=want_tree))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        """Say of given texts what would be said of them if they had been found."""
        return list(self.stream(Request(text, target=target) for text, target in pairs))

    def stream(
        self,
        texts: Iterable[str | Request],
        *,
        beam: int | None = None,
        nbest: int | None = None,
        want_tree: bool = False,
        origin: str = "text",
        first: int = 1,
    ) -> Iterator[Translation]:
        """Translate texts as they come, in order, a bounded number at a time.

        They are numbered from `first`: by its number an error names a text of the `origin`, and
        what is drawn for a text depends on it.
        """
        settings = self.decoding.with_widths(beam=beam, nbest=nbest)
        if want_tree and settings.drawing:
            raise _no_tree(settings.drawing)
        ways = Ways(self.model, settings, decode=self.text.target.decode, device=self.device)
        stream = map(as_request, texts)
        while window := list(islice(stream, _WINDOW)):
            asked = self._asking.ask(window, origin=origin, first=first)
            yield from self._translate(asked, ways, want_tree=want_tree)
            first += len(window)

    def _translate(
        self, asked: list[Asked], ways: Ways, *, want_tree: bool
    ) -> Iterator[Translation]:
        found: dict[int, Found] = {}
        with weights_at_rest():
            for batch in _batches(asked, ways.settings):
                answers = ways.find(batch, want_tree=want_tree)
                numbers = (each.number for each in batch)
                found.update(zip(numbers, answers, strict=True))
        for each in asked:
            if each.number in found:
                yield self._telling.tell(each, found[each.number])
            else:
                yield self._telling.tell_nothing(each, want_tree=want_tree)


def _batches(asked: Sequence[Asked], settings: DecodingConfig) -> Iterator[list[Asked]]:
    """Group texts of like length; empty ones of which nothing is wished are not asked about."""
    given = [each for each in asked if each.target is not None]
    free = [each for each in asked if each.target is None and not each.is_nothing]
    for some, width in ((given, 1), (free, settings.num_outputs)):
        left = sorted(some, key=lambda each: len(each.source), reverse=True)
        while left:
            widest = len(left[0].source) + 1
            count = max(1, settings.max_batch_tokens // (widest * width))
            yield left[:count]
            left = left[count:]


def _no_tree(drawing: str) -> ConfigError:
    return ConfigError(
        "want_tree",
        f"only a beam has a tree, and outputs are drawn (decoding.{drawing} is set)",
        f"ask for no tree, or set decoding.{drawing} to null",
    )
