"""A run as a model of another library: checked, written, opened again and compared, then named.

Invariant: the folder exists only if the other library, with the files in it, gives the outputs of
the run for the sample sources. Its README.md is a model card from the records of the run; missing
records are reported as missing.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.config import to_yaml
from heedful.conversion.hf_folder import write_json
from heedful.conversion.interface import Exporter
from heedful.conversion.registry import get_exporter
from heedful.data.text.batching import collate_sources
from heedful.errors import ConfigError, DataError, RunError, check
from heedful.models.base import Seq2SeqModel
from heedful.models.language_model import LanguageModel
from heedful.runs import load_run
from heedful.search import LengthPenalty
from heedful.storage.atomic import atomic_replace
from heedful.storage.json_files import read_json_lines, read_log_lines
from heedful.storage.manifest import read_manifest_unverified, write_manifest
from heedful.storage.state_dict import unique_weights
from heedful.tasks.prediction import LoadedRun
from heedful.tokenization import standalone
from heedful.tokenization.vocabulary import BOS, NUM_SPECIAL_TOKENS
from heedful.version import VERSION

NUM_SAMPLES = 8
_MAX_SAMPLE_LENGTH = 40


def export_run(
    run_dir: Path,
    target: str,
    out: Path,
    log: Callable[[str], object] = lambda line: None,
    *,
    languages: tuple[str, str] | None = None,
    dtype: str | None = None,
) -> str:
    """Write a run in another format; return a summary of the comparison."""
    exporter = get_exporter(target)
    exporter = exporter.with_languages(languages) if languages else exporter
    exporter = exporter.with_dtype(dtype) if dtype else exporter
    is_free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    message = "the folder exists and is not empty"
    check(is_free, str(out), message, "name another folder with --out", RunError)
    check_installed(exporter)
    run = load_run(run_dir)
    reason = exporter.unsupported_reason(run)
    message = f"{exporter.description} cannot hold this run: {reason}"
    check(reason is None, str(run_dir), message, "nothing was written", RunError)
    with atomic_replace(out) as temporary:
        temporary.mkdir()
        log(f"writing {exporter.description}")
        exporter.write(run, temporary)
        sources = sample_sources(run)
        log(f"comparing outputs for {len(sources)} sample texts")
        compared = exporter.compare(run, temporary, sources)
        description = exporter.description
        card = render_model_card(run, description, compared=compared, usage=exporter.usage(run))
        (temporary / "README.md").write_text(card, encoding="utf-8")
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        write_manifest(temporary, files, {"heedful": VERSION, "format": exporter.name})
    return compared


def check_installed(exporter: Exporter) -> None:
    """Raise ConfigError if a package is missing."""
    for package in exporter.packages:
        message = f"needs the package {package}"
        hint = f"install it with: pip install 'heedful[{exporter.extra}]'"
        check(find_spec(package), f"--to {exporter.name}", message, hint, ConfigError)


def sample_sources(run: LoadedRun, count: int = NUM_SAMPLES) -> list[list[int]]:
    """Return token ids of dev texts that the run has logged, and random ones if these are few."""
    texts = [
        str(entry.get("source_text") or "")
        for entry in read_json_lines(Path(run.folder) / "samples.jsonl")
    ]
    distinct = list(dict.fromkeys(filter(None, texts)))[:count]
    sources = [ids[:_MAX_SAMPLE_LENGTH] for ids in run.tokenizers.source.encode_batch(distinct)]
    vocab_size = len(run.tokenizers.source)
    generator = torch.Generator().manual_seed(0)
    for length in range(1, count + 1 - len(sources)):
        lowest = min(NUM_SPECIAL_TOKENS, vocab_size - 1)
        ids = torch.randint(lowest, vocab_size, (3 * length,), generator=generator)
        sources.append(ids.tolist())
    return sources


def sample_targets(run: LoadedRun, sources: Sequence[Sequence[int]]) -> Tensor:
    """Return decoder inputs: BOS and the ids of sources of one length, in range for targets."""
    targets = torch.tensor([[BOS, *source] for source in sources])
    return targets.clamp(max=len(run.tokenizers.target) - 1)


def greedy_outputs(
    run: LoadedRun, sources: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[int]]:
    """Return the greedy output of each source, and the maximum lengths they were given."""
    assert isinstance(run.model, Seq2SeqModel)
    limits = [2 * len(source) + 10 for source in sources]
    hypotheses = run.model.search(
        collate_sources(sources),
        beam_size=1,
        max_lengths=torch.tensor(limits),
        length_penalty=LengthPenalty(0.0),
    )
    return [best.tokens for best, *_ in hypotheses], limits


def check_equal_outputs(
    expected: Sequence[Sequence[int]], actual: Sequence[Sequence[int]], *, location: str
) -> None:
    """Raise DataError for the first output, as token ids, that differs from that of the run."""
    for index, (native, foreign) in enumerate(zip(expected, actual, strict=True), start=1):
        message = (
            f"sample {index}: the run gives {list(native)}, the exported model {list(foreign)}"
        )
        hint = "please report this run: nothing was written"
        check(list(native) == list(foreign), location, message, hint, DataError)


# ----- model cards

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


# ----- programs in exported folders that use a model without heedful

TOKENIZERS = "tokenizers"  # folder of the tokenizers in an exported folder
_PROGRAM = '''\
"""{title}: python {name}.py < TEXTS"""

import sys
from pathlib import Path

{imports}
from text_tokenizer import load_tokenizers

FOLDER = Path(__file__).resolve().parent
source, target = load_tokenizers(FOLDER / "tokenizers")
{limit}{code}

if __name__ == "__main__":
    for line in sys.stdin:
        print({name}(line.rstrip("\\n")))
'''
_LIMIT = """

