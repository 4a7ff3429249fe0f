"""Text generation with a trained language model.

A line break is the token EOS. Without a prompt the model starts on a new line. Invariant: text that
is streamed piece by piece is the text of all tokens.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from heedful.config import check_types
from heedful.data.text.token_stream import concatenate_lines, encode_prompt, overlapping_windows
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


class TextGenerator(TextPredictor):
    """A trained language model with its tokenizer."""

    model: LanguageModel

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
        options = build_sampling_options(temperature=temperature, top_k=top_k, top_p=top_p)
        pieces = self.stream(prompt, max_new_tokens=max_new_tokens, options=options, seed=seed)
        return prompt + "".join(pieces)

    def generate_samples(
        self,
        prompt: str,
        num_samples: int,
        *,
        max_new_tokens: int,
        options: SamplingOptions,
        seed: int = 0,
    ) -> list[str]:
        """Return multiple continuations with the prompt; the first is that of `generate`."""
        prompt_ids, state, last_ids = self._encode_prompt(prompt, num_samples)
        samples = sample(
            self._bounded,
            state,
            bos=last_ids,
            eos=None,
            max_lengths=torch.full_like(last_ids, max_new_tokens),
            options=options,
            seed=seed,
        )
        return [
            prompt + "".join(stream_text(self.tokenizer, prompt_ids, tokens)) for tokens in samples
        ]

    def stream(
        self, prompt: str, *, max_new_tokens: int, options: SamplingOptions, seed: int = 0
    ) -> Iterator[str]:
        """Yield the continuation of a prompt piece by piece."""
        prompt_ids, state, last_ids = self._encode_prompt(prompt, 1)
        steps = sampling_loop(
            self._bounded,
            state,
            bos=last_ids,
            eos=None,
            max_steps=torch.full_like(last_ids, max_new_tokens),
            options=options,
            generators=random_generators(seed, range(1)),
        )
        return stream_text(self.tokenizer, prompt_ids, (int(step.tokens[0]) for step in steps))

    def predict(
        self, requests: Iterable[str], *, location: str = "text", start_index: int = 1
    ) -> Iterator[PredictedText]:
        """Continue prompts with the defaults of `generate`; the seed is the prompt's index."""
        for index, prompt in enumerate(requests, start_index):
            text = self.generate(prompt, seed=index)
            ids = encode_prompt(text, self.tokenizer)
            yield PredictedText(text, self.tokenizer.ids_to_tokens(ids))

    def predict_with_attention(self, requests: Iterable[str]) -> Iterator[PredictedText]:
        """Read texts, as far as the context reaches, and return the attention of each layer."""
        for text in requests:
            ids = encode_prompt(text, self.tokenizer)[: self.lm_batching.context_length + 1]
            axis = self._token_axis(ids)
            tokens, words, word_ids = axis.tokens, axis.words, axis.word_ids
            queries = TokenAxis(tokens[1:], words, word_ids[1:])
            keys = TokenAxis(tokens[:-1], words, word_ids[:-1])
            layers = self._trace(ids[:-1], queries, keys) if ids[1:] else []
            yield PredictedText(text, axis.tokens, attention_layers=layers)

    def evaluate(self, lines: Sequence[str]) -> list[MetricScore]:
        """Return the perplexity of a text; each token has at least half a context before it."""
        tokens = concatenate_lines(lines, self.tokenizer)
        windows = overlapping_windows(tokens, self.lm_batching)
        token_loss = compute_token_loss(self.model, windows, device=self.device)
        context_length, num_unknown = self.lm_batching.context_length, int((tokens == UNK).sum())
        signature = f"context:{context_length}|stride:half|unknown:{num_unknown}"
        return token_loss.text_scores(lines, signature)

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


def build_sampling_options(
    *, temperature: float, top_k: int | None, top_p: float
) -> SamplingOptions:
    """Return checked options that never sample special tokens."""
    rules = [
        ("temperature", temperature, temperature >= 0, "at least 0"),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1"),
        ("top_p", top_p, 0 < top_p <= 1, "above 0 and at most 1"),
    ]
    for name, value, is_valid, allowed in rules:
        check(is_valid, name, f"must be {allowed}, but is {value}", f"change {name}")
    return SamplingOptions(temperature, top_k, top_p, forbidden_tokens=_EXCLUDED_TOKENS)


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
