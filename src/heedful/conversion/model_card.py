"""Model cards: README.md of an exported folder, from the records of its run.

A card states recipe, data counts, metrics and license, shows how the files are used without
heedful, and ends with the whole recipe. Missing records are reported as missing.
"""

import re
from pathlib import Path
from typing import Any

from heedful.config import to_yaml
from heedful.storage.json_files import read_json_lines, read_log_lines
from heedful.storage.manifest import read_manifest_unverified
from heedful.storage.state_dict import unique_weights
from heedful.tasks.task import LoadedRun
from heedful.tokenization.subword import MODEL_FILE
from heedful.tokenization.tokenizer import VOCABULARY_FILE, NormalizerConfig
from heedful.version import VERSION

TOKENIZERS = "tokenizers"  # folder of the tokenizers in an exported folder
NOT_RECORDED = "not recorded in the run"
LICENSE = (
    "not stated by the run: the terms of the training data apply to the weights; heedful, which "
    "trained them, is under Apache-2.0"
)
_COUNTS = re.compile(r"^\S+ \S+ (train|dev): (.* kept)")
_NOT_METRICS = {"type", "step", "seconds"}


def render_model_card(run: LoadedRun, format_name: str, *, compared: str, usage: str) -> str:
    """Return the text of README.md; `usage` is a section in Markdown, or empty."""
    info = run.config.info
    count = sum(tensor.numel() for tensor in unique_weights(run.model).values())
    rows = {
        "recipe": "; ".join(filter(None, (info.name, info.summary, info.paper))) or NOT_RECORDED,
        "task": f"{run.config.task.name}, model type {run.config.model.type}",
        "parameters": f"{count:,}",
        "vocabulary": _describe_vocabulary(run),
        "training data": _read_data_counts(Path(run.folder)),
        "metrics": _read_metrics(Path(run.folder)),
        "format": f"{format_name}, written by heedful {VERSION}",
        "compared": compared,
        "license": LICENSE,
    }
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items())
    title = info.name or "Model"
    tags = f"---\nlicense: other\nlibrary_name: heedful\ntags: [{run.config.task.name}]\n---"
    recipe = f"## Recipe\n\n```yaml\n{to_yaml(run.config)}```\n"
    parts = [tags, f"# {_cell(title)}", f"| | |\n|---|---|\n{table}", usage.strip(), recipe]
    return "\n\n".join(filter(None, parts))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _describe_vocabulary(run: LoadedRun) -> str:
    source, target = run.tokenizers
    if source is target:
        return f"{len(source):,} tokens, shared by source and target"
    return f"{len(source):,} source and {len(target):,} target tokens"


def _read_data_counts(folder: Path) -> str:
    """Return the numbers of examples that training has logged."""
    counts: dict[str, str] = {}
    for line in read_log_lines(folder / "train.log"):
        if match := _COUNTS.match(line.decode("utf-8", "replace")):
            counts[match[1]] = match[2]
    return "; ".join(f"{name}: {text}" for name, text in counts.items()) or NOT_RECORDED


def _read_metrics(folder: Path) -> str:
    """Return the validation metrics of the step whose parameters the run has."""
    step = read_manifest_unverified(folder).get("step", 0)
    entries = read_json_lines(folder / "metrics.jsonl")
    matching = [e for e in entries if e.get("type") == "validation" and e.get("step") == step]
    if not matching:
        return NOT_RECORDED
    values = {name: value for name, value in matching[-1].items() if name not in _NOT_METRICS}
    numbers = {name: value for name, value in values.items() if isinstance(value, float | int)}
    figures = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    return f"dev set at step {step:,}: {figures}"


# ----- tokenizers in a few lines of Python, for the usage sections


def tokenizer_code(run: LoadedRun, *, out_type: str) -> str | None:
    """Return code that defines `encode(text)` and `decode(tokens)`; None if it takes heedful.

    `out_type` is int or str: tokens are ids, or the strings that CTranslate2's vocabularies have.
    """
    config = run.config.tokenizers
    is_shared = run.tokenizers.source is run.tokenizers.target
    names = ("shared", "shared") if is_shared else ("source", "target")
    configs = [config.source_config, getattr(config, "target", config.source_config)]
    kinds = {side.type for side in configs}
    if kinds == {"subword"}:
        return _subword_code(names, configs[0].normalization, out_type)
    if kinds <= {"character", "whitespace", "label"}:
        return _vocabulary_code(names, configs, out_type)
    return None


def _subword_code(names: tuple[str, str], normalization: NormalizerConfig, out_type: str) -> str:
    return f"""\
import unicodedata
import sentencepiece

source, target = (
    sentencepiece.SentencePieceProcessor(f"tokenizers/{{name}}/{MODEL_FILE}") for name in {names}
)

def encode(text):
    return source.encode({_normalization_code(normalization)}, out_type={out_type})

def decode(tokens):
    return target.decode(tokens)
"""


def _vocabulary_code(names: tuple[str, str], configs: list[Any], out_type: str) -> str:
    split = {"character": "list(text)", "whitespace": 'text.split(" ")', "label": "[text]"}
    joiner = {"character": "", "whitespace": " ", "label": ""}[configs[1].type]
    special = '["<pad>", "<unk>", "<s>", "</s>"]'
    is_text = out_type == "str"
    token = "token if token in ids else '<unk>'" if is_text else "ids.get(token, 1)"
    spelling = "token" if is_text else "target[token]"
    return f"""\
import json
import unicodedata

def read_vocabulary(name):
    with open(f"tokenizers/{{name}}/{VOCABULARY_FILE}", encoding="utf-8") as file:
        return {special} + json.load(file)["tokens"]

source, target = map(read_vocabulary, {names})
ids = {{token: index for index, token in enumerate(source)}}

def encode(text):
    text = {_normalization_code(configs[0].normalization)}
    return [{token} for token in {split[configs[0].type]} if token]

def decode(tokens):
    return {joiner!r}.join({spelling} for token in tokens)
"""


def _normalization_code(normalization: NormalizerConfig) -> str:
    code = "text"
    if normalization.unicode != "none":
        code = f"unicodedata.normalize({normalization.unicode.upper()!r}, text)"
    code += ".lower()" if normalization.lowercase else ""
    return code + (".strip()" if normalization.strip else "")
