"""Text generation with a trained language model.

A line break is the token EOS. Without a prompt the model starts on a new line. Invariants: text
that is streamed piece by piece is the text of all tokens; it does not depend on other prompts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Annotated, ClassVar, Self

import torch
from pydantic import ConfigDict, Field, NonNegativeInt, model_validator
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from heedful.config import check_types
from heedful.data.text.token_stream import concatenate_lines, encode_prompt, overlapping_windows
from heedful.decoding.requests import RequestControl
from heedful.errors import check
from heedful.evaluation.base import MetricScore
from heedful.evaluation.perplexity import compute_token_loss
from heedful.inspection.attention_layers import TokenAxis
from heedful.inspection.expert_routing import trace_experts
from heedful.models.language_model import LanguageModel
from heedful.search.sampling import SamplingOptions, random_generators, sampling_loop
from heedful.tasks.prediction import PredictedText, PredictionOptions, Trace
from heedful.tasks.text_task import TextPredictor
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK

_EXCLUDED_TOKENS = (PAD, UNK, BOS)  # which no text contains
# Part of a character or of an escape sequence; the next token may complete it.
_INCOMPLETE_CHARACTERS = "\ufffd\ue000"


class GenerationOptions(PredictionOptions):
    """How one prompt is continued."""

    model_config = ConfigDict(allow_inf_nan=True)  # refused below, by name

    max_new_tokens: NonNegativeInt = 200
    """Tokens to generate."""
    temperature: Annotated[float, Field(json_schema_extra={"minimum": 0})] = 1.0
    """Below 1 less random; 0 takes the most likely token."""
    top_k: Annotated[int | None, Field(json_schema_extra={"minimum": 1})] = None
    """Sample among this many most likely tokens; default: all."""
    top_p: Annotated[float, Field(json_schema_extra={"exclusiveMinimum": 0, "maximum": 1})] = 1.0
    """Sample among the most likely tokens with this total probability."""
    seed: int | None = None
    """Random seed; by default the index of the prompt."""
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = ()
    """The text ends before the first of these that follows the prompt."""
    prefix_tokens: Annotated[tuple[NonNegativeInt, ...], Field(strict=False)] = ()
    """Ids of tokens that the continuation begins with; a text might be tokenized otherwise."""

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


class Continuation:
    """A prompt, and the text that follows it token by token."""

    def __init__(self, prompt: str, tokenizer: Tokenizer, options: GenerationOptions) -> None:
        self.prompt_ids = encode_prompt(prompt, tokenizer)
        self.is_stopped = False
        self.ids = list(self.prompt_ids)
        self._tokens = tokenizer.ids_to_tokens(self.prompt_ids)
        self._tokenizer, self._stop = tokenizer, options.stop
        self._text, self._start, self._end = prompt, len(prompt), len(prompt)
        self._decoder = StreamDecoder(tokenizer, self.prompt_ids)
        for token in options.prefix_tokens:
            is_valid = token in range(EOS, len(tokenizer))
            message = f"must be ids from {EOS} to {len(tokenizer) - 1}, but has {token}"
            check(is_valid, "prefix_tokens", message, "give ids of tokens")
            self.add(token)

    def add(self, token: int) -> None:
        """Add a token."""
        self.ids.append(token)
        self._tokens += self._tokenizer.ids_to_tokens([token])
        self._extend(self._decoder.add(token))

    def finish(self) -> None:
        """Add what is incomplete: no token follows."""
        self._extend(self._decoder.rest())
        if not self.is_stopped:
            self._end = len(self._text)

    def _extend(self, piece: str) -> None:
        if piece:
            self._text += piece
            self._end, self.is_stopped = find_end(self._text, self._start, self._stop)

    def result(self) -> PredictedText:
        """Return the part of the text that is final."""
        return PredictedText(
            self._text[: self._end],
            self._tokens.copy(),
            num_prompt_tokens=len(self.prompt_ids),
            token_ids=self.ids.copy(),
        )


class TextGenerator(TextPredictor):
    """A trained language model with its tokenizer."""

    model: LanguageModel
    options_class = GenerationOptions
    supports_control = True
    batch_size: ClassVar[int] = 64

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
        generators = random_generators(options.seed or 0, range(num_samples))
        results = self._continue([prompt] * num_samples, options, generators)
        return [result.text for result in results]

    @override
    def stream(
        self, request: str, options: GenerationOptions | None = None
    ) -> Iterator[PredictedText]:
        """Yield the prompt, then its continuation as it grows by complete characters."""
        options = options or GenerationOptions()
        text = Continuation(request, self.tokenizer, options)
        yield text.result()
        seed = 1 if options.seed is None else options.seed
        for _, token in self._generate([text], options, random_generators(seed, range(1))):
            text.add(token)
            yield text.result()
            if text.is_stopped:
                return
        text.finish()
        yield text.result()

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
        if need_layers:
            yield from map(self.predict_with_layers, requests)
            return
        options, prompts = options or GenerationOptions(), iter(requests)
        while batch := list(islice(prompts, self.batch_size)):
            indices = range(start_index, start_index + len(batch))
            keys = [control.seed_key(index) if control else index for index in indices]
            seeds = keys if options.seed is None else [options.seed] * len(keys)
            generators = [random_generators(seed, range(1))[0] for seed in seeds]
            rows = control and RequestControl(
                lambda row: control.is_cancelled(indices[row]),  # noqa: B023
                control.seed_key,
                control.on_step,
            )
            yield from self._continue(batch, options, generators, rows)
            start_index += len(batch)

    def _continue(
        self,
        prompts: Sequence[str],
        options: GenerationOptions,
        generators: Sequence[Random],
        control: RequestControl | None = None,
    ) -> list[PredictedText]:
        """Continue a batch of prompts; `control` counts them from 0."""
        texts = [Continuation(prompt, self.tokenizer, options) for prompt in prompts]
        for row, token in self._generate(texts, options, generators, control):
            texts[row].add(token)
            if control:
                control.on_step(1)
        for text in texts:
            if not text.is_stopped:
                text.finish()
        return [text.result() for text in texts]

    def _generate(
        self,
        texts: Sequence[Continuation],
        options: GenerationOptions,
        generators: Sequence[Random],
        control: RequestControl | None = None,
    ) -> Iterator[tuple[int, int]]:
        def is_stopped(row: int) -> bool:
            return texts[row].is_stopped or (control is not None and control.is_cancelled(row))

        return generate_tokens(
            self.model,
            [text.ids for text in texts],
            context_length=self.lm_batching.context_length,
            max_new_tokens=options.max_new_tokens,
            options=options.build(),
            generators=generators,
            is_stopped=is_stopped,
        )

    @override
    def predict_with_layers(
        self, request: str, options: GenerationOptions | None = None
    ) -> PredictedText:
        return self.trace(request, options).result

    @override
    def trace(self, request: str, options: GenerationOptions | None = None) -> Trace[PredictedText]:
        """Read a text once, as far as the context reaches; with options, continue it first."""
        if options is None:
            result = PredictedText(request, (), token_ids=encode_prompt(request, self.tokenizer))
        else:
            (result,) = self.predict([request], options)
        ids = result.token_ids[: self.lm_batching.context_length + 1]
        axis = self._token_axis(ids)
        tokens, words, word_ids = axis.tokens, axis.words, axis.word_ids
        queries = TokenAxis(tokens[1:], words, word_ids[1:])
        keys = TokenAxis(tokens[:-1], words, word_ids[:-1])
        with trace_experts(self.models) as gates:
            inputs = self._inputs(ids)
            layers, log_probs = self._trace(inputs, queries, keys) if inputs else ([], None)
        result = result._replace(tokens=tokens, attention_layers=layers, token_ids=ids)
        return Trace(result, log_probs, gates)

    @override
    def _inputs(self, ids: Sequence[int]) -> Sequence[int]:
        return ids[: self.lm_batching.context_length + 1][:-1]

    @override
    def evaluate(self, examples: Sequence[str]) -> list[MetricScore]:
        """Return the perplexity of a text; each token has at least half a context before it."""
        tokens = concatenate_lines(examples, self.tokenizer)
        windows = overlapping_windows(tokens, self.lm_batching)
        token_loss = compute_token_loss(self.model, windows, device=self.device)
        context_length, num_unknown = self.lm_batching.context_length, int((tokens == UNK).sum())
        signature = f"context:{context_length}|stride:half|unknown:{num_unknown}"
        return token_loss.text_scores(examples, signature)


@torch.no_grad()
def generate_tokens(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    context_length: int,
    max_new_tokens: int,
    options: SamplingOptions,
    generators: Sequence[Random],
    is_stopped: Callable[[int], bool] = lambda row: False,
) -> Iterator[tuple[int, int]]:
    """Continue token ids by `max_new_tokens`; yield row and token, until a row is stopped.

    After `context_length` tokens a row restarts from the latter half of them, as in
    `BoundedContextModel`. Rows of different lengths get there at different steps: each waits until
    all have, so that they restart together and stay in step.
    """
    device = next(model.parameters()).device
    texts = [list(ids) for ids in prompts]
    num_left = [max_new_tokens] * len(texts)
    while rows := [row for row, left in enumerate(num_left) if left and not is_stopped(row)]:
        windows = [recent_tokens(texts[row][:-1], context_length) for row in rows]
        lengths = torch.tensor([len(window) for window in windows])
        max_steps = torch.tensor([num_left[row] for row in rows]).minimum(context_length - lengths)
        padded = pad_sequence([torch.tensor(window, dtype=torch.long) for window in windows], True)
        for step in sampling_loop(
            model,
            model.encode_prompt(padded.to(device), lengths.to(device)),
            bos=torch.tensor([texts[row][-1] for row in rows], device=device),
            eos=None,
            max_steps=max_steps.to(device),
            options=options,
            generators=[generators[row] for row in rows],
            is_stopped=lambda index: is_stopped(rows[index]),
        ):
            for index, token in zip(step.rows.tolist(), step.tokens.tolist(), strict=True):
                texts[rows[index]].append(token)
                num_left[rows[index]] -= 1
                yield rows[index], token


def recent_tokens(ids: Sequence[int], context_length: int) -> Sequence[int]:
    """Return the tokens from which a model goes on after these; see `BoundedContextModel`."""
    is_full = len(ids) >= context_length
    return ids[len(ids) - context_length // 2 :] if is_full else ids


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


class StreamDecoder:
    """Decodes tokens that follow a prompt, in complete characters."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> None:
        *_, line_start = (-1, *(index for index, token in enumerate(prompt_ids) if token == EOS))
        self._tokenizer, self._line = tokenizer, [*prompt_ids[line_start + 1 :]]
        self._shown = tokenizer.decode(self._line)

    def add(self, token: int) -> str:
        """Return the text that is complete with this token."""
        if token == EOS:
            piece = self.rest() + "\n"
            self._line, self._shown = [], ""
            return piece
        self._line.append(token)
        complete = self._tokenizer.decode(self._line).rstrip(_INCOMPLETE_CHARACTERS)
        if len(complete) <= len(self._shown):
            return ""
        piece = complete[len(self._shown) :]
        self._shown = complete
        return piece

    def rest(self) -> str:
        """Return the text of a line that ends in the middle of a character."""
        return self._tokenizer.decode(self._line)[len(self._shown) :]


def stream_text(
    tokenizer: Tokenizer, prompt_ids: Sequence[int], tokens: Iterable[int]
) -> Iterator[str]:
    """Yield the text of tokens that follow a prompt, in complete characters."""
    decoder = StreamDecoder(tokenizer, prompt_ids)
    yield from filter(None, map(decoder.add, tokens))
    if rest := decoder.rest():
        yield rest