def max_length(tokens):
    return min(int((len(tokens) + 1) * {ratio} + {offset}), {maximum})

"""
_USAGE = """\
## Use

Needs Python and `pip install {packages}`. {note} In this folder:

```bash
python {name}.py < TEXTS
```

```python
from {name} import {name}

print({name}("a text"))
```
"""


class Program(NamedTuple):
    """The part of a program that depends on the format."""

    imports: str
    code: str
    """Code that builds the model and defines `translate(text)` or `generate(text)`."""
    packages: str
    note: str


def program_name(run: LoadedRun) -> str:
    """Return the name of the program of a run, and of its function."""
    return "generate" if isinstance(run.model, LanguageModel) else "translate"


def has_program(run: LoadedRun) -> bool:
    """Whether texts can be encoded and decoded without heedful."""
    types = {config.type for config in _tokenizer_settings(run).values()}
    return types <= {*standalone.STANDALONE_TYPES}


def write_program(run: LoadedRun, folder: Path, program: Program) -> None:
    """Write tokenizers, and a program if these need no heedful."""
    run.tokenizers.save(folder / TOKENIZERS)
    if not has_program(run):
        return
    settings = {
        name: config.model_dump(mode="json", include={"type", "normalization"})
        for name, config in _tokenizer_settings(run).items()
    }
    write_json(folder / TOKENIZERS / standalone.SETTINGS_FILE, settings)
    shutil.copyfile(standalone.__file__, folder / "text_tokenizer.py")
    name = program_name(run)
    title = "Translate lines of text" if name == "translate" else "Continue lines of text"
    limit, decoding = "", run.config.decoding
    if name == "translate":
        ratio, offset = decoding.max_length_ratio, decoding.max_length_offset
        limit = _LIMIT.format(ratio=ratio, offset=offset, maximum=decoding.max_length or 10**6)
    text = _PROGRAM.format(
        title=title, name=name, imports=program.imports, limit=limit, code=program.code
    )
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


def describe_program(run: LoadedRun, program: Program) -> str:
    """Return the section of the model card that shows how the program is used."""
    if not has_program(run):
        return f"## Use\n\nToken ids come from heedful. {program.note}"
    uses_pieces = any(config.type == "subword" for config in _tokenizer_settings(run).values())
    packages = program.packages + (" sentencepiece" if uses_pieces else "")
    return _USAGE.format(packages=packages, note=program.note, name=program_name(run))


def _tokenizer_settings(run: LoadedRun) -> dict[str, Any]:
    config = run.config.tokenizers
    if run.tokenizers.source is run.tokenizers.target:
        return {"shared": config.source_config}
    return {"source": config.source, "target": config.target}
