"""Model cards: README.md of an exported folder, from the records of its run.

A card states recipe, data counts, metrics and license, shows how the files are used without
heedful, and ends with the whole recipe. Missing records are reported as missing.
"""

import re
from pathlib import Path

from heedful.config import to_yaml
from heedful.storage.json_files import read_json_lines, read_log_lines
from heedful.storage.manifest import read_manifest_unverified
from heedful.storage.state_dict import unique_weights
from heedful.tasks.prediction import LoadedRun
from heedful.version import VERSION

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
