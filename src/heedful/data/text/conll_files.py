"""CoNLL files: a word per line, with its tags in columns; blank lines between sentences.

Columns are separated by tabs, or by spaces if there are no tabs. In CoNLL-U they have names, and
multiword tokens (1-2) and empty nodes (8.1) are no words. Invariant: a sentence with its own tags
has the lines that were read, comments and lines that are no words included.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from pydantic import PositiveInt
from typing_extensions import override

from heedful.data.sources import COLUMN_OPTIONS, Encoding, FileSourceConfig
from heedful.data.text.pair_dataset import Pair
from heedful.data.text_files import UTF_8, display_name, nonempty_lines
from heedful.errors import DataError, check, did_you_mean, quote_names
from heedful.tokenization.special_texts import join_spaces

CONLL_U_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
ColumnChoice = int | str | None
"""Number of a column, counted from 1, or its name; None for the usual one."""
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=(.*)")  # of CoNLL-U Plus
_NO_WORD_ID = re.compile(r"\d+[-.]\d+")
_DOCUMENT_START = "-DOCSTART-"  # of CoNLL-2003


class ConllSentence(NamedTuple):
    """The lines of a sentence, and its words and tags."""

    lines: Sequence[str]
    word_lines: Sequence[int]  # which of them are words
    words: Sequence[str]
    tags: Sequence[str]  # empty if the file has no column for them
    layout: "ConllLayout | None"  # None if there are only comments so far

    def with_tags(self, tags: Sequence[str]) -> list[str]:
        """Return the lines with other tags; in a new last column if there is none for them."""
        lines = list(self.lines)
        for index, tag in zip(self.word_lines, tags, strict=True):
            assert self.layout is not None
            lines[index] = self.layout.replace_tag(lines[index], tag)
        return lines


class ConllLayout(NamedTuple):
    """The columns of a file."""

    separator: str | None  # None: any number of spaces
    num_columns: int
    names: Sequence[str]  # in lower case; empty if columns have none
    word_column: int  # counted from 0
    tag_column: int | None  # None: there is none yet
    line_number: int  # whose columns these are

    def is_word(self, line: str) -> bool:
        """Whether a line is a word, not a comment, part of a word or the start of a document."""
        columns = line.split(self.separator)
        if "id" in self.names:
            position = columns[self.names.index("id")] if len(columns) == self.num_columns else ""
            return not (line.startswith("#") or _NO_WORD_ID.fullmatch(position))
        is_comment = line.startswith("#") and len(columns) != self.num_columns
        return not (is_comment or columns[0] == _DOCUMENT_START)

    def replace_tag(self, line: str, tag: str) -> str:
        """Return a line with another tag."""
        if self.tag_column is None:
            return f"{line}{self.separator or ' '}{tag}"
        if self.separator:
            columns = line.split(self.separator)
            return self.separator.join(
                [*columns[: self.tag_column], tag, *columns[self.tag_column + 1 :]]
            )
        start, end = list(re.finditer(r"\S+", line))[self.tag_column].span()
        return line[:start] + tag + line[end:]


def read_conll(
    path: str,
    *,
    word_column: ColumnChoice = None,
    tag_column: ColumnChoice = None,
    allow_words_alone: bool = False,
    encoding: str = UTF_8,
) -> Iterator[ConllSentence]:
    """Yield the sentences of a file; also those without words, which consist of comments.

    By default words and tags are the columns FORM and UPOS of CoNLL-U, else the first and the last.
    With `allow_words_alone`, a file of one column has words and no tags, whatever is chosen.
    """
    layout: ConllLayout | None = None
    names: Sequence[str] = ()
    numbered = enumerate(nonempty_lines(path, encoding=encoding), start=1)
    for is_blank, group in groupby(numbered, key=lambda item: not item[1].strip()):
        if is_blank:
            continue
        block = list(group)
        for _, line in block:
            if match := _GLOBAL_COLUMNS.fullmatch(line):
                names = match[1].lower().split()
        if layout is None and (first := _first_row(block)):
            chosen = word_column, tag_column
            if allow_words_alone and len(first[1].split()) == 1:
                chosen = None, None
            layout = _make_layout(path, first, names, *chosen)
        yield _parse_sentence(path, block, layout)


_NumberedLine = tuple[int, str]


def _first_row(block: Sequence[_NumberedLine]) -> _NumberedLine | None:
    """Return the first line that has columns; also a line such as "#tag<tab>O"."""
    rows = (item for item in block if not item[1].startswith("#") or "\t" in item[1])
    return next((item for item in rows if not item[1].startswith(_DOCUMENT_START)), None)


def _make_layout(
    path: str,
    first: _NumberedLine,
    names: Sequence[str],
    word_column: ColumnChoice,
    tag_column: ColumnChoice,
) -> ConllLayout:
    line_number, line = first
    separator = "\t" if "\t" in line else None
    count = len(line.split(separator))
    names = names or (CONLL_U_COLUMNS if count == len(CONLL_U_COLUMNS) else ())
    location = f"{display_name(path)}:{line_number}"

    def find(column: ColumnChoice, usual: str, default: int) -> int:
        if column is None:
            return names.index(usual) if usual in names else default
        if isinstance(column, str):
            known = quote_names(names) if names else f"{count} without names: give a number"
            message = f"no column is called {column!r}{did_you_mean(column.lower(), names)}"
            hint = f"give {COLUMN_OPTIONS}; columns found: {known}"
            check(column.lower() in names, location, message, hint, DataError)
            return names.index(column.lower())
        message = f"{count} column{'s' if count != 1 else ''}, but column {column} is needed"
        hint = f"give {COLUMN_OPTIONS}, or look for lost tabs"
        check(column <= count, location, message, hint, DataError)
        return column - 1

    has_tags = count > 1 or tag_column is not None
    tag_index = find(tag_column, "upos", count - 1) if has_tags else None
    return ConllLayout(
        separator, count, names, find(word_column, "form", 0), tag_index, line_number
    )


def _parse_sentence(
    path: str, block: Sequence[_NumberedLine], layout: ConllLayout | None
) -> ConllSentence:
    lines = [line for _, line in block]
    if layout is None:
        return ConllSentence(lines, [], [], [], None)
    word_lines = [index for index, line in enumerate(lines) if layout.is_word(line)]
    words, tags = [], []
    for index in word_lines:
        location = f"{display_name(path)}:{block[index][0]}"
        columns = lines[index].split(layout.separator)
        count = f"{len(columns)} column{'s' if len(columns) != 1 else ''}"
        message = f"{count}, but line {layout.line_number} has {layout.num_columns}"
        hint = "look for lost or added tabs, or for white space in a word"
        check(len(columns) == layout.num_columns, location, message, hint, DataError)
        words.append(_read_cell(columns[layout.word_column], "word", location))
        if layout.tag_column is not None:
            tags.append(_read_cell(columns[layout.tag_column], "tag", location))
            message, hint = f"the tag {tags[-1]!r} contains a space", "replace it, such as by _"
            check(" " not in tags[-1], location, message, hint, DataError)
    return ConllSentence(lines, word_lines, words, tags, layout)


def _read_cell(text: str, name: str, location: str) -> str:
    check(text.strip(), location, f"the {name} is empty", "give one, such as _", DataError)
    return text.strip()


class ConllConfig(FileSourceConfig):
    """A CoNLL file: a word and its tag per line, blank lines between sentences."""

    type: Literal["conll"] = "conll"
    source_column: PositiveInt | str | None = None
    """Column of the words: its number, counted from 1, or its name (of CoNLL-U, or in a comment
    `# global.columns`); default: FORM, else the first."""
    target_column: PositiveInt | str | None = None
    """Column of the tags; default: UPOS, else the last."""
    encoding: Encoding = UTF_8
    """Encoding of the file, such as cp1252 for files of Windows."""

    row_name = "sentence"

    @override
    def stream(self) -> Iterator[Pair]:
        is_empty = True
        sentences = read_conll(
            self.path,
            word_column=self.source_column,
            tag_column=self.target_column,
            encoding=self.encoding,
        )
        for sentence in sentences:
            layout = sentence.layout
            if layout is None or not sentence.words:
                continue
            location = f"{display_name(self.path)}:{layout.line_number}"
            message, hint = "1 column, so there are no tags", "give a file of words and tags"
            check(sentence.tags, location, message, hint, DataError)
            is_empty = False
            yield Pair(join_spaces(sentence.words), " ".join(sentence.tags))
        message, hint = "contains no words", "give a file with a word and its tag per line"
        check(not is_empty, display_name(self.path), message, hint, DataError)

    @override
    def describe(self) -> str:
        columns = [str(column) for column in (self.source_column, self.target_column) if column]
        suffix = f", columns {' and '.join(columns)}" if len(columns) == 2 else ""
        return display_name(self.path) + suffix
