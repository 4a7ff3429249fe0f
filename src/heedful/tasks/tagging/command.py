"""`heedful tag`, and the file options of sequence labeling; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from heedful.errors import check
from heedful.tasks.command_line import (
    COLUMN_OPTIONS,
    ConllFileOption,
    EncodingName,
    EnsembleWith,
    FileOption,
    FileOptions,
    OutputFile,
    PredictorLoader,
    Split,
    check_local,
    parse_column,
    write_lines,
)
from heedful.tasks.text_input import TextInput, read_chunks

if TYPE_CHECKING:
    from heedful.data.text.conll_files import ConllSentence
    from heedful.tasks.tagging.predictor import Tagger

InputFormat = Literal["text", "raw", "conll"]
_CONLL_SUFFIXES = {".conll", ".conllu", ".conllup", ".bio", ".iob", ".iob2"}
_COLUMN_HELP = "column of the {} in a CoNLL file: its number or its name"
InputFormatOption = Annotated[
    InputFormat | None,
    Option(
        help="text: words separated by spaces; raw: punctuation is split off; conll: columns",
        show_default="conll for .conll and .conllu, else text",
    ),
]
WordColumn = Annotated[str | None, Option(metavar="COLUMN", help=_COLUMN_HELP.format("words"))]
TagColumn = Annotated[
    str | None, Option(metavar="COLUMN", help=_COLUMN_HELP.format("tags, which are replaced"))
]


def tag(
    load: PredictorLoader,
    file: Annotated[str, Argument(help="sentences, one per line; - is standard input")] = "-",
    *,
    input_format: InputFormatOption = None,
    source_column: WordColumn = None,
    target_column: TagColumn = None,
    encoding: EncodingName = None,
    ensemble_with: EnsembleWith = None,
    output: OutputFile = None,
    as_json: Annotated[
        bool, Option("--json", help="print JSON lines with probabilities and spans")
    ] = False,
    as_conll: Annotated[
        bool, Option("--conll", help="print a word and its tag per line, as for CoNLL input")
    ] = False,
) -> None:
    """Tag the words of sentences: one line of tags per sentence, in the order of the input.

    A CoNLL file is printed as it is, with new tags; its column of tags is that of the training data
    by default. Without a file, type the sentences.

    Example: heedful tag runs/pos sentences.txt
    Example: echo "Don't panic." | heedful tag runs/pos --input-format raw --conll
    Example: heedful tag runs/pos test.conllu --target-column upos -o tagged.conllu
    Example: heedful tag runs/ner-1 --ensemble-with runs/ner-2 posts.conll --json
    """
    message, hint = "given together with --json", "leave out one of the two"
    check(not (as_json and as_conll), "--conll", message, hint)
    suffixes = {suffix.lower() for suffix in Path(file).suffixes}
    chosen = input_format or ("conll" if suffixes & _CONLL_SUFFIXES else "text")
    columns = {"source_column": source_column, "target_column": target_column}
    texts = TextInput(file, source_column, encoding=encoding)
    for name in COLUMN_OPTIONS:
        message, hint = "works only with CoNLL input", "add --input-format conll"
        flag = f"--{name.replace('_', '-')}"
        has_column = chosen == "conll" or (texts.type is not None and name == "source_column")
        check(has_column or columns[name] is None, flag, message, hint)
    check_local(load, {"--input-format conll": chosen == "conll"})
    tagger = load(ensemble_with=ensemble_with or ())
    if chosen == "conll":
        lines = _tag_conll(tagger, texts, columns, as_json=as_json)
    else:
        lines = _tag_text(tagger, texts, chosen, as_json=as_json, as_conll=as_conll)
    write_lines(lines, output)


def _tag_text(
    tagger: Tagger, texts: TextInput, input_format: InputFormat, *, as_json: bool, as_conll: bool
) -> Iterator[str]:
    from heedful.tokenization.standalone import split_words

    for chunk in read_chunks(texts):
        sentences = (
            text.split() if input_format == "text" else [*map(str.strip, split_words(text))]
            for text in chunk
        )
        words = ([word for word in sentence if word] for sentence in sentences)
        if not as_json and not as_conll:
            yield from tagger.predict_texts(words, location=texts.location)
            continue
        for result in tagger.predict(words, location=texts.location):
            if as_json:
                yield json.dumps(result.to_json(), ensure_ascii=False)
            else:
                yield from map("\t".join, zip(result.words, result.tags, strict=True))
                yield ""


def _tag_conll(
    tagger: Tagger, texts: TextInput, columns: Mapping[str, str | None], *, as_json: bool
) -> Iterator[str]:
    from heedful.data.text.conll_files import read_conll
    from heedful.data.text_files import UTF_8, check_encoding, display_name

    words, tags = (
        parse_column(columns[name], name) if columns[name] else default
        for name, default in zip(COLUMN_OPTIONS, tagger.conll_columns, strict=True)
    )
    waiting: list[ConllSentence] = []
    is_default = not any(columns.values())

    def sentences() -> Iterator[list[str]]:
        for sentence in read_conll(
            texts.file,
            word_column=words,
            tag_column=tags,
            allow_words_alone=is_default,
            encoding=check_encoding(texts.encoding or UTF_8),
        ):
            waiting.append(sentence)
            yield list(sentence.words)

    for result in tagger.predict(sentences(), location=display_name(texts.file)):
        sentence = waiting.pop(0)
        if as_json:
            yield json.dumps(result.to_json(), ensure_ascii=False)
        else:
            yield from sentence.with_tags(result.tags)
            yield ""


_HELP: Mapping[Split, str] = {
    "train": "tagged words for a tagger, in columns: CoNLL-U, CoNLL-2003 and the like",
    "dev": "tagged words to validate on; default: some training sentences",
    "test": "tagged words for a tagger, in columns",
}
_FILE_NAMES = ("{split}.conllu", "{split}.conll", "{split}.txt", "{split}.parquet", "{split}.arrow")
FILE_OPTIONS = FileOptions(
    data="words with tags",
    model="a tagger",
    pair_file=ConllFileOption(FileOption("conll", "path", _HELP, file_names=_FILE_NAMES)),
)
COMMANDS = (tag,)
