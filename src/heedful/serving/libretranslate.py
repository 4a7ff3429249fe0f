"""The routes of LibreTranslate, so that its clients translate with served runs.

A request is JSON, a form or a query string; errors are {"error": message}. A text is a document:
its sentences are translated one by one, and its lines, or tags with `format: html`, are kept.
"""

import json
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, ValidationError

from heedful.errors import choices_hint, format_count
from heedful.serving.documents import translate_documents
from heedful.serving.problems import (
    LibreTranslateError,
    ProblemError,
    describe_errors,
    invalid_value,
)
from heedful.serving.protocol import ModelInfo
from heedful.serving.security import check_token
from heedful.serving.service import Service
from heedful.serving.settings import ServerSettings
from heedful.storage.json_files import read_json_integers

MAX_ALTERNATIVES = 10
_MAX_FIELDS = 100
_NAMES = (
    "ar Arabic, bg Bulgarian, bn Bengali, ca Catalan, cs Czech, da Danish, de German, el Greek, "
    "en English, eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, "
    "fr French, ga Irish, gl Galician, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, "
    "id Indonesian, is Icelandic, it Italian, ja Japanese, ko Korean, la Latin, lt Lithuanian, "
    "lv Latvian, ms Malay, nl Dutch, no Norwegian, pl Polish, pt Portuguese, ro Romanian, "
    "ru Russian, sk Slovak, sl Slovenian, sq Albanian, sr Serbian, sv Swedish, sw Swahili, "
    "th Thai, tr Turkish, uk Ukrainian, ur Urdu, vi Vietnamese, zh Chinese"
)
LANGUAGE_NAMES = dict(name.split(" ") for name in _NAMES.split(", "))


class LibreTranslateRequest(BaseModel):
    """A request of LibreTranslate; fields that it does not have are ignored."""

    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)] = 0
    api_key: str | None = None


class Language(BaseModel):
    """A source language."""

    code: str
    name: str
    targets: list[str]


def build_router(service: Service, settings: ServerSettings) -> APIRouter:
    """Return the routes /translate, /languages and /detect."""
    router = APIRouter(tags=["LibreTranslate"])
    errors = describe_errors(LibreTranslateError)

    @router.post("/translate", responses=errors)
    async def translate(request: Request) -> Response:
        """Translate a text, or each of several texts."""
        fields = await _read_fields(request)
        _check_access(settings, request, fields)
        is_strict = _is_json(request)  # in a form, all is text
        return JSONResponse(await _translate(service, settings, fields, is_strict=is_strict))

    @router.get("/languages", response_model=list[Language], responses=errors)
    async def languages() -> list[Language]:
        """List the languages that are translated, and into which."""
        targets: dict[str, list[str]] = {}
        for source, target in _models_by_languages(service):
            targets.setdefault(source, []).append(target)
        return [
            Language(code=code, name=LANGUAGE_NAMES.get(code, code), targets=targets[code])
            for code in targets
        ]

    @router.post("/detect", status_code=501, response_model=LibreTranslateError, responses=errors)
    async def detect() -> Response:
        """Say that no language is detected here."""
        hint = "give the source language to /translate"
        raise ProblemError(501, "no language is detected here", hint)

    return router


def describe_body(service: Service, settings: ServerSettings) -> dict[str, Any]:
    """Return the OpenAPI description of a request with a body, for the languages of now."""
    pairs = list(_models_by_languages(service))
    form = LibreTranslateRequest.model_json_schema()
    fields = form["properties"]
    fields["source"]["enum"] = ["auto", *dict.fromkeys(source for source, _ in pairs)]
    fields["target"]["enum"] = list(dict.fromkeys(target for _, target in pairs))
    text, texts = fields["q"]["anyOf"]
    fields["q"], either = text, {"anyOf": [text, texts | {"maxItems": settings.max_inputs}]}
    schema = form | {"properties": fields | {"q": either}}
    kinds = {"application/json": schema, "application/x-www-form-urlencoded": form}
    return {"required": True, "content": {kind: {"schema": kinds[kind]} for kind in kinds}}


async def _read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of the query string and of the body, JSON or a form."""
    values: dict[str, Any] = dict(request.query_params)
    body = await request.body()
    if not body:
        return values
    try:
        if _is_json(request):
            fields = read_json_integers(json.loads(body))
        else:
            pairs = parse_qsl(body.decode(), True, errors="strict", max_num_fields=_MAX_FIELDS)
            fields = dict(pairs)
    except ValueError:
        raise ProblemError(400, "the body is neither JSON nor a form") from None
    if not isinstance(fields, dict):
        raise ProblemError(400, "the body must be an object")
    return values | fields


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith("application/json")


def _check_access(settings: ServerSettings, request: Request, values: dict[str, Any]) -> None:
    """Raise ProblemError unless a token came in the header, which is checked by now, or here."""
    api_key = values.get("api_key")
    if "authorization" not in request.headers:
        check_token(settings, api_key if isinstance(api_key, str) else None)


async def _translate(
    service: Service, settings: ServerSettings, fields: dict[str, Any], *, is_strict: bool
) -> dict[str, Any]:
    try:
        request = LibreTranslateRequest.model_validate(fields, strict=is_strict)
    except ValidationError as error:
        raise invalid_value(error.errors()[0]) from None
    model = _choose_model(service, request.source, request.target)
    assert model.languages is not None
    is_list = isinstance(request.q, list)
    texts = request.q if isinstance(request.q, list) else [request.q]
    if len(texts) > settings.max_inputs:
        raise ProblemError(
            422,
            f"a request has at most {format_count(settings.max_inputs, 'text')}",
            field="q",
        )
    outputs = await translate_documents(
        service,
        model.name,
        texts,
        "html" if request.format == "html" else "document",
        max_characters=settings.max_characters,
        num_alternatives=request.alternatives,
        field="q",
    )
    bests, others = [output[0] for output in outputs], [output[1:] for output in outputs]
    answer: dict[str, Any] = {"translatedText": bests if is_list else bests[0]}
    if request.alternatives:
        answer["alternatives"] = others if is_list else others[0]
    if request.source == "auto":  # nothing was detected: it is the only one
        answer["detectedLanguage"] = {"language": model.languages[0], "confidence": 0.0}
    return answer


def _models_by_languages(service: Service) -> dict[tuple[str, str], ModelInfo]:
    """Return the models that have languages; the first of equal ones translates."""
    models: dict[tuple[str, str], ModelInfo] = {}
    for model in service.models.values():
        if model.languages and model.route == "translate":
            models.setdefault(model.languages, model)
    return models


def _choose_model(service: Service, source: str, target: str) -> ModelInfo:
    models = _models_by_languages(service)
    fitting = [pair for pair in models if pair[1] == target and source in (pair[0], "auto")]
    if len(fitting) == 1:
        return models[fitting[0]]
    if not service.models:
        raise ProblemError(503, "no worker is ready", "try again", retry_after=1.0)
    if fitting:
        hint = choices_hint(pair[0] for pair in fitting)
        raise ProblemError(422, "auto needs a single source language", hint, field="source")
    pairs = choices_hint("-".join(pair) for pair in models)
    hint = pairs if models else "start the server with --languages such as de-en"
    raise ProblemError(
        422, "no model translates between these languages", hint, field="source, target"
    )
