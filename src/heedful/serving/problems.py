"""Errors of the HTTP interface as problem details (RFC 9457); no path or address is in them."""

from http import HTTPStatus
from typing import Any

from heedful.errors import shorten
from heedful.serving.protocol import ItemError

MAX_TEXT = 250
"""Characters of a message, so that no answer repeats a request."""


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
        """Return the body: type, title, status, detail, and hint and field where there are any."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.message,
        }
        return body | {
            key: value for key, value in (("hint", self.hint), ("field", self.field)) if value
        }


def to_problem(error: ItemError, location: str = "input") -> ProblemError:
    """Return the error of an item, which is at `location`, as that of its request."""
    field_name = location if error.field == "input" else error.field
    message, hint = shorten(error.message, MAX_TEXT), shorten(error.hint, MAX_TEXT)
    return ProblemError(error.status, message, hint, field=shorten(field_name, MAX_TEXT))
