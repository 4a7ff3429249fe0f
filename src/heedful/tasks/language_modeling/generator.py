"""The writer: a trained language model with its text, asked to go on from a beginning.

A line end is a token like any other. Where there is no beginning, the model begins on a new line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.token_stream import (
    LMBatchingConfig,
    concatenate_lines,
    encode_prompt,
    overlapping_windows,
)
from heedful.errors import ConfigError
from heedful.evaluation.base import MetricScore
from heedful.evaluation.perplexity import compute_perplexity, compute_token_loss
from heedful.models.language_model import BoundedContextModel, BoundedContextState, LanguageModel
from heedful.search.sampling import SamplingOptions, iterate_samples, sample
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK

_EXCLUDED_TOKENS = (PAD, UNK, BOS)  # no text holds them


_INCOMPLETE_CHARACTERS = (
    "\ufffd\ue000"  # half a character, half an escape: the next token may complete them
)


class GeneratedText(NamedTuple):
    """A prompt and its continuation."""

    text: str
    tokens: Sequence[str]
    attention_map: None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"text": self.text, "tokens": list(self.tokens)}


class TextGenerator:
    """A trained language model with its text."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        lm_batching: LMBatchingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = accelerate_for_inference(model, device)
        self.tokenizer = tokenizer
        self.lm_batching = lm_batching
        self.device = device

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
        """Go on from a prompt for so many tokens; give the prompt and what follows it."""
        how = build_sampling_options(temperature=temperature, top_k=top_k, top_p=top_p)
        return prompt + "".join(
            self.stream(prompt, max_new_tokens=max_new_tokens, options=how, seed=seed)
        )

    def generate_samples(
        self,
        prompt: str,
        num_samples: int,
        *,
        max_new_tokens: int,
        options: SamplingOptions,
        seed: int = 0,
    ) -> list[str]:
        """Go on from a prompt in several ways; the first is what `generate` gives."""
        prompt_ids, state, begin = self._start(prompt, num_samples)
        found = sample(
            self._bounded,
            state,
            bos=begin,
            eos=None,
            max_lengths=torch.full_like(begin, max_new_tokens),
            options=options,
            seed=seed,
        )
        return [
            prompt + "".join(stream_text(self.tokenizer, prompt_ids, tokens)) for tokens in found
        ]

    def stream(
        self, prompt: str, *, max_new_tokens: int, options: SamplingOptions, seed: int = 0
    ) -> Iterator[str]:
        """Go on from a prompt; give what follows it, as it comes."""
        prompt_ids, state, begin = self._start(prompt, 1)
        steps = iterate_samples(
            self._bounded,
            state,
            bos=begin,
            eos=None,
            max_lengths=torch.full_like(begin, max_new_tokens),
            options=options,
            seed=seed,
        )
        return stream_text(self.tokenizer, prompt_ids, (step.tokens[0] for step in steps))

    def predict(
        self, requests: Iterable[str], *, location: str = "text", start_index: int = 1
    ) -> Iterator[GeneratedText]:
        """Continue prompts with the defaults of `generate`; the seed is the prompt's index."""
        del location
        for index, prompt in enumerate(requests, start_index):
            text = self.generate(prompt, seed=index)
            yield GeneratedText(
                text, self.tokenizer.ids_to_tokens(encode_prompt(text, self.tokenizer))
            )

    def count_tokens(self, lines: Sequence[str]) -> int:
        """Return the number of tokens of a text; the EOS before its first line is not counted."""
        return len(concatenate_lines(lines, self.tokenizer)) - 1

    def evaluate(self, lines: Sequence[str]) -> list[MetricScore]:
        """Say how much a text surprises the model, each token seen with at least half a context."""
        tokens = concatenate_lines(lines, self.tokenizer)
        found = compute_token_loss(
            self.model, overlapping_windows(tokens, self.lm_batching), device=self.device
        )
        unknown = int((tokens == UNK).sum())
        signature = f"context:{self.lm_batching.context_length}|stride:half|unknown:{unknown}"
        return compute_perplexity(found, lines).to_scores(signature)

    @property
    def _bounded(self) -> BoundedContextModel:
        return BoundedContextModel(self.model, self.lm_batching.context_length)

    @torch.no_grad()
    def _start(self, prompt: str, count: int) -> tuple[list[int], BoundedContextState, Tensor]:
        """Read all of a prompt but its last token, as often as wanted."""
        ids = encode_prompt(prompt, self.tokenizer)
        rows = torch.tensor(ids, device=self.device).expand(count, -1)
        return ids, self._bounded.encode_prompt(rows[:, :-1]), rows[:, -1]


def build_sampling_options(
    *, temperature: float, top_k: int | None, top_p: float
) -> SamplingOptions:
    """Say how tokens of a text are drawn, if it can be done."""
    if not temperature >= 0:
        raise _invalid_setting_error(
            "temperature", temperature, "0 or more; 0 takes the likeliest token"
        )
    if top_k is not None and top_k < 1:
        raise _invalid_setting_error("top_k", top_k, "1 or more, or nothing to keep every token")
    if not 0 < top_p <= 1:
        raise _invalid_setting_error(
            "top_p", top_p, "more than 0 and at most 1, which keeps every token"
        )
    return SamplingOptions(temperature, top_k, top_p, forbidden_tokens=_EXCLUDED_TOKENS)


def _invalid_setting_error(name: str, value: float, allowed: str) -> ConfigError:
    return ConfigError(name, f"cannot be {value}", f"give {allowed}")


def stream_text(tokenizer: Tokenizer, before: list[int], tokens: Iterable[int]) -> Iterator[str]:
    """Give the text of tokens as they come, after those `before`, character by whole character."""
    line = before[len(before) - before[::-1].index(EOS) :]
    shown = tokenizer.decode(line)
    for token in tokens:
        if token == EOS:
            yield tokenizer.decode(line)[len(shown) :] + "\n"
            line, shown = [], ""
            continue
        line.append(token)
        settled = tokenizer.decode(line).rstrip(_INCOMPLETE_CHARACTERS)
        if len(settled) > len(shown):
            yield settled[len(shown) :]
            shown = settled
    if rest := tokenizer.decode(line)[len(shown) :]:
        yield rest
