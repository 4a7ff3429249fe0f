"""/v1/completions as OpenAI shapes it, for language models.

Errors are {"error": {"message", "type", "param", "code"}}. Without a seed every request is sampled
anew; with one, choice i of prompt k is that of `heedful generate --seed` seed + k * n + i.
"""

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from random import randrange
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from heedful.errors import format_count
from heedful.serving.problems import (
    COMPLETIONS_PATH,
    CompletionError,
    ProblemError,
    describe_errors,
    to_problem,
)
from heedful.serving.protocol import ItemError, StreamPart
from heedful.serving.service import Service, choose_model
from heedful.serving.settings import ServerSettings
from heedful.storage.json_files import read_json_integers

_ROUTE = "generate"
_MAX_SEED = 2**31
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (None, 1),
    "logprobs": (None,),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
}
"""Fields of OpenAI that no model here has, and their values that change nothing."""
StopText = Annotated[str, Field(min_length=1, max_length=100)]


class StreamOptions(BaseModel):
    """What a stream has besides text."""

    model_config = ConfigDict(strict=True)

    include_usage: bool = False


def _describe_fields(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        if "default" in field and "type" in field:
            field["type"] = [field["type"], "null"]
    schema["properties"] |= {name: {"enum": list(values)} for name, values in _NEUTRAL.items()}


class CompletionRequest(BaseModel):
    """A prompt, or prompts, to continue; null is the default of a field."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra=_describe_fields)

    @model_validator(mode="before")
    @classmethod
    def _read_json(cls, values: Any) -> Any:
        values = read_json_integers(values)
        if isinstance(values, dict):
            kept = {"model", "prompt"} | {name for name in values if values[name] is not None}
            return {name: values[name] for name in values if name in kept}
        return values

    model: str
    prompt: str | Annotated[list[str], Field(min_length=1)] = ""
    max_tokens: Annotated[int, Field(ge=0)] = 16
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    n: Annotated[int, Field(ge=1, le=16)] = 1
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=0, lt=_MAX_SEED)] | None = None
    echo: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def prompts(self) -> list[str]:
        """All prompts."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def options(self) -> dict[str, Any]:
        """Return the options of the model, without a seed."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return {
            "max_new_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": stop,
        }

    def choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        """Return a choice, or a part of one."""
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}

    def finish_reason(self, result: dict[str, Any]) -> str:
        """Return "stop" for a text that ended before `max_tokens`."""
        return "length" if count_tokens([result])[1] >= self.max_tokens else "stop"


def build_router(service: Service, settings: ServerSettings) -> APIRouter:
    """Return the route /v1/completions."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/completions", responses=describe_errors(CompletionError))
    async def complete(request: CompletionRequest) -> Response:
        """Continue a prompt with a language model."""
        _check_request(service, settings, request)
        if request.stream:
            return await _stream(service, request)
        return JSONResponse(await _complete(service, request))

    return router


def limit_schema(schema: dict[str, Any], settings: ServerSettings) -> None:
    """Add the limits of a server to the JSON schema of a request."""
    fields = schema["properties"]
    text, texts = fields["prompt"]["anyOf"]
    text["maxLength"] = settings.max_characters
    texts |= {"items": text, "maxItems": settings.max_inputs}
    fields["max_tokens"]["maximum"] = settings.max_new_tokens


def _check_request(service: Service, settings: ServerSettings, request: CompletionRequest) -> None:
    """Raise ProblemError for what no model here does."""
    for name, values in _NEUTRAL.items():
        value = (request.model_extra or {}).get(name)
        if value not in values or isinstance(value, bool):
            raise ProblemError(422, "is not supported", "leave it out", field=name)
    if len(request.prompts) * request.n > settings.max_inputs:
        message = f"a request has at most {format_count(settings.max_inputs, 'choice')}"
        raise ProblemError(422, message, "send several requests", field="prompt")
    if request.max_tokens > settings.max_new_tokens:
        message = f"is at most {settings.max_new_tokens} on this server"
        raise ProblemError(422, message, "lower it", field="max_tokens")
    if any(len(prompt) > settings.max_characters for prompt in request.prompts):
        message = f"a prompt has at most {format_count(settings.max_characters, 'character')}"
        raise ProblemError(422, message, "send its end", field="prompt")
    if request.stream and len(request.prompts) * request.n > 1:
        raise ProblemError(422, "only one choice can be streamed", "send one prompt", field="n")
    choose_model(service, _ROUTE, request.model)


