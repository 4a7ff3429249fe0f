"""A run as a model of another library: checked, written, opened again and compared, then named.

Invariant: the folder exists only if the other library, with the files in it, gives the outputs of
the run for the sample sources.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from heedful.conversion.interface import Exporter, load_run
from heedful.conversion.model_card import render_model_card
from heedful.conversion.registry import get_exporter
from heedful.data.text.batching import collate_sources
from heedful.errors import ConfigError, DataError, RunError, check
from heedful.models.base import Seq2SeqModel
from heedful.search import LengthPenalty
from heedful.storage.atomic import atomic_replace
from heedful.storage.json_files import read_json_lines
from heedful.storage.manifest import write_manifest
from heedful.tasks.prediction import LoadedRun
from heedful.tokenization.vocabulary import BOS, NUM_SPECIAL_TOKENS
from heedful.version import VERSION

NUM_SAMPLES = 8
_MAX_SAMPLE_LENGTH = 40


def export_run(
    run_dir: Path, target: str, out: Path, log: Callable[[str], object] = lambda line: None
) -> str:
    """Write a run in another format; return a summary of the comparison."""
    exporter = get_exporter(target)
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
    for index, (ours, theirs) in enumerate(zip(expected, actual, strict=True), start=1):
        message = f"sample {index}: the run gives {list(ours)}, the exported model {list(theirs)}"
        hint = "please report this run: nothing was written"
        check(list(ours) == list(theirs), location, message, hint, DataError)
