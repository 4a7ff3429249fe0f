"""Documents: the sentences of a text or of HTML, and the document with their translations.

Tags within a sentence follow their words to where attention says that these were translated.
Invariants: sentences that are put back as they are give the same document; every tag of HTML occurs
as often as before, and elements are nested as before; a tag within a word moves to its edge.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.tasks.translation.jobs import RequestChunk, TranslationJob
from heedful.tasks.translation.sentences import (
    PIECE,
    InlineTag,
    Sentence,
    escape,
    sentence_spans,
    split_html,
)
from heedful.terminal import echo

DocumentFormat = Literal["document", "html"]


class Document(NamedTuple):
    """The sentences of a document, and the text and tags between them."""

    parts: Sequence[str | Sentence]
    is_html: bool

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences to translate, in order."""
        return [part for part in self.parts if isinstance(part, Sentence)]

    def join(self, translations: Iterable[Mapping[str, Any]]) -> str:
        """Return the document with translations, as `Translation.to_json` writes them.

        Their attention weights are needed only where a sentence has tags, and without them tags
        are where they were in proportion.
        """
        results = iter(translations)
        return "".join(
            part if isinstance(part, str) else self._render(part, next(results))
            for part in self.parts
        )

    def _render(self, sentence: Sentence, translation: Mapping[str, Any]) -> str:
        if sentence.tags:
            return _insert_tags(sentence, translation)
        return escape(translation["text"]) if self.is_html else translation["text"]


def split_document(text: str, document_format: DocumentFormat) -> Document:
    """Find the sentences of a text or of HTML."""
    if document_format == "html":
        return Document(list(split_html(text)), is_html=True)
    parts: list[str | Sentence] = []
    position = 0
    for start, end in sentence_spans(text):
        parts += [text[position:start], Sentence(text[start:end])]
        position = end
    return Document([*parts, text[position:]], is_html=False)


# ----- tags in translations


class _Piece(NamedTuple):
    """A word without the punctuation around it, or that punctuation."""

    text: str
    word: int
    is_first: bool  # of its word

    @property
    def is_punctuation(self) -> bool:
        return not any(map(str.isalnum, self.text))


def _pieces(text: str) -> list[_Piece]:
    return [
        _Piece(match.group(), index, match.start() == 0)
        for index, word in enumerate(text.split())
        for match in PIECE.finditer(word)
    ]


def _insert_tags(sentence: Sentence, translation: Mapping[str, Any]) -> str:
    """Return a translation with the tags of its source, as HTML.

    An element contains the longest run of words that its words were translated to.
    """
    source, target = _pieces(sentence.text), _pieces(translation["text"])
    aligned = _align_pieces(source, target, translation)
    tags = sentence.tags
    spans: dict[int, tuple[int, int]] = {-1: (0, len(target))}
    for index, tag in enumerate(tags):
        if tag.parent in spans:
            low, high = spans[tag.parent]
            run = _largest_run([tag.first <= aligned[i] < tag.last for i in range(low, high)])
            if run:
                spans[index] = (low + run[0], low + run[1])
    siblings: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for index in range(len(tags)):
        if index in spans:
            siblings[tags[index].parent].append(spans[index])
    for index, (_, _, first, _, parent) in enumerate(tags):
        if index not in spans:
            position = _position_before(first, aligned, spans[parent], siblings[parent])
            spans[index] = (position, position)
    return _render_tags(tags, spans, target)


def _align_pieces(
    source: Sequence[_Piece], target: Sequence[_Piece], translation: Mapping[str, Any]
) -> list[int]:
    """Return the index of the source piece that each target piece translates."""
    num_source, num_target = (pieces[-1].word + 1 if pieces else 0 for pieces in (source, target))
    words = _align_words(translation, num_source, num_target)
    aligned = []
    for piece in target:
        indices = [index for index, other in enumerate(source) if other.word == words[piece.word]]
        same = [i for i in indices if source[i].is_punctuation == piece.is_punctuation]
        aligned.append((same or indices)[-1 if piece.is_punctuation else 0])
    return aligned


