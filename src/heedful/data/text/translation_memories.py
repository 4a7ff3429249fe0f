"""Files of translators as pairs: TMX, XLIFF 1.2 and 2, and PO of gettext.

They are read piece by piece. Inline markup is removed and white space is one space, as in a line of
text; units without a translation, and fuzzy ones of PO, are left out. Invariant: XML is read
without entities of its own and without other files: a file that declares entities is refused.
"""

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Literal, NamedTuple
from xml.parsers import expat

from typing_extensions import override

from heedful.data.sources import COLUMN_OPTIONS, Encoding, FileSourceConfig, PairFileConfig
from heedful.data.text.pair_dataset import Pair
from heedful.data.text_files import (
    DECOMPRESSION_ERRORS,
    UTF_8,
    display_name,
    nonempty_lines,
    open_file,
    read_error,
)
from heedful.errors import DataError, check, quote_names

_BLOCK_SIZE = 2**16
_CODES = {"bpt", "ept", "it", "ph", "ut", "sub"}  # elements whose content is markup, not text
_TEXTS = {"seg", "source", "target"}
_SEGMENTS = {"tuv", "trans-unit", "segment"}  # parents of texts; alternatives have others
_UNITS = {"tu", "trans-unit", "segment"}


class TranslationFileConfig(FileSourceConfig):
    """A file of translation units."""

    row_name = "unit"

    @abstractmethod
    def _units(self) -> Iterator[Pair]:
        """Yield source and target of the units that have both."""

    @override
    def stream(self) -> Iterator[Pair]:
        is_empty = True
        for pair in self._units():
            source, target = (" ".join(text.split()) for text in pair)
            if source and target:
                is_empty = False
                yield Pair(source, target)
        message, hint = "contains no translated units", "give a file with translations"
        check(not is_empty, display_name(self.path), message, hint, DataError)


class _Unit(NamedTuple):
    """The texts of a unit with their languages: "" for the source and target of XLIFF."""

    line_number: int
    texts: dict[str, str]


