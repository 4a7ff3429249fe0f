"""Runs as CTranslate2 folders: standard Transformers for translation.

Tokens are those of the tokenizer as strings, so that SentencePiece's pieces can be passed as they
are. The conversion is that of `--backend ct2` (`acceleration/ct2.py`).
"""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from heedful.acceleration import ct2
from heedful.conversion.exporting import (
    Program,
    check_equal_outputs,
    describe_program,
    greedy_outputs,
    write_program,
)
from heedful.conversion.interface import Exporter
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.tasks.prediction import LoadedRun
from heedful.tokenization.subword import SubwordTokenizer
from heedful.tokenization.tokenizer import Tokenizer, VocabularyTokenizer
from heedful.tokenization.vocabulary import SPECIAL_TOKENS

_TRANSLATE = """
import json


def read_tokens(name):
    path = FOLDER / f"{name}_vocabulary.json"
    path = path if path.exists() else FOLDER / "shared_vocabulary.json"
    return json.loads(path.read_text(encoding="utf-8"))


source_tokens, target_tokens = read_tokens("source"), read_tokens("target")
target_ids = {token: index for index, token in enumerate(target_tokens)}
translator = ctranslate2.Translator(str(FOLDER), compute_type="float32")


def translate(text, beam_size=1):
    tokens = [source_tokens[index] for index in source.encode(text)]
    [result] = translator.translate_batch(
        [tokens],
        beam_size=beam_size,
        max_decoding_length=max_length(tokens),
        max_input_length=0,
    )
    return target.decode(target_ids[token] for token in result.hypotheses[0]) if tokens else ""
"""
_PROGRAM = Program(
    "import ctranslate2",
    _TRANSLATE,
    "ctranslate2",
    "Other values of `compute_type`, such as `int8`, are smaller and faster; some outputs change.",
)


class CTranslate2Exporter(Exporter):
    """CTranslate2 folders."""

    name = "ct2"
    description = "a CTranslate2 folder"
    packages = ("ctranslate2",)
    extra = "ct2"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return ct2.unsupported_reason(run.model)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        assert isinstance(run.model, EncoderDecoderModel)
        source, target = map(token_strings, run.tokenizers)
        write_program(run, folder, _PROGRAM)
        ct2.convert(run.model, folder, ct2.TokenStrings(source, target))

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        source = token_strings(run.tokenizers.source)
        expected, limits = greedy_outputs(run, sources)
        tokens = [[source[token] for token in tokens] for tokens in sources]
        actual = translate_greedily(folder, run, tokens, limits)
        check_equal_outputs(expected, actual, location=str(folder))
        return f"{len(sources)} greedy outputs of CTranslate2 in fp32 are equal, token for token"

    @override
    def usage(self, run: LoadedRun) -> str:
        return describe_program(run, _PROGRAM)


def translate_greedily(
    folder: Path, run: LoadedRun, sources: Sequence[Sequence[str]], limits: Sequence[int]
) -> list[list[int]]:
    """Return the greedy outputs of a converted model in fp32, one source at a time."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    ids = {token: index for index, token in enumerate(token_strings(run.tokenizers.target))}
    outputs = []
    for tokens, limit in zip(sources, limits, strict=True):
        [result] = translator.translate_batch(
            [list(tokens)], beam_size=1, max_decoding_length=limit, max_input_length=0
        )
        outputs.append([ids[token] for token in result.hypotheses[0]])
    return outputs


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """Return a distinct string for each id: pieces of SentencePiece, or tokens of a vocabulary."""
    if isinstance(tokenizer, SubwordTokenizer):
        return tokenizer.piece_names
    tokens = tokenizer.vocabulary.tokens if isinstance(tokenizer, VocabularyTokenizer) else ()
    special = [name if name not in tokens else f"\u2585{name}" for name in SPECIAL_TOKENS]
    names = [*special, *tokens]
    return [*names, *(f"<id {index}>" for index in range(len(names), len(tokenizer)))]


EXPORTER = CTranslate2Exporter()
