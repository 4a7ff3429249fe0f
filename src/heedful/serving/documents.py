"""/v1/documents: translation of whole documents, text with its lines or HTML with its tags."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from heedful.errors import format_count
from heedful.serving.limits import check_options
from heedful.serving.problems import ProblemError, describe_errors, to_problem
from heedful.serving.protocol import ItemError, Result
from heedful.serving.service import Service, choose_model
from heedful.serving.settings import ServerSettings
from heedful.tasks.translation.documents import DocumentFormat, split_document


class DocumentsRequest(BaseModel):
    """Documents whose sentences are translated; all else is kept."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    documents: Annotated[list[str], Field(min_length=1)]
    format: DocumentFormat = "document"
    """Text, or HTML, whose tags are kept."""
    model: str | None = None
    """Name of a translator; by default the first."""
    options: dict[str, Any] = {}
    """As `options` of the model describes."""


class DocumentsResponse(BaseModel):
    """A translation of each document, in order."""

    model: str
    documents: list[str]


def build_router(service: Service, settings: ServerSettings) -> APIRouter:
    """Return the route /v1/documents."""
    router = APIRouter(prefix="/v1", tags=["tasks"])

    @router.post("/documents", response_model=DocumentsResponse, responses=describe_errors())
    async def translate(request: DocumentsRequest) -> DocumentsResponse:
        """Translate documents sentence by sentence."""
        model = choose_model(service, "translate", request.model)
        if len(request.documents) > settings.max_inputs:
            message = f"a request has at most {format_count(settings.max_inputs, 'document')}"
            raise ProblemError(422, message, "send several requests", field="documents")
        check_options(settings, model, request.options)
        outputs = await translate_documents(
            service,
            model.name,
            request.documents,
            request.format,
            request.options,
            max_characters=settings.max_characters,
        )
        return DocumentsResponse(model=model.name, documents=[output[0] for output in outputs])

    return router


async def translate_documents(
    service: Service,
    model: str,
    texts: Sequence[str],
    document_format: DocumentFormat,
    options: Mapping[str, Any] | None = None,
    *,
    max_characters: int,
    num_alternatives: int = 0,
    field: str = "documents",
) -> list[list[str]]:
    """Return the translation of each document, and alternatives of it; raises ProblemError.

    An alternative has the next best translation of each sentence, or its best if there is none.
    Attention is computed only for sentences with tags, which it places. Errors name `field`.
    """
    options = dict(options or {})
    if num_alternatives:
        options["n_best"] = num_alternatives + 1
    documents = await asyncio.to_thread(
        lambda: [split_document(text, document_format) for text in texts]
    )
    sentences = [sentence for document in documents for sentence in document.sentences]
    if any(len(sentence.text) > max_characters for sentence in sentences):
        message = f"a sentence has at most {format_count(max_characters, 'character')}"
        hint = "end sentences with a full stop or a line break"
        raise ProblemError(422, message, hint, field=field)
    if not sentences and options:  # nothing else would check them
        _check_results(await service.predict(model, [""], options), field)

    async def predict(*, has_tags: bool) -> list[Mapping[str, Any]]:
        inputs = [sentence.text for sentence in sentences if bool(sentence.tags) is has_tags]
        if not inputs:
            return []
        text_only = not has_tags and not num_alternatives
        results = await service.predict(
            model, inputs, options, need_layers=has_tags, text_only=text_only
        )
        return _check_results(results, field)

    with_tags, without_tags = map(
        iter, await asyncio.gather(predict(has_tags=True), predict(has_tags=False))
    )
    results = [next(with_tags if sentence.tags else without_tags) for sentence in sentences]

    def join() -> list[list[str]]:
        ranked = [
            iter([_alternative(result, rank) for result in results])
            for rank in range(num_alternatives + 1)
        ]
        return [
            list(dict.fromkeys(document.join(outputs) for outputs in ranked))
            for document in documents
        ]

    return await asyncio.to_thread(join)


def _check_results(results: Sequence[Result], field: str) -> list[Mapping[str, Any]]:
    """Return results; raise ProblemError if one is an error."""
    for result in results:
        if isinstance(result, ItemError):
            raise to_problem(result, field)
    return [result for result in results if not isinstance(result, ItemError)]


def _alternative(result: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    """Return a result with the text and weights of its alternative, if it has it; 0: the best."""
    alternatives = result.get("alternatives", ())
    return {**result, **alternatives[rank - 1]} if 0 < rank <= len(alternatives) else result
