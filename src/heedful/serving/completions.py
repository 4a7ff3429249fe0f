"""/v1/completions as OpenAI shapes it, for language models.

Errors are {"error": {"message", "type", "param", "code"}}. Without a seed every request is sampled
anew; with one, choice i of prompt k is that of `heedful generate --seed` seed + k * n + i.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from random import randrange
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from heedful.errors import format_count
from heedful.serving.problems import ProblemError
from heedful.serving.protocol import ItemError, StreamPart
from heedful.serving.security import problem_headers
from heedful.serving.service import Service, choose_model
from heedful.serving.settings import ServerSettings

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

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """A prompt, or prompts, to continue."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    model: str
    prompt: str | Annotated[list[str], Field(min_length=1)] = ""
    max_tokens: Annotated[int, Field(ge=0, le=8192)] = 16
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

    def options(self, seed: int) -> dict[str, Any]:
        """Return the options of the model."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return {
            "max_new_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": seed,
            "stop": stop,
        }

    def choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        """Return a choice, or a part of one."""
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}

    def finish_reason(self, result: dict[str, Any]) -> str:
        """Return "stop" for a text that ended before `max_tokens`."""
        return "length" if count_tokens([result])[1] >= self.max_tokens else "stop"


class CompletionError(BaseModel):
    """An error as clients of OpenAI read it."""

    error: dict[str, Any]


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": CompletionError} for status in (400, 404, 422, 429, 500, 503, 504)
}


def build_router(service: Service, settings: ServerSettings) -> APIRouter:
    """Return the route /v1/completions."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/completions", responses=_ERRORS)
    async def complete(request: CompletionRequest) -> Response:
        """Continue a prompt with a language model."""
        try:
            _check_request(service, settings, request)
            if request.stream:
                return await _stream(service, request)
            return JSONResponse(await _complete(service, request))
        except ProblemError as problem:
            headers = problem_headers(problem) | {"content-type": "application/json"}
            return JSONResponse(_error(problem), problem.status, headers)

    return router


def _check_request(service: Service, settings: ServerSettings, request: CompletionRequest) -> None:
    """Raise ProblemError for what no model here does."""
    for name, values in _NEUTRAL.items():
        if (request.model_extra or {}).get(name) not in values:
            raise ProblemError(422, "is not supported", "leave it out", field=name)
    if len(request.prompts) * request.n > settings.max_inputs:
        message = f"a request has at most {format_count(settings.max_inputs, 'choice')}"
        raise ProblemError(422, message, "send several requests", field="prompt")
    if any(len(prompt) > settings.max_characters for prompt in request.prompts):
        message = f"a prompt has at most {format_count(settings.max_characters, 'character')}"
        raise ProblemError(422, message, "send its end", field="prompt")
    if request.stream and len(request.prompts) * request.n > 1:
        raise ProblemError(422, "only one choice can be streamed", "send one prompt", field="n")
    choose_model(service, _ROUTE, request.model)


async def _complete(service: Service, request: CompletionRequest) -> dict[str, Any]:
    """Sample all choices; each has a seed of its own."""
    seed = _first_seed(request)
    prompts = [prompt for prompt in request.prompts for _ in range(request.n)]
    answers = await asyncio.gather(
        *(
            service.predict(request.model, [prompt], request.options((seed + index) % _MAX_SEED))
            for index, prompt in enumerate(prompts)
        )
    )
    results = [dict(_check_result(result)) for (result,) in answers]
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
    parts = service.stream(request.model, prompt, request.options(_first_seed(request)))
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
        yield _event(_error(problem))


async def _chain(first: StreamPart, parts: AsyncIterator[StreamPart]) -> AsyncIterator[StreamPart]:
    yield first
    async for part in parts:
        yield part


def _check_result(result: Any) -> Any:
    if isinstance(result, ItemError):
        raise ProblemError(result.status, result.message, result.hint, field=result.field)
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


def _error(problem: ProblemError) -> dict[str, Any]:
    message = f"{problem.message}; {problem.hint}" if problem.hint else problem.message
    kind = "invalid_request_error" if problem.status < 429 else "server_error"
    code = {404: "model_not_found", 429: "rate_limit_exceeded"}.get(problem.status)
    error = {"message": message, "type": kind, "param": problem.field or None, "code": code}
    return {"error": error}
