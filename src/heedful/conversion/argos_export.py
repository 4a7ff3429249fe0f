"""Runs as packages of Argos Translate, which LibreTranslate installs, too: one .argosmodel file.

A package is a zip archive with a CTranslate2 model, a SentencePiece model for both languages, and
a MiniSBD model that splits texts into sentences, so that nothing is downloaded. Argos joins the
pieces of outputs itself, so that the model of the source serves for the target as well.

MiniSBD asks an ONNX model for a class of each character; class 2 ends a sentence. Ours consists of
rules instead of weights, those of `tasks/translation/sentences.py`: each is a window of kinds of
characters around the last one, written as a filter of one convolution that is positive where the
window fits.
"""

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from heedful.acceleration import ct2
from heedful.conversion.ct2_export import token_strings, translate_greedily
from heedful.conversion.exporting import check_equal_outputs, greedy_outputs
from heedful.conversion.interface import Exporter
from heedful.errors import check
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.translation.sentences import (
    ABBREVIATIONS,
    CLOSING,
    FULL_WIDTH_CLOSING,
    FULL_WIDTH_STOPS,
)
from heedful.tokenization.subword import SubwordTokenizer

_CODE, _COMPRESSED = re.compile(r"[a-z]{2,3}"), re.compile(r"(\.(txt|gz|bz2|xz|zst))+$")
_ARGOS_VERSION, _PACKAGE_VERSION = "1.9.6", "1.0"
_NAMES = {
    "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "fi": "Finnish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "la": "Latin", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
_USAGE = """\
## Use

```bash
argospm install {file}
argos-translate --from {source} --to {target} "a text"
libretranslate --load-only {source},{target}
```
"""


class ArgosExporter(Exporter):
    """Packages of Argos Translate."""

    name = "argos"
    description = "a package of Argos Translate"
    packages = ("ctranslate2", "onnx")
    extra = "argos"

    def __init__(self, languages: tuple[str, str] | None = None) -> None:
        """`languages` are codes; by default the ends of the names of the training files."""
        self._languages = languages

    @override
    def with_languages(self, languages: tuple[str, str]) -> Exporter:
        return ArgosExporter(languages)

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        if not all(isinstance(tokenizer, SubwordTokenizer) for tokenizer in run.tokenizers):
            return "tokenizers must be of the type 'subword'"
        return ct2.unsupported_reason(run.model)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        assert isinstance(run.model, EncoderDecoderModel)
        assert isinstance(run.tokenizers.source, SubwordTokenizer)
        source, target = self._find_languages(run)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            root = Path(temporary)
            (root / "model").mkdir()
            strings = ct2.TokenStrings(*map(token_strings, run.tokenizers))
            ct2.convert(run.model, root / "model", strings)
            (root / "sentencepiece.model").write_bytes(run.tokenizers.source.model)
            (root / "minisbd").mkdir()
            write_sentence_splitter(root / "minisbd" / "rules.onnx")
            metadata = {
                "package_version": _PACKAGE_VERSION,
                "argos_version": _ARGOS_VERSION,
                "from_code": source,
                "from_name": _NAMES.get(source, source),
                "to_code": target,
                "to_name": _NAMES.get(target, target),
            }
            (root / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
            name = self._package_name(run)
            with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as file:
                for path in sorted(path for path in root.rglob("*") if path.is_file()):
                    file.write(path, f"{name}/{path.relative_to(root)}")

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        from sentencepiece import SentencePieceProcessor

        name, tokenizer = self._package_name(run), run.tokenizers.source
        texts = [tokenizer.decode(source) for source in sources]
        expected, limits = greedy_outputs(run, tokenizer.encode_batch(texts))
        with tempfile.TemporaryDirectory() as temporary:
            zipfile.ZipFile(folder / f"{name}.argosmodel").extractall(temporary)
            root = Path(temporary) / name
            processor = SentencePieceProcessor(model_file=str(root / "sentencepiece.model"))
            pieces = [processor.encode(text, out_type=str) for text in texts]
            actual = translate_greedily(root / "model", run, pieces, limits)
        check_equal_outputs(expected, actual, location=str(folder))
        return f"{len(sources)} greedy outputs of the package in fp32 are equal, token for token"

    @override
    def usage(self, run: LoadedRun) -> str:
        source, target = self._find_languages(run)
        file = f"{self._package_name(run)}.argosmodel"
        return _USAGE.format(file=file, source=source, target=target)

    def _package_name(self, run: LoadedRun) -> str:
        """Return a name like those of Argos: translate-de_en-1_0."""
        codes = "_".join(self._find_languages(run))
        return f"translate-{codes}-{_PACKAGE_VERSION.replace('.', '_')}"

    def _find_languages(self, run: LoadedRun) -> tuple[str, str]:
        if self._languages:
            return self._languages
        train = run.config.data.train
        paths = [str(getattr(train, side, "")) for side in ("source", "target")]
        codes = [_COMPRESSED.sub("", path).rpartition(".")[2] for path in paths]
        message = "the languages are not known: no training files are called such as text.de"
        check(all(map(_CODE.fullmatch, codes)), "--languages", message, "add --languages de-en")
        return codes[0], codes[1]


# ----- sentences

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KINDS = ("any", "space", "small", "digit", "period", "stop", "wide", "closing", *_LETTERS)
_SPECIAL_UNITS = ["<PAD>", "<UNK>"]
_BEFORE, _AFTER = 6, 2  # characters that a window reaches
_GRAPH = f"""
<ir_version: 8, opset_import: ["" : 17]>
splitter (int64[B, N] units, float[B, N, F] features) => (float[B, N, 3] scores) {{
  kinds = Gather (table, units)
  channels = Transpose <perm = [0, 2, 1]> (kinds)
  responses = Conv <pads = [{_BEFORE}, {_AFTER}]> (channels, filters, biases)
  fitting = Relu (responses)
  weighted = Conv (fitting, signs, offsets)
  scores = Transpose <perm = [0, 2, 1]> (weighted)
}}
"""


class Rule(NamedTuple):
    """Kinds of characters, by offset from the one that ends a sentence or does not."""

    is_end: bool
    present: Sequence[tuple[int, str]]
    absent: Sequence[tuple[int, str]] = ()


def build_rules() -> list[Rule]:
    """Return the rules; a sentence ends where one fits and none that forbids it does."""
    following = [(1, "space"), (2, "any")]
    no_more = [(2, "small"), (2, "closing")]
    ends = [
        Rule(True, [(-count, "stop"), *closing, *following], no_more)
        for count in range(3)
        for closing in [[(offset, "closing") for offset in range(1 - count, 1)]]
    ]
    ends += [
        Rule(True, [(0, "wide")], [(1, "wide"), (1, "closing")]),
        Rule(True, [(-1, "wide"), (0, "closing")], [(1, "wide"), (1, "closing")]),
    ]
    period = (0, "period")
    exceptions = [
        Rule(False, [period, (-1, "any")], [(-1, "period"), (-2, "any")]),  # one letter
        Rule(False, [period, (-1, "digit"), (-2, "digit")], [(-3, "any")]),  # an ordinal
        Rule(False, [period, (-1, "any"), (-2, "period")], [(-1, "period")]),  # z.B., U.S.
        Rule(False, [period, (-1, "any"), (-2, "any"), (-3, "period")], [(-1, "period")]),
    ]
    for word in ABBREVIATIONS:
        if word.isascii() and len(word) < _BEFORE:
            letters = [(index - len(word), letter) for index, letter in enumerate(word)]
            exceptions.append(Rule(False, [period, *letters], [(-len(word) - 1, "any")]))
    return [*ends, *exceptions]


def kinds_of(character: str) -> set[str]:
    """Return what rules may ask about a character."""
    if character.isspace():
        return {"space"}
    tests = {
        "any": True,
        "small": character.islower(),
        "digit": character.isdecimal(),
        "period": character == ".",
        "stop": character in ".!?\u2026",
        "wide": character in FULL_WIDTH_STOPS,
        "closing": character in CLOSING + FULL_WIDTH_CLOSING,
        character.lower(): character.lower() in _LETTERS,
    }
    return {kind for kind, is_true in tests.items() if is_true}


def write_sentence_splitter(path: Path) -> None:
    """Write the model."""
    import onnx
    from onnx import helper, numpy_helper, parser

    rules = build_rules()
    index = {kind: number for number, kind in enumerate(_KINDS)}
    filters = np.zeros((len(rules), len(_KINDS), _BEFORE + 1 + _AFTER), np.float32)
    for row, rule in enumerate(rules):
        for offset, kind in rule.present:
            filters[row, index[kind], _BEFORE + offset] = 1
        for offset, kind in rule.absent:
            filters[row, index[kind], _BEFORE + offset] = -1
    biases = np.array([1 - len(rule.present) for rule in rules], np.float32)  # 1 where it fits
    signs = np.zeros((3, len(rules), 1), np.float32)
    signs[2, :, 0] = [1 if rule.is_end else -len(rules) for rule in rules]
    offsets = np.array([0.5, 0, 0], np.float32)  # class 0, unless a sentence ends
    characters = [chr(code) for code in range(sys.maxunicode + 1) if kinds_of(chr(code)) - {"any"}]
    units = [*_SPECIAL_UNITS, *characters]
    table = np.zeros((len(units), len(_KINDS)), np.float32)
    table[1, index["any"]] = 1  # a character without other kinds is unknown
    for row, character in enumerate(characters, start=len(_SPECIAL_UNITS)):
        table[row, [index[kind] for kind in kinds_of(character)]] = 1

    model = parser.parse_model(_GRAPH)
    tensors = {
        "table": table,
        "filters": filters,
        "biases": biases,
        "signs": signs,
        "offsets": offsets,
    }
    for name, values in tensors.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    vocabulary = {"_id2unit": units, "_unit2id": {unit: row for row, unit in enumerate(units)}}
    metadata = {
        "lang_code": "any",
        "config": json.dumps({"feat_funcs": ["end_of_para"], "batch_size": 8}),
        "vocab": json.dumps(vocabulary),
    }
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


EXPORTER = ArgosExporter()