async def _complete(service: Service, request: CompletionRequest) -> dict[str, Any]:
    """Sample all choices; seeds are no options, so that requests with other seeds share batches."""
    first = _first_seed(request)
    prompts = [prompt for prompt in request.prompts for _ in range(request.n)]
    seeds = [(first + index) % _MAX_SEED for index in range(len(prompts))]
    answers = await service.predict(request.model, prompts, request.options(), seeds=seeds)
    results = [dict(_check_result(answer)) for answer in answers]
    choices = [
        request.choice(
            index,
            result["text"] if request.echo else result["text"][len(prompt) :],
            request.finish_reason(result),
        )
        for index, (prompt, result) in enumerate(zip(prompts, results, strict=True))
    ]
    return _envelope(request) | {"choices": choices, "usage": _usage(results, request.n)}


async def _stream(service: Service, request: CompletionRequest) -> Response:
    """Return server-sent events; an error before the first is an answer of its own."""
    (prompt,) = request.prompts
    options = request.options() | {"seed": _first_seed(request)}
    parts = service.stream(request.model, prompt, options)
    first = await anext(aiter(parts))
    events = _events(request, prompt, first, parts)
    return StreamingResponse(events, media_type="text/event-stream")


async def _events(
    request: CompletionRequest, prompt: str, first: StreamPart, parts: AsyncIterator[StreamPart]
) -> AsyncIterator[str]:
    envelope = _envelope(request)
    num_hidden = 0 if request.echo else len(prompt)  # characters: a stream begins with the prompt
    try:
        async with aclosing(parts):  # type: ignore[type-var]
            async for part in _chain(first, parts):
                text, num_hidden = part.text[num_hidden:], max(0, num_hidden - len(part.text))
                if text:
                    yield _event(envelope | {"choices": [request.choice(0, text, None)]})
                if part.result is not None:
                    result = dict(part.result)
                    last = request.choice(0, "", request.finish_reason(result))
                    yield _event(envelope | {"choices": [last]})
                    if request.stream_options and request.stream_options.include_usage:
                        yield _event(envelope | {"choices": [], "usage": _usage([result], 1)})
                    yield "data: [DONE]\n\n"
    except ProblemError as problem:
        yield _event(problem.to_body(COMPLETIONS_PATH))


async def _chain(first: StreamPart, parts: AsyncIterator[StreamPart]) -> AsyncIterator[StreamPart]:
    yield first
    async for part in parts:
        yield part


def _check_result(result: Any) -> Any:
    if isinstance(result, ItemError):
        raise to_problem(result, "prompt")
    return result


def _first_seed(request: CompletionRequest) -> int:
    return randrange(_MAX_SEED) if request.seed is None else request.seed


def count_tokens(results: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return the number of tokens of prompts and of their continuations."""
    prompts = sum(result["num_prompt_tokens"] for result in results)
    return prompts, sum(len(result["tokens"]) for result in results) - prompts


def _usage(results: Sequence[dict[str, Any]], num_choices: int) -> dict[str, int]:
    """Return the counts of tokens; a prompt counts once for all its choices."""
    num_prompt_tokens, num_new = count_tokens(results)[0] // num_choices, count_tokens(results)[1]
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_new,
        "total_tokens": num_prompt_tokens + num_new,
    }


def _envelope(request: CompletionRequest) -> dict[str, Any]:
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": request.model,
    }


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
