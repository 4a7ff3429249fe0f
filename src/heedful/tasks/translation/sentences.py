"""Sentences of a text or of HTML, and the tags within them.

A sentence ends at a line break, and after . ! ? and their like where whitespace and no small letter
follow; a single letter, a number of one or two digits and the abbreviations below do not end one.
Chinese and Japanese full stops need no whitespace. Between the tags of blocks, HTML is cut as any
text; elements that are not translated, such as code, and elements with translate="no" or the class
notranslate, are tags of a sentence. Invariant: the time is linear, whatever the text is.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

_ABBREVIATIONS = """abb abs bd bspw bzw ca chr co corp dept dr ed eds etc evtl fa fig fr geb ggf hr
inc jr ltd max mgr min mio mlle mme mr mrd mrs ms no nr op pp prof rev sen sgt sog sr sra st str tel
usw vgl vol vs zzgl"""
ABBREVIATIONS = tuple(_ABBREVIATIONS.split())
CLOSING, _OPENING = ")]}\"'\u00bb\u201d\u2019\u203a", "([{\"'\u00ab\u201c\u201e\u2018\u2039"
FULL_WIDTH_STOPS, FULL_WIDTH_CLOSING = "\u3002\uff01\uff1f", "\u300d\u300f\uff09"
_WORD = re.compile(
    rf"[^\s{FULL_WIDTH_STOPS}]*[{FULL_WIDTH_STOPS}]+[{FULL_WIDTH_CLOSING}\u201d\u2019]*|\S+"
)
PIECE = re.compile(r"\w+(?:[^\w\s]+\w+)*|[^\w\s]+")  # a word, or the punctuation around it


class InlineTag(NamedTuple):
    """An element within a sentence, or a tag by itself, whose `closing` is empty."""

    opening: str
    closing: str
    first: int
    """Index of the first piece of the sentence, a word or punctuation, that it contains."""
    last: int
    """Index after its last piece; that of a tag by itself is `first`."""
    parent: int
    """Index of the tag that contains it; -1 without one."""


class Sentence(NamedTuple):
    """A sentence to translate."""

    text: str
    tags: Sequence[InlineTag] = ()


def sentence_spans(text: str, *, has_lines: bool = True) -> list[tuple[int, int]]:
    """Return start and end of each sentence that has a letter or digit; has_lines: lines end one"""
    words = [match.span() for match in _WORD.finditer(text)]
    spans, start = [], 0
    for index, (_, end) in enumerate(words):
        gap = text[end : words[index + 1][0]] if index + 1 < len(words) else "\n"
        has_line_break = has_lines and len(f"{gap}.".splitlines()) > 1
        is_last = index + 1 == len(words)
        if is_last or has_line_break or _ends_sentence(text, words[index], words[index + 1][0]):
            spans.append((words[start][0], end))
            start = index + 1
    return [span for span in spans if any(map(str.isalnum, text[slice(*span)]))]


def _ends_sentence(text: str, word: tuple[int, int], next_start: int) -> bool:
    stem = text[slice(*word)].rstrip(CLOSING)
    if stem[-1:] in FULL_WIDTH_STOPS or text[word[1] - 1] in FULL_WIDTH_CLOSING:
        return bool(stem)
    following = text[next_start]
    if stem[-1:] not in (".", "!", "?", "\u2026") or following.islower() or following in CLOSING:
        return False
    if not stem.endswith(".") or stem.endswith(".."):
        return True
    name = stem[:-1].lstrip(_OPENING)
    is_short = all(len(part) <= 2 for part in name.split(".")) and "." in name  # z.B., U.S.
    is_ordinal = name.isdecimal() and len(name) <= 2
    return not (len(name) == 1 or is_short or is_ordinal or name.casefold() in ABBREVIATIONS)


# ----- HTML

MAX_BLOCK_TOKENS = 200
"""Texts and tags without a tag of a block; more are cut there, so that time is linear."""


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


_VOID_TAGS = _names("area base br col embed hr img input link meta source track wbr")
_UNTRANSLATED_TAGS = _names("code kbd math pre samp script style svg textarea")
_RAW_TEXT_TAGS = _names("script style textarea")
_BLOCK_TAGS = _names(
    "address article aside base blockquote body br button caption center col colgroup dd details "
    "dialog div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head "
    "header hgroup hr html iframe legend li link main menu meta nav noscript ol optgroup option p "
    "pre script section select style summary table tbody td template textarea tfoot th thead title "
    "tr ul"
)


class _Token(NamedTuple):
    type: Literal["text", "open", "close", "void"]
    tag: str
    raw: str


_TOKEN = re.compile(
    r"""(?P<text>[^<]+|<(?![a-zA-Z/!?]))
    | <(?P<slash>/?)(?P<tag>[a-zA-Z][^\s/>]*+)(?:=\s*+"[^"]*"|=\s*+'[^']*'|[^>])*+>
    | <!--.*?-->
    | <(?!!--|/?[a-zA-Z])[^>]*>""",
    re.VERBOSE | re.DOTALL,
)
_NOT_TRANSLATED = re.compile(
    r"""\s translate\s*=\s*["']?no\b | \s class\s*=\s*(?:"[^"]*|'[^']*)?\bnotranslate\b""",
    re.VERBOSE | re.IGNORECASE,
)


def _tokens(text: str) -> Iterator[_Token]:
    """Cut HTML into texts and tags; what is never closed is one tag, to the end.

    Written anew, as the time that html.parser takes for such texts is quadratic.
    """
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        raw = match[0] if match else text[position:]
        position += len(raw)
        tag = (match["tag"] or "").lower() if match else ""
        if match and match["text"]:
            yield _Token("text", "", raw)
        elif not tag or tag in _VOID_TAGS or raw.endswith("/>"):
            yield _Token("void", tag, raw)
        else:
            yield _Token("close" if match and match["slash"] else "open", tag, raw)
            if tag in _RAW_TEXT_TAGS and match and not match["slash"]:
                end = re.compile(rf"</{tag}\b", re.IGNORECASE).search(text, position)
                content = text[position : end.start() if end else len(text)]
                position += len(content)
                yield _Token("void", "", content)


def split_html(text: str) -> Iterator[str | Sentence]:
    """Yield sentences, and the tags and text between them as HTML."""
    block = _Block()
    for token in _merge_untranslated(_tokens(text)):
        is_block = token.tag in _BLOCK_TAGS
        if is_block or block.num_tokens == MAX_BLOCK_TOKENS:
            yield from block.parts()
            block = _Block()
        if is_block:
            yield token.raw
        else:
            block.add(token)
    yield from block.parts()


def _merge_untranslated(tokens: Iterable[_Token]) -> Iterator[_Token]:
    """Make one void token of each element that is not translated."""
    stream = iter(tokens)
    for token in stream:
        is_translated = token.tag not in _UNTRANSLATED_TAGS and not _NOT_TRANSLATED.search(
            token.raw
        )
        if token.type != "open" or is_translated:
            yield token
            continue
        depth, raw = 1, [token.raw]
        while depth and (inner := next(stream, None)):
            raw.append(inner.raw)
            if inner.tag == token.tag:
                depth += {"open": 1, "close": -1}.get(inner.type, 0)
        yield _Token("void", token.tag, "".join(raw))


class _Element:
    """An element or tag among the characters of a block."""

    def __init__(self, opening: str, position: int, parent: "_Element | None") -> None:
        self.opening, self.closing, self.parent = opening, "", parent
        self.start = self.end = position
        self.sentence: tuple[int, int] | None = None  # that it is within


class _Block:
    """Text with inline tags, between two tags of blocks."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self._texts: list[str] = []
        self._length = 0
        self._open: list[tuple[str, _Element]] = []
        self._elements: list[_Element] = []
        self._marks: list[tuple[int, str, _Element]] = []  # tags in order, with their position

    def add(self, token: _Token) -> None:
        """Add text or an inline tag."""
        self.num_tokens += 1
        if token.type == "text":
            self._texts.append(html.unescape(token.raw))
            self._length += len(self._texts[-1])
            return
        names = [name for name, _ in self._open]
        if token.type == "close" and token.tag in names:
            while self._open[-1][0] != token.tag:
                self._open.pop()  # never closed: a tag by itself
            element = self._open.pop()[1]
            element.end, element.closing = self._length, token.raw
        else:
            element = _Element(token.raw, self._length, self._open[-1][1] if self._open else None)
            self._elements.append(element)
            if token.type == "open":
                self._open.append((token.tag, element))
        self._marks.append((self._length, token.raw, element))

    def parts(self) -> Iterator[str | Sentence]:
        """Yield sentences, and what is between them."""
        text = "".join(self._texts)
        for element in self._elements:
            while element.parent and not element.parent.closing:  # that is a tag by itself
                element.parent = element.parent.parent
            content = text[element.start : element.end]
            element.start += len(content) - len(content.lstrip())
            element.end = max(element.start, element.end - len(content) + len(content.rstrip()))
        spans = self._merge_spans(sentence_spans(text, has_lines=False))
        for element in self._elements:
            around = [s for s in spans[_overlapping(spans, element)] if _is_within(element, *s)]
            inherited = element.parent and element.parent.sentence
            element.sentence = inherited or (around[0] if around else None)
        marks = iter([mark for mark in self._marks if mark[2].sentence is None])
        mark, position = next(marks, None), 0
        for start, end in [*spans, (len(text), None)]:
            while mark is not None and mark[0] <= start:
                yield escape(text[position : mark[0]]) + mark[1]
                position = mark[0]
                mark = next(marks, None)
            yield escape(text[position:start])
            if end is not None:
                yield self._sentence(text, start, end)
                position = end

    def _merge_spans(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Join the sentences that an element crosses; one may contain whole sentences."""
        for element in sorted(self._elements, key=lambda element: element.end - element.start):
            indices = _overlapping(spans, element)
            if len(crossed := spans[indices]) > 1:
                start, end = crossed[0][0], crossed[-1][1]
                if element.start > start or element.end < end:
                    spans[indices] = [(start, end)]
        return spans

    def _sentence(self, text: str, start: int, end: int) -> Sentence:
        inner = [element for element in self._elements if element.sentence == (start, end)]
        indices: dict[_Element | None, int] = {
            element: index for index, element in enumerate(inner)
        }
        pieces = [match.span() for match in PIECE.finditer(text, start, end)]
        tags = []
        ends: dict[int, int] = {}  # pieces of earlier siblings: one piece is in one of them
        for element in inner:
            parent, closing = indices.get(element.parent, -1), element.closing
            first = bisect_right(pieces, element.start, key=lambda piece: piece[1])
            last = bisect_left(pieces, element.end, key=lambda piece: piece[0])
            if element.start == element.end:
                last = first
                closing += " " * text[element.end : element.end + 1].isspace()
            elif first < last:
                first = max(first, ends.get(parent, 0))
                ends[parent] = last
            tags.append(InlineTag(element.opening, closing, first, last, parent))
        return Sentence(" ".join(text[start:end].split()), tags)


def _overlapping(spans: Sequence[tuple[int, int]], element: _Element) -> slice:
    """Return where the sentences are that have characters of an element, or a tag within them."""
    first = bisect_right(spans, element.start, key=lambda span: span[1])
    return slice(first, max(first, bisect_left(spans, element.end, key=lambda span: span[0])))


def _is_within(element: _Element, start: int, end: int) -> bool:
    """Return whether an element is within a sentence and does not contain all of it."""
    if element.start == element.end:
        return start < element.start < end
    overlaps = element.start < end and element.end > start
    return overlaps and not (element.start <= start and element.end >= end)


def escape(text: str) -> str:
    """Return text as HTML."""
    return html.escape(text, quote=False)
