"""Errors that clients get, in the shape that those of each route expect.

That is `Problem` (RFC 9457), except in the routes of LibreTranslate and OpenAI. No path or address
is in them.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from heedful.errors import shorten
from heedful.serving.protocol import ItemError

MAX_TEXT = 250
"""Characters of a message, so that no answer repeats a request."""
LIBRETRANSLATE_PATHS = ("/translate", "/detect", "/languages")
COMPLETIONS_PATH = "/v1/completions"
_PROBLEM_TYPE = "application/problem+json"
_STATUSES = {
    400: "no JSON",
    401: "no token",
    403: "not from there",
    404: "no such model",
    408: "the body did not come in time",
    413: "too long",
    415: "not JSON",
    422: "not valid",
    429: "too busy; see Retry-After",
    500: "an input failed",
    503: "not ready; see Retry-After",
    504: "not in time",
}


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    field: str | None = None


class LibreTranslateError(BaseModel):
    """An error as clients of LibreTranslate expect it."""

    error: str


class CompletionError(BaseModel):
    """An error as clients of OpenAI expect it."""

    error: dict[str, str | None]
    """Message, type, param and code."""


class ProblemError(Exception):
    """An error that a client gets: the status of HTTP, what is wrong and what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        hint: str = "",
        *,
        field: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint
        self.field, self.retry_after = field, retry_after

    def to_json(self) -> dict[str, Any]:
        """Return the fields of `Problem`."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.message,
        }
        return body | {
            key: value for key, value in (("hint", self.hint), ("field", self.field)) if value
        }

    def to_body(self, path: str) -> dict[str, Any]:
        """Return the body of an answer to a request of this path."""
        message = f"{self.message}; {self.hint}" if self.hint else self.message
        if path in LIBRETRANSLATE_PATHS:
            return {"error": f"{self.field}: {message}" if self.field else message}
        if path == COMPLETIONS_PATH:
            kind = "invalid_request_error" if self.status < 429 else "server_error"
            code = {404: "model_not_found", 429: "rate_limit_exceeded"}.get(self.status)
            param = "prompt" if self.field == "inputs.0" else self.field.partition(".")[0] or None
            error = {"message": message, "type": kind, "param": param, "code": code}
            return {"error": error}
        return self.to_json()

    def to_headers(self, path: str) -> dict[str, str]:
        """Return the headers of an answer to a request of this path."""
        is_problem = path not in (*LIBRETRANSLATE_PATHS, COMPLETIONS_PATH)
        headers = {"content-type": _PROBLEM_TYPE if is_problem else "application/json"}
        if self.retry_after is not None:
            # Whole seconds; 1 for up to 1.7 s, so that it is neither half of the wait nor twice it.
            headers["retry-after"] = str(max(1, round(self.retry_after - 0.2)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def shutting_down() -> ProblemError:
    """Return the error of requests that a server has no time left for."""
    return ProblemError(503, "the server is shutting down", "try again", retry_after=5.0)


def describe_errors(schema: type[BaseModel] = Problem) -> dict[int | str, dict[str, Any]]:
    """Return errors that any route may answer with, for its `responses`."""
    kind = _PROBLEM_TYPE if schema is Problem else "application/json"
    return {
        status: {"description": text, "content": {kind: {"schema": schema.model_json_schema()}}}
        for status, text in _STATUSES.items()
    }


def invalid_value(error: Mapping[str, Any]) -> ProblemError:
    """Return an error of pydantic as that of a request."""
    is_type = re.compile(r"str|constrained-str|list\[.*\]").fullmatch  # of a union, in pydantic
    names = [str(part) for part in error["loc"] if part != "body" and not is_type(str(part))]
    field = shorten(".".join(names) or "body", MAX_TEXT)
    return ProblemError(422, shorten(error["msg"], MAX_TEXT), field=field)


def to_problem(error: ItemError, location: str = "inputs.0") -> ProblemError:
    """Return the error of an item, which is at `location`, as that of its request."""
    field_name = location if error.field == "input" else error.field
    message, hint = shorten(error.message, MAX_TEXT), shorten(error.hint, MAX_TEXT)
    return ProblemError(error.status, message, hint, field=shorten(field_name, MAX_TEXT))
