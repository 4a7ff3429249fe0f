"""The writer: a trained language model with its text, asked to go on from a beginning.

A line end is a token like any other. Where there is no beginning, the model begins on a new line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.masking import MaskingConfig, hide
from heedful.data.running import StreamsConfig, apart, encode_text, overlapping, run_together
from heedful.errors import ConfigError, DataError
from heedful.evaluation.metrics import Metric
from heedful.evaluation.perplexity import perplexity, surprise
from heedful.search.sampling import Sampling, sample, sampling_steps
from heedful.tasks.language_model import Bounded, BoundedState, LanguageModel
from heedful.tasks.masked_language_model import MaskedLanguageModel
from heedful.text.tokenizers import Tokenizer
from heedful.text.vocabulary import BOS, EOS, PAD, UNK

MASK = "[MASK]"
"""What stands for a hidden token in a text to be filled in."""

_NEVER = (PAD, UNK, BOS)  # no text holds them
_STAND_IN = "\uf8ff"  # the last character that Unicode leaves to private use
_UNSETTLED = "\ufffd\ue000"  # half a character, half an escape: the next token may complete them


class Writer:
    """A trained language model with its text."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        streams: StreamsConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.eval().to(device)
        self.tokenizer = tokenizer
        self.streams = streams
        self.device = device

    def generate(
        self,
        prompt: str = "",
        *,
        length: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> str:
        """Go on from a prompt for so many tokens; give the prompt and what follows it."""
        how = sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        return prompt + "".join(self.stream(prompt, length=length, how=how, seed=seed))

    def samples(
        self, prompt: str, count: int, *, length: int, how: Sampling, seed: int = 0
    ) -> list[str]:
        """Go on from a prompt in several ways; the first is what `generate` gives."""
        told, state, begin = self._start(prompt, count)
        found = sample(
            self._bounded,
            state,
            begin=begin,
            end=None,
            max_lengths=torch.full_like(begin, length),
            how=how,
            seed=seed,
        )
        return [prompt + "".join(tell(self.tokenizer, told, tokens)) for tokens in found]

    def stream(self, prompt: str, *, length: int, how: Sampling, seed: int = 0) -> Iterator[str]:
        """Go on from a prompt; give what follows it, as it comes."""
        told, state, begin = self._start(prompt, 1)
        steps = sampling_steps(
            self._bounded,
            state,
            begin=begin,
            end=None,
            max_lengths=torch.full_like(begin, length),
            how=how,
            seed=seed,
        )
        return tell(self.tokenizer, told, (step.tokens[0] for step in steps))

    def measure(self, lines: Sequence[str]) -> list[Metric]:
        """Say how much a text surprises the model, each token seen with at least half a context."""
        tokens = run_together(lines, self.tokenizer)
        found = surprise(self.model, overlapping(tokens, self.streams), device=self.device)
        unknown = int((tokens == UNK).sum())
        signature = f"context:{self.streams.context}|stride:half|unknown:{unknown}"
        return perplexity(found, lines).metrics(signature)

    @property
    def _bounded(self) -> Bounded:
        return Bounded(self.model, self.streams.context)

    @torch.no_grad()
    def _start(self, prompt: str, count: int) -> tuple[list[int], BoundedState, Tensor]:
        """Read all of a prompt but its last token, as often as wanted."""
        ids = encode_text(prompt, self.tokenizer)
        rows = torch.tensor(ids, device=self.device).expand(count, -1)
        return ids, self._bounded.start(rows[:, :-1]), rows[:, -1]


def sampling(*, temperature: float, top_k: int | None, top_p: float) -> Sampling:
    """Say how tokens of a text are drawn, if it can be done."""
    if not temperature >= 0:
        raise _unfit("temperature", temperature, "0 or more; 0 takes the likeliest token")
    if top_k is not None and top_k < 1:
        raise _unfit("top_k", top_k, "1 or more, or nothing to keep every token")
    if not 0 < top_p <= 1:
        raise _unfit("top_p", top_p, "more than 0 and at most 1, which keeps every token")
    return Sampling(temperature, top_k, top_p, without=_NEVER)


def _unfit(name: str, value: float, allowed: str) -> ConfigError:
    return ConfigError(name, f"cannot be {value}", f"give {allowed}")


def tell(tokenizer: Tokenizer, before: list[int], tokens: Iterable[int]) -> Iterator[str]:
    """Give the text of tokens as they come, after those `before`, character by whole character."""
    line = before[len(before) - before[::-1].index(EOS) :]
    shown = tokenizer.decode(line)
    for token in tokens:
        if token == EOS:
            yield tokenizer.decode(line)[len(shown) :] + "\n"
            line, shown = [], ""
            continue
        line.append(token)
        settled = tokenizer.decode(line).rstrip(_UNSETTLED)
        if len(settled) > len(shown):
            yield settled[len(shown) :]
            shown = settled
    if rest := tokenizer.decode(line)[len(shown) :]:
        yield rest


class Candidate(NamedTuple):
    """A token that may stand where one is hidden, as shown to people."""

    token: str
    probability: float


class MaskedWriter:
    """A trained masked language model with its text."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        streams: StreamsConfig,
        masking: MaskingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.eval().to(device)
        self.tokenizer = tokenizer
        self.streams = streams
        self.masking = masking
        self.device = device

    @torch.no_grad()
    def fill(self, text: str, *, count: int = 5) -> list[list[Candidate]]:
        """Say, for each "[MASK]" of a text, which tokens are likeliest to stand there."""
        ids = self._masked(text)
        rows = self.model.guess(torch.tensor(ids, device=self.device)).exp()
        hidden = [place for place, token in enumerate(ids) if token == self.model.mask]
        found = [rows[place].topk(min(count, rows.size(1))) for place in hidden]
        return [
            list(map(Candidate, self.tokenizer.pieces(best.indices.tolist()), best.values.tolist()))
            for best in found
        ]

    def measure(self, lines: Sequence[str]) -> list[Metric]:
        """Hide tokens of a text, always the same, and say how the model did in finding them."""
        size = len(self.tokenizer)
        pieces = apart(run_together(lines, self.tokenizer), self.streams)
        batches = (
            hide(piece.inputs, self.masking, vocabulary_size=size, seed=f"measure {number}")
            for number, piece in enumerate(pieces)
        )
        found = surprise(self.model, batches, device=self.device)
        masking = self.masking
        shares = f"{masking.chosen:g}|hidden:{masking.hidden:g}|replaced:{masking.replaced:g}"
        return found.metrics(f"context:{self.streams.context}|chosen:{shares}")

    def _masked(self, text: str) -> list[int]:
        """Turn a text into tokens; a stand-in for the mask shows where it falls among them."""
        if MASK not in text:
            raise DataError(
                "text", f"there is no {MASK} in it", f"write {MASK} where one is wanted"
            )
        marks = self.tokenizer.encode(_STAND_IN)  # a space may come with it, and may not
        ids = _replace(
            encode_text(text.replace(MASK, _STAND_IN), self.tokenizer), marks, self.model.mask
        )
        ids = [*_replace(ids, marks[1:], self.model.mask), EOS]
        if ids.count(self.model.mask) != text.count(MASK):
            raise DataError(
                "text",
                "the model does not know all of its words, and cannot tell them from a mask",
                "use words that the model was trained on",
            )
        return ids


def _replace(ids: list[int], stretch: list[int], token: int) -> list[int]:
    """Put a token in place of every such stretch of tokens."""
    found, place = list[int](), 0
    while place < len(ids):
        is_here = bool(stretch) and ids[place : place + len(stretch)] == stretch
        found.append(token if is_here else ids[place])
        place += len(stretch) if is_here else 1
    return found
