"""Text generation with a trained language model.

A line break is the token EOS. Without a prompt the model starts on a new line. Invariant: text that
is streamed piece by piece is the text of all tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Annotated, Self

import torch
from pydantic import ConfigDict, Field, NonNegativeInt, model_validator
from torch import Tensor
from typing_extensions import override

from heedful.config import BaseConfig, check_types
from heedful.data.text.token_stream import concatenate_lines, encode_prompt, overlapping_windows
from heedful.decoding.requests import RequestControl
from heedful.errors import check
from heedful.evaluation.base import MetricScore
from heedful.evaluation.perplexity import compute_token_loss
from heedful.inspection.attention_layers import TokenAxis
from heedful.models.language_model import BoundedContextModel, BoundedContextState, LanguageModel
from heedful.search.sampling import SamplingOptions, random_generators, sample, sampling_loop
from heedful.tasks.text_task import PredictedText, TextPredictor
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK

_EXCLUDED_TOKENS = (PAD, UNK, BOS)  # which no text contains
# Part of a character or of an escape sequence; the next token may complete it.
_INCOMPLETE_CHARACTERS = "\ufffd\ue000"


class GenerationOptions(BaseConfig):
    """How one prompt is continued."""

    model_config = ConfigDict(allow_inf_nan=True)  # refused below, by name

    max_new_tokens: NonNegativeInt = 200
    """Tokens to generate."""
    temperature: float = 1.0
    """Below 1 less random; 0 takes the most likely token."""
    top_k: int | None = None
    """Sample among this many most likely tokens; default: all."""
    top_p: float = 1.0
    """Sample among the most likely tokens with this total probability."""
    seed: int | None = None
    """Random seed; by default the index of the prompt."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """The text ends before the first of these that follows the prompt."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        rules = [
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_k", self.top_k is None or self.top_k >= 1, "at least 1"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
        ]
        for name, is_valid, allowed in rules:
            message = f"must be {allowed}, but is {getattr(self, name)}"
            check(is_valid, name, message, f"change {name}")
        return self

    def build(self) -> SamplingOptions:
        """Return options that never sample special tokens."""
        limits = self.temperature, self.top_k, self.top_p
        return SamplingOptions(*limits, forbidden_tokens=_EXCLUDED_TOKENS)


