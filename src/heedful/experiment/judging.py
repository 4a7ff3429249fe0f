"""Judging: what does a model make of texts that it has not learned from?

The loss of a validation is told the truth word by word; a judge lets the model write by itself.
Laws: the same held-out texts are asked about every time, and asking leaves no trace: weights,
training mode and random numbers are as if nobody had asked, so a run that is judged learns what
it would have learned otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from heedful.corpora import Corpora, PairCorpora, TextCorpora
from heedful.data.records import Pair
from heedful.errors import ConfigError, DataError
from heedful.evaluation.measures import Direction, Measure, score
from heedful.evaluation.metrics import MEASURES
from heedful.recipes import Recipe
from heedful.search.evidence import NotNumbersError
from heedful.search.sampling import sample
from heedful.tasks.language_model import Bounded, LanguageModel
from heedful.tasks.model import Model
from heedful.text.tokenizers import Tokenizer
from heedful.text.vocabulary import EOS
from heedful.training.observers import Sample
from heedful.translator import Translation, Translator
from heedful.writer import sampling, tell

_OF_OUTPUTS: Mapping[str, Measure] = {
    # Links are not what a model writes.
    name: measure
    for name, measure in MEASURES.items()
    if name != "aer"
}
METRICS: Mapping[str, Direction] = {
    "loss": "lower",
    "accuracy": "higher",
    **{name: measure.better for name, measure in _OF_OUTPUTS.items()},
}
"""What a validation can be judged by, and which scores are the better ones."""

_TOLD = 20  # tokens of a text that a language model is shown
_WRITTEN = 40  # tokens that it goes on for
_DIGITS = 4  # of a weight
_LINE_END = "\u21b5"  # how it is shown


def cost(name: str, value: float) -> float:
    """Turn a score into a number of which the smaller is the better."""
    return value if METRICS[name] == "lower" else -value


class Judge:
    """Asks a model about held-out texts."""

    def __init__(
        self, model: nn.Module, corpora: Corpora, recipe: Recipe, device: torch.device
    ) -> None:
        self.model = model
        self.corpora = corpora
        self.recipe = recipe
        self.device = device
        self._pairs = _fit_to_ask(corpora, recipe) if isinstance(corpora, PairCorpora) else []
        self._refuse_what_cannot_be_judged()

    def scores(self, names: Sequence[str]) -> dict[str, float]:
        """Measure what the model writes; what is not a metric of outputs is left out."""
        wanted = [name for name in names if name in _OF_OUTPUTS]
        if not wanted:
            return {}
        found = self._translate(self._pairs)
        outputs = [result.text for result in found] or [""] * len(self._pairs)
        references = [pair.target for pair in self._pairs]
        return {name: score(_OF_OUTPUTS[name], outputs, references).value for name in wanted}

    def samples(self, count: int) -> list[Sample]:
        """Show what the model writes about a few texts; nothing where a model cannot write."""
        if isinstance(self.model, LanguageModel) and isinstance(self.corpora, TextCorpora):
            return self._continuations(self.corpora, self.model, count)
        pairs = self._pairs[:count]
        found = self._translate(pairs)
        return [
            _sample(result, pair.target) for result, pair in zip(found, pairs, strict=bool(found))
        ]

    def _translate(self, pairs: Sequence[Pair]) -> list[Translation]:
        """Translate; where weights have overflowed there is nothing to tell, and training goes on.

        What is wrong with them is for the engine to say.
        """
        if not pairs:
            return []
        assert isinstance(self.model, Model), type(self.model)
        with _leaving_no_trace(self.model, self.device):
            translator = Translator(
                self.model, self.corpora.text, self.recipe.decoding.plain(), device=self.device
            )
            try:
                return translator.translate([pair.source for pair in pairs])
            except NotNumbersError:
                return []

    def _continuations(
        self, corpora: TextCorpora, model: LanguageModel, count: int
    ) -> list[Sample]:
        with _leaving_no_trace(model, self.device):
            bounded = Bounded(model, self.recipe.data.streams.context)
            return [self._continue(corpora, bounded, start) for start in _starts(corpora, count)]

    def _continue(self, corpora: TextCorpora, bounded: Bounded, start: int) -> Sample:
        tokenizer, dev = corpora.text.target, corpora.dev
        told, follows = (
            np.asarray(dev[begin : begin + length]).tolist()
            for begin, length in ((start, _TOLD), (start + _TOLD, _WRITTEN))
        )
        read = torch.tensor([told], device=self.device)
        (written,) = sample(
            bounded,
            bounded.start(read[:, :-1]),
            begin=read[:, -1],
            end=None,
            max_lengths=read.new_tensor([_WRITTEN]),
            how=sampling(temperature=0, top_k=None, top_p=1),
        )
        return Sample(
            source=_shown(told, tokenizer),
            reference="".join(tell(tokenizer, told, follows)),
            output=_shown(written, tokenizer),
            text="".join(tell(tokenizer, told, written)),
            weights=(),
        )

    def _refuse_what_cannot_be_judged(self) -> None:
        metric = self.recipe.training.metric
        if metric not in _OF_OUTPUTS:
            return
        if self._pairs:
            _refuse_unreadable(metric, [pair.target for pair in self._pairs])
            return
        if isinstance(self.corpora, PairCorpora):
            raise ConfigError(
                "training.metric",
                f"{metric} needs outputs, and no held-out text is short enough to be decoded",
                "raise decoding.max_source_tokens, or set training.metric to loss or accuracy",
            )
        raise ConfigError(
            "training.metric",
            f"{metric} compares outputs with references, and running text has none",
            "set training.metric to loss or accuracy",
        )


def _refuse_unreadable(metric: str, references: Sequence[str]) -> None:
    """Refuse references that a metric cannot read, such as words where it wants tags."""
    try:
        score(_OF_OUTPUTS[metric], references, references)
    except DataError as unreadable:
        raise ConfigError(
            "training.metric",
            f"{metric} cannot read the held-out texts: {unreadable.problem}",
            "set training.metric to one that measures text, such as bleu or exact-match",
        ) from unreadable


def _fit_to_ask(corpora: PairCorpora, recipe: Recipe) -> list[Pair]:
    """The first pairs, up to as many as are judged, that the model would be let translate."""
    longest = min(recipe.decoding.max_source_tokens, recipe.data.selection.max_tokens)
    found = list[Pair]()
    for pair in corpora.held_out_pairs:
        is_full = bool(pair.source.strip() and pair.target.strip())
        if is_full and len(corpora.text.source.encode(pair.source)) <= longest:
            found.append(pair)
        if len(found) == recipe.training.judged:
            break
    return found


def _starts(corpora: TextCorpora, count: int) -> list[int]:
    """Line starts that part the held-out text about evenly; the first is its beginning."""
    line_starts = np.flatnonzero(np.asarray(corpora.dev[:-1]) == EOS)
    count = min(count, len(line_starts))
    return [int(line_starts[number * len(line_starts) // count]) for number in range(count)]


def _shown(tokens: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    pieces = zip(tokens, tokenizer.pieces(tokens), strict=True)
    return [_LINE_END if token == EOS else piece for token, piece in pieces]


def _sample(result: Translation, reference: str) -> Sample:
    weights = [[round(float(share), _DIGITS) for share in row] for row in result.weights]
    looked = any(map(any, weights))  # a model without attention gives zeros
    return Sample(
        source=result.source_tokens,
        reference=reference,
        output=result.tokens,
        text=result.text,
        weights=weights if looked else (),
    )


@contextmanager
def _leaving_no_trace(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let a model be asked; put back the modes of all its parts and the random numbers."""
    modes = [(module, module.training) for module in model.modules()]
    devices = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        try:
            model.eval()
            yield
        finally:
            for module, mode in modes:
                module.training = mode