def _align_words(translation: Mapping[str, Any], num_source: int, num_target: int) -> list[int]:
    """Return the source word with most attention for each target word.

    Words without attention have the source word at the same place in proportion.
    """
    totals = [[0.0] * num_source for _ in range(num_target)]
    rows = zip(translation.get("word_ids", ()), translation.get("weights", ()), strict=False)
    for word, row in rows:
        for source_word, weight in zip(translation["source_word_ids"], row, strict=True):
            if 0 <= word < num_target and 0 <= source_word < num_source:
                totals[word][source_word] += weight
    return [
        total.index(max(total)) if any(total) else word * num_source // num_target
        for word, total in enumerate(totals)
    ]


def _largest_run(flags: Sequence[bool]) -> tuple[int, int] | None:
    """Return start and end of the longest run of True, the first of equal ones."""
    borders = [-1, *(index for index, flag in enumerate(flags) if not flag), len(flags)]
    start, end = max(pairwise(borders), key=lambda run: run[1] - run[0])
    return (start + 1, end) if end - start > 1 else None


def _position_before(
    first: int, aligned: Sequence[int], parent: tuple[int, int], siblings: Iterable[tuple[int, int]]
) -> int:
    """Return where a tag by itself is: before the translation of the word that follows it."""
    after = [index for index in range(*parent) if aligned[index] >= first]
    position = min(after, key=lambda index: (aligned[index], index), default=parent[1])
    for low, high in siblings:
        if low < position < high:
            return low
    return position


def _render_tags(
    tags: Sequence[InlineTag], spans: Mapping[int, tuple[int, int]], pieces: Sequence[_Piece]
) -> str:
    """Write pieces and tags; a space comes after closing tags and before opening ones."""
    parts: list[str] = []
    children: defaultdict[int, list[int]] = defaultdict(list)
    for index, tag in enumerate(tags):
        children[tag.parent].append(index)
    space_index = 0  # where a space belongs that the next piece starts with

    def write_pieces(start: int, end: int) -> None:
        nonlocal space_index
        for index in range(start, end):
            if index and pieces[index].is_first:
                parts.insert(space_index, " ")
            parts.append(escape(pieces[index].text))
            space_index = len(parts)

    def write(parent: int) -> None:
        nonlocal space_index
        position, end = spans[parent]
        for index in sorted(children[parent], key=lambda child: (*spans[child], child)):
            write_pieces(position, spans[index][0])
            parts.append(tags[index].opening)
            write(index)
            parts.append(tags[index].closing)
            if spans[index][0] < spans[index][1]:
                space_index = len(parts)
            position = spans[index][1]
        write_pieces(position, end)

    write(-1)
    return "".join(parts)


def translate_document(
    job: TranslationJob,
    file: str,
    encoding: str | None,
    document_format: DocumentFormat,
    output: Path | None,
) -> None:
    """Translate the sentences of a file; sentences with tags need attention."""
    from heedful.data.text_files import UTF_8, check_encoding, check_file_of_lines, read_lines
    from heedful.decoding.requests import Request
    from heedful.storage.json_files import MAX_BYTES
    from heedful.tasks.translation.files import open_outputs

    check_file_of_lines(file)
    lines = read_lines(file, MAX_BYTES, check_encoding(encoding or UTF_8))
    document = split_document("".join(f"{line}\n" for line in lines), document_format)
    sentences = document.sentences
    output_type = "attention" if any(sentence.tags for sentence in sentences) else "text"
    run = replace(job, output_types=(output_type,)).setup(is_shared=False)
    block = run(RequestChunk(1, [Request(sentence.text) for sentence in sentences]))
    results = [
        json.loads(line) if output_type == "attention" else {"text": line}
        for line in block.parts[0].removesuffix("\n").split("\n")
    ]
    with open_outputs([], output=output) as write:
        write([document.join(results)])
    for report in block.reports:
        echo(f"warning: {report}", err=True)