class TextGenerator(TextPredictor):
    """A trained language model with its tokenizer."""

    model: LanguageModel
    options_class = GenerationOptions
    supports_control = True

    @check_types
    def generate(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> str:
        """Return the prompt and its continuation by `max_new_tokens` tokens."""
        options = GenerationOptions(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
        return next(self.predict([prompt], options)).text

    def generate_samples(
        self, prompt: str, num_samples: int, options: GenerationOptions
    ) -> list[str]:
        """Return multiple continuations with the prompt; the first is that of `generate`."""
        prompt_ids, state, last_ids = self._encode_prompt(prompt, num_samples)
        samples = sample(
            self._bounded,
            state,
            bos=last_ids,
            eos=None,
            max_lengths=torch.full_like(last_ids, options.max_new_tokens),
            options=options.build(),
            seed=options.seed or 0,
        )
        texts = [
            prompt + "".join(stream_text(self.tokenizer, prompt_ids, tokens)) for tokens in samples
        ]
        ends = [find_end(text, len(prompt), options.stop) for text in texts]
        return [
            text[:end] if is_stopped else text
            for text, (end, is_stopped) in zip(texts, ends, strict=True)
        ]

    @override
    def stream(
        self, request: str, options: GenerationOptions | None = None
    ) -> Iterator[PredictedText]:
        """Yield the prompt, then its continuation as it grows by complete characters."""
        return self._continue(request, options or GenerationOptions(), 1)

    @override
    def predict(
        self,
        requests: Iterable[str],
        options: GenerationOptions | None = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
        control: RequestControl | None = None,
    ) -> Iterator[PredictedText]:
        for index, prompt in enumerate(requests, start_index):
            if need_layers:
                yield self._read(prompt)
                continue
            seed_key = control.seed_key(index) if control else index
            results = self._continue(prompt, options or GenerationOptions(), seed_key)
            active = takewhile(lambda _: not (control and control.is_cancelled(index)), results)  # noqa: B023
            *_, result = chain([PredictedText(prompt, ())], active)
            yield result

    def _continue(
        self, prompt: str, options: GenerationOptions, seed_key: int
    ) -> Iterator[PredictedText]:
        prompt_ids, state, last_ids = self._encode_prompt(prompt, 1)
        steps = sampling_loop(
            self._bounded,
            state,
            bos=last_ids,
            eos=None,
            max_steps=torch.full_like(last_ids, options.max_new_tokens),
            options=options.build(),
            generators=random_generators(
                seed_key if options.seed is None else options.seed, range(1)
            ),
        )
        ids = list(prompt_ids)

        def new_ids() -> Iterator[int]:
            for step in steps:
                ids.append(int(step.tokens[0]))
                yield ids[-1]

        def result(text: str) -> PredictedText:
            tokens = self.tokenizer.ids_to_tokens(ids)
            return PredictedText(text, tokens, num_prompt_tokens=len(prompt_ids))

        text = prompt
        for piece in chain([""], stream_text(self.tokenizer, prompt_ids, new_ids())):
            text += piece
            end, is_stopped = find_end(text, len(prompt), options.stop)
            yield result(text[:end])
            if is_stopped:
                return
        yield result(text)

    def _read(self, text: str) -> PredictedText:
        """Read a text, as far as the context reaches, and return the attention of each layer."""
        ids = encode_prompt(text, self.tokenizer)[: self.lm_batching.context_length + 1]
        axis = self._token_axis(ids)
        tokens, words, word_ids = axis.tokens, axis.words, axis.word_ids
        queries = TokenAxis(tokens[1:], words, word_ids[1:])
        keys = TokenAxis(tokens[:-1], words, word_ids[:-1])
        layers = self._trace(ids[:-1], queries, keys) if ids[1:] else []
        return PredictedText(text, axis.tokens, attention_layers=layers)

    @override
    def evaluate(self, examples: Sequence[str]) -> list[MetricScore]:
        """Return the perplexity of a text; each token has at least half a context before it."""
        tokens = concatenate_lines(examples, self.tokenizer)
        windows = overlapping_windows(tokens, self.lm_batching)
        token_loss = compute_token_loss(self.model, windows, device=self.device)
        context_length, num_unknown = self.lm_batching.context_length, int((tokens == UNK).sum())
        signature = f"context:{context_length}|stride:half|unknown:{num_unknown}"
        return token_loss.text_scores(examples, signature)

    @property
    def _bounded(self) -> BoundedContextModel:
        return BoundedContextModel(self.model, self.lm_batching.context_length)

    @torch.no_grad()
    def _encode_prompt(
        self, prompt: str, num_rows: int
    ) -> tuple[list[int], BoundedContextState, Tensor]:
        """Process all tokens of a prompt but the last; return ids, state and last ids."""
        ids = encode_prompt(prompt, self.tokenizer)
        rows = torch.tensor(ids, device=self.device).expand(num_rows, -1)
        return ids, self._bounded.encode_prompt(rows[:, :-1]), rows[:, -1]


def find_end(text: str, start: int, stop: Sequence[str]) -> tuple[int, bool]:
    """Return how much of a text that grows is final, and whether it ends there.

    It ends before the first of `stop` at or after `start`; a beginning of one may be completed.
    """
    stops = [index for phrase in stop if (index := text.find(phrase, start)) >= 0]
    if stops:
        return min(stops), True
    beginnings = [
        length
        for phrase in stop
        for length in range(1, len(phrase))
        if text.endswith(phrase[:length], start)
    ]
    return len(text) - max(beginnings, default=0), False


def stream_text(
    tokenizer: Tokenizer, prompt_ids: list[int], tokens: Iterable[int]
) -> Iterator[str]:
    """Yield the text of tokens that follow a prompt, in complete characters."""
    *_, line_start = (-1, *(index for index, token in enumerate(prompt_ids) if token == EOS))
    line = prompt_ids[line_start + 1 :]
    shown = tokenizer.decode(line)
    for token in tokens:
        if token == EOS:
            yield tokenizer.decode(line)[len(shown) :] + "\n"
            line, shown = [], ""
            continue
        line.append(token)
        complete = tokenizer.decode(line).rstrip(_INCOMPLETE_CHARACTERS)
        if len(complete) > len(shown):
            yield complete[len(shown) :]
            shown = complete
    if rest := tokenizer.decode(line)[len(shown) :]:
        yield rest