class _XMLReader:
    """Collects the units of TMX or XLIFF while expat parses a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.units: list[_Unit] = []
        self.languages: dict[str, str] = {}  # of source and target, as the file declares them
        self._elements: list[str] = []
        self._parts: list[str] | None = None  # of the text that is being read
        self._num_codes = 0
        self._texts: dict[str, str] = {}
        self._language = ""
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._add_text
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity
        self._parser.buffer_text = True

    def read(self) -> Iterator[_Unit]:
        """Yield units block by block."""
        try:
            with open_file(self.path) as stream:
                while block := stream.read(_BLOCK_SIZE):
                    self._parser.Parse(block)
                    yield from self._take_units()
            self._parser.Parse(b"", True)
            yield from self._take_units()
        except expat.ExpatError as error:
            message = f"not XML ({expat.ErrorString(error.code)})"
            location = f"{display_name(self.path)}:{error.lineno}"
            raise DataError(location, message, "export the file again") from None
        except OSError as error:
            raise read_error(self.path, error) from None
        except DECOMPRESSION_ERRORS:
            message, hint = "cannot be decompressed", "copy or download the file again"
            raise DataError(self.path, message, hint) from None

    def _take_units(self) -> list[_Unit]:
        units, self.units = self.units, []
        return units

    def _refuse_entity(self, name: str, *_: object) -> None:
        location = f"{display_name(self.path)}:{self._parser.CurrentLineNumber}"
        message = f"the entity {name!r} is declared or used, which is not read"
        raise DataError(location, message, "write its text in place of &...;")

    def _start(self, qualified: str, attributes: dict[str, str]) -> None:
        name, parent = qualified.rpartition(" ")[2], self._elements[-1] if self._elements else ""
        self._elements.append(name)
        attributes = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        self._declare_languages(attributes)
        if name in _UNITS:
            self._texts = {}
        if name == "tuv":
            self._language = attributes.get("lang", "").lower()
        if self._parts is not None:
            self._num_codes += name in _CODES
        elif name in _TEXTS and parent in _SEGMENTS:
            self._parts = []

    def _declare_languages(self, attributes: dict[str, str]) -> None:
        for role, keys in (
            ("source", ("source-language", "srcLang", "srclang")),
            ("target", ("target-language", "trgLang")),
        ):
            for key in keys:
                if key in attributes:
                    self.languages[role] = attributes[key].lower()

    def _end(self, qualified: str) -> None:
        name = self._elements.pop()
        if self._parts is not None and name in _CODES:
            self._num_codes -= 1
        elif self._parts is not None and name in _TEXTS:
            key = self._language if name == "seg" else name
            self._texts.setdefault(key, "".join(self._parts))
            self._parts = None
        elif name in _UNITS:
            self.units.append(_Unit(self._parser.CurrentLineNumber, self._texts))

    def _add_text(self, text: str) -> None:
        if self._parts is not None and not self._num_codes:
            self._parts.append(text)


def _is_language(code: str, chosen: str) -> bool:
    """Return whether a code such as de-at is of a language such as de."""
    code, chosen = code.replace("_", "-").lower(), chosen.replace("_", "-").lower()
    return code == chosen or code.startswith(f"{chosen}-")


class XMLPairsConfig(TranslationFileConfig, PairFileConfig):
    """A file of translation units in XML."""

    source_column: str | None = None
    """Language of the source texts, such as de; default: that of the file."""
    target_column: str | None = None
    """Language of the target texts, such as en; default: that of the file."""


class TMXConfig(XMLPairsConfig):
    """A translation memory (TMX) in two languages or more."""

    type: Literal["tmx"] = "tmx"

    @override
    def _units(self) -> Iterator[Pair]:
        reader = _XMLReader(self.path)
        languages: dict[str, None] = {}
        chosen: tuple[str, str] | None = None
        for unit in reader.read():
            languages |= dict.fromkeys(unit.texts)
            if chosen is None and len(unit.texts) > 1:
                chosen = self._choose(list(unit.texts), reader.languages.get("source", ""))
            texts = [self._find(unit, language) for language in chosen or ()]
            if len(texts) == 2 and None not in texts:
                yield Pair(*map(str, texts))
        for language in (self.source_column, self.target_column):
            is_known = not language or any(_is_language(code, language) for code in languages)
            message = f"no unit has the language {language!r}"
            hint = f"give {COLUMN_OPTIONS}; languages found: {quote_names(languages)}"
            check(is_known, display_name(self.path), message, hint, DataError)

    def _choose(self, languages: list[str], declared: str) -> tuple[str, str]:
        """Return the languages of source and target."""
        source, target = self.source_column, self.target_column
        if not (source and target):
            message = f"the units have {len(languages)} languages"
            hint = f"choose two with {COLUMN_OPTIONS}: {quote_names(languages)}"
            check(len(languages) == 2, display_name(self.path), message, hint, DataError)
        if not source:
            others = [code for code in languages if not target or not _is_language(code, target)]
            is_declared = any(_is_language(code, declared) for code in others if declared)
            source = declared if is_declared else others[0]
        rest = [code for code in languages if not _is_language(code, source)]
        return source, target or rest[0]

    @staticmethod
    def _find(unit: _Unit, language: str) -> str | None:
        return next((unit.texts[code] for code in unit.texts if _is_language(code, language)), None)


class XLIFFConfig(XMLPairsConfig):
    """An XLIFF file, 1.2 or 2."""

    type: Literal["xliff"] = "xliff"

    @override
    def _units(self) -> Iterator[Pair]:
        reader = _XMLReader(self.path)
        for unit in reader.read():
            source, target = unit.texts.get("source", ""), unit.texts.get("target", "")
            is_swapped = self._check_languages(reader.languages)
            yield Pair(target, source) if is_swapped else Pair(source, target)

    def _check_languages(self, languages: dict[str, str]) -> bool:
        """Return whether source and target are exchanged; check that the file has both."""
        declared = languages.get("source", ""), languages.get("target", "")
        chosen = self.source_column, self.target_column
        for is_swapped, codes in ((False, declared), (True, declared[::-1])):
            pairs = zip(codes, chosen, strict=True)
            if all(not language or _is_language(code, language) for code, language in pairs):
                return is_swapped
        message = f"translates from {declared[0]!r} to {declared[1]!r}"
        hint = f"give {COLUMN_OPTIONS} of these two, or leave them out"
        raise DataError(display_name(self.path), message, hint)


# ----- PO


_PO_LINE = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*)?"(.*)"\s*')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class POConfig(TranslationFileConfig):
    """A PO file of gettext; of plural forms, the first and the last are read."""

    type: Literal["po"] = "po"
    source_column: Literal["msgid", "msgstr"] = "msgid"
    """Which text is the source."""
    target_column: Literal["msgid", "msgstr"] = "msgstr"
    """Which text is the target."""
    encoding: Encoding = UTF_8
    """Encoding of the file, such as cp1252 for files of Windows."""

    row_name = "message"

    @override
    def _units(self) -> Iterator[Pair]:
        for entry in self._entries():
            forms = [text for key, text in entry.items() if key.startswith("msgstr")]
            pairs = [(entry.get("msgid", ""), forms[0] if forms else "")]
            if "msgid_plural" in entry and len(forms) > 1:
                pairs.append((entry["msgid_plural"], forms[-1]))
            for source, target in pairs:
                texts = {"msgid": source, "msgstr": target}
                yield Pair(texts[self.source_column], texts[self.target_column])

    def _entries(self) -> Iterator[dict[str, str]]:
        """Yield the texts of each entry by keyword, without fuzzy and obsolete ones."""
        entry: dict[str, str] = {}
        key, is_fuzzy = "", False
        for number, line in enumerate(nonempty_lines(self.path, encoding=self.encoding), start=1):
            text = line.strip()
            is_start = text.startswith(("#", "msgctxt")) or (text.startswith("msgid ") and key)
            if (not text or is_start) and any(name.startswith("msgstr") for name in entry):
                yield from [] if is_fuzzy else [entry]
                entry, key, is_fuzzy = {}, "", False
            if not text or text.startswith("#"):
                is_fuzzy = is_fuzzy or (text.startswith("#,") and "fuzzy" in text)
                continue
            match = _PO_LINE.fullmatch(text)
            location = f"{display_name(self.path)}:{number}"
            is_valid = match is not None and bool(match[1] or key)
            check(is_valid, location, "not a line of PO", "export the file again", DataError)
            assert match is not None
            key = match[1] or key
            content = _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), match[2])
            entry[key] = entry.get(key, "") + content
        if entry and not is_fuzzy:
            yield entry
