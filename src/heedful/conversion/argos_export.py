"""Runs as packages of Argos Translate, which LibreTranslate installs, too: one .argosmodel file.

A package is a zip archive with a CTranslate2 model, a SentencePiece model for both languages, and
a MiniSBD model that splits texts into sentences, so that nothing is downloaded. Argos joins the
pieces of outputs itself, so that the model of the source serves for the target as well.
"""

import json
import re
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from heedful.acceleration import ct2
from heedful.conversion.ct2_export import token_strings
from heedful.conversion.exporting import check_equal_outputs, greedy_outputs
from heedful.conversion.interface import Exporter
from heedful.conversion.sentence_splitter import write_sentence_splitter
from heedful.errors import check
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.tasks.prediction import LoadedRun
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
        import ctranslate2
        from sentencepiece import SentencePieceProcessor

        name, tokenizer = self._package_name(run), run.tokenizers.source
        ids = {piece: index for index, piece in enumerate(token_strings(run.tokenizers.target))}
        texts = [tokenizer.decode(source) for source in sources]
        expected, limits = greedy_outputs(run, tokenizer.encode_batch(texts))
        actual = []
        with tempfile.TemporaryDirectory() as temporary:
            zipfile.ZipFile(folder / f"{name}.argosmodel").extractall(temporary)
            root = Path(temporary) / name
            pieces = SentencePieceProcessor(model_file=str(root / "sentencepiece.model"))
            translator = ctranslate2.Translator(str(root / "model"), compute_type="float32")
            for text, limit in zip(texts, limits, strict=True):
                [result] = translator.translate_batch(
                    [pieces.encode(text, out_type=str)],
                    beam_size=1,
                    max_decoding_length=limit,
                    max_input_length=0,
                )
                actual.append([ids[piece] for piece in result.hypotheses[0]])
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


EXPORTER = ArgosExporter()
