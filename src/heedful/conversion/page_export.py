"""Runs as a page: one HTML file that runs the model by itself, offline, and shows its attention.

The page carries the graphs of the model, its weights (gzip, base64) and its tokenizers as data,
and an interpreter, tokenizers and beam search as JavaScript (`plotting/page`). It makes no
requests, and checks the SHA-256 of its parts when it is opened.

Invariant: in fp32 the page gives the greedy outputs of the run, token for token. That is checked
for every page, whatever its precision; of fp16 and int8 it is then counted how many outputs stay
equal.
"""

import base64
import gzip
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn
from typing_extensions import override

from heedful.attention.edit_operators import onnx_translations
from heedful.conversion.exporting import check_equal_outputs, sample_sources
from heedful.conversion.graph_capture import to_onnx
from heedful.conversion.interface import Exporter
from heedful.conversion.page_models import (
    PageModel,
    PageOutput,
    PageSamples,
    count_equal_tokens,
    read_dev_examples,
)
from heedful.conversion.page_tasks import find_page_model
from heedful.conversion.registry import get_exporter
from heedful.decoding.config import DecodingConfig
from heedful.decoding.translation import BOS_LABEL, EOS_LABEL
from heedful.errors import DataError, RunError, check, check_choice, format_count
from heedful.plotting.html import bundle_modules, read_asset, render_page, to_script_json
from heedful.plotting.page_graphs import GraphWriter, Precision, check_operators
from heedful.plotting.page_runner import PageRunner
from heedful.storage.json_files import read_json_lines
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.page_tokenizers import describe_tokenizers

PAGE_FILE = "page.html"
MAX_SIZE = 25_000_000
"""Bytes of a page; browsers open larger ones slowly, and their products take seconds a word."""
_PRECISIONS = ("fp32", "fp16", "int8")
_NUM_EXAMPLES = 3
_MAX_EXAMPLE = 60  # characters
_NUM_DEV_EXAMPLES = 100  # that the loss of a lower precision is measured on
_BEAM_SIZES = (1, 2, 4, 5, 8)
_USAGE = """\
## Use

Open `page.html` in a browser: it needs no server, no network and no other file.
"""


class PageExporter(Exporter):
    """A page that runs the model."""

    name = "page"
    description = "a page that runs the model by itself"
    packages = ("onnx", "onnxscript")
    extra = "onnx"

    def __init__(self, precision: Precision = "fp32") -> None:
        self._precision: Precision = precision

    @override
    def with_dtype(self, dtype: str) -> Exporter:
        check_choice(dtype, _PRECISIONS, "precision", location="--dtype")
        return PageExporter(cast(Precision, dtype))

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        page_model = find_page_model(run)
        if page_model is None:
            return f"pages have no models of this task: it {run.config.task.description}"
        return page_model.unsupported_reason(run)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        page = render_model_page(run, self._precision).encode()
        limit = f"at most {MAX_SIZE / 1e6:.0f} MB can be exported"
        message = f"the page would have {len(page) / 1e6:.1f} MB, and {limit}"
        is_smallest = self._precision == _PRECISIONS[-1]
        hint = "train a smaller model" if is_smallest else f"add --dtype {_PRECISIONS[-1]}"
        check(len(page) <= MAX_SIZE, "--to page", message, f"{hint}; nothing was written", RunError)
        (folder / PAGE_FILE).write_bytes(page)

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        runner = PageRunner.find()
        if runner is None:
            return self._compare_graphs(run, sources)
        page_model, path, exact = _page_model(run), folder / PAGE_FILE, folder / "fp32.html"
        samples = page_model.samples(run, sources)
        expected = page_model.outputs(run, samples)
        is_exact = self._precision == "fp32"
        if not is_exact:
            exact.write_text(render_model_page(run, "fp32"), encoding="utf-8")
        actual = read_outputs(runner, path if is_exact else exact, samples)
        check_outputs(expected, actual, location=str(path))
        count = f"{format_count(len(samples.inputs), 'output')} of the page in {runner.name}"
        if is_exact:
            return f"{count} are equal, token for token"
        exact.unlink()
        return f"{count} are equal in fp32; {self._measure_loss(run, page_model, runner, path)}"

    def _measure_loss(
        self, run: LoadedRun, page_model: PageModel, runner: PageRunner, path: Path
    ) -> str:
        """Return how many tokens stay as they are, and what that costs in scores."""
        examples = read_dev_examples(run, _NUM_DEV_EXAMPLES)
        if examples:
            samples, name = page_model.dev_samples(run, examples), "dev example"
        else:
            samples, name = page_model.samples(run, sample_sources(run)), "sample"
        expected = page_model.outputs(run, samples)
        actual = read_outputs(runner, path, samples)
        equal, total = map(sum, zip(*count_equal_tokens(expected, actual), strict=True))
        share, count = f"{100 * equal / total:.1f} %", format_count(total, "token")
        rate = f"{share} of {count} stay equal in {self._precision}"
        line = f"{rate}, for {format_count(len(samples.inputs), name)}"
        if samples.references is None:
            return line
        scores = [page_model.score(run, one, samples.references) for one in (expected, actual)]
        before, after = (score for score in scores if score is not None)
        return f"{line}; {before.name} {before.value:.2f} -> {after.value:.2f}"

    def _compare_graphs(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> str:
        """Compare the graphs of the page, whose interpreter cannot run without Node.js."""
        exporter = get_exporter("onnx")
        message = f"a page of this run, which {run.config.task.description}, is compared in Node.js"
        is_possible = exporter.unsupported_reason(run) is None
        hint = "install Node.js 18 or newer; nothing was written"
        check(is_possible, "--to page", message, hint, RunError)
        with tempfile.TemporaryDirectory() as folder:
            exporter.write(run, Path(folder))
            compared = exporter.compare(run, Path(folder), sources)
        return f"{compared}; the page itself was not opened, as there is no Node.js 18 or newer"

    @override
    def usage(self, run: LoadedRun) -> str:
        return _USAGE


# ----- parts of a page


class PageGraphs(NamedTuple):
    """Graphs by name as JSON values, and the bytes that their constants refer to."""

    graphs: dict[str, Any]
    info: dict[str, Any]
    weights: bytes


def build_page_graphs(
    page_model: PageModel, model: nn.Module, sizes: VocabSizes, precision: Precision
) -> PageGraphs:
    """Capture a model; raise RunError for an operator that the interpreter does not have."""
    captured = page_model.capture(model, sizes)
    writer = GraphWriter(precision)
    written = {}
    for name, (program, inputs, outputs) in captured.graphs.items():
        exported = to_onnx(program, inputs, outputs, onnx_translations())
        written[name] = writer.write_graph(exported.model_proto.graph)
    check_operators(written)
    return PageGraphs(written, captured.info, bytes(writer.weights))


def read_outputs(runner: PageRunner, path: Path, samples: PageSamples) -> list[PageOutput]:
    """Return the outputs of a page for samples, without a beam."""
    answers = runner.outputs(path, samples.inputs, samples.limits)
    return [PageOutput(answer["tokens"], answer.get("scores")) for answer in answers]


def check_outputs(
    expected: Sequence[PageOutput], actual: Sequence[PageOutput], *, location: str
) -> None:
    """Raise DataError for the first output that is not that of the run."""
    tokens = ([output.tokens for output in outputs] for outputs in (expected, actual))
    check_equal_outputs(*tokens, location=location)
    pairs = enumerate(zip(expected, actual, strict=True), start=1)
    differing = [index for index, (one, other) in pairs if one.differs(other)]
    message = f"sample {differing[:1]}: the probabilities are not those of the run"
    check(
        not differing, location, message, "please report this run: nothing was written", DataError
    )


def _page_model(run: LoadedRun) -> PageModel:
    page_model = find_page_model(run)
    assert page_model is not None, run.config.task.name
    return page_model


def render_model_page(run: LoadedRun, precision: Precision) -> str:
    """Return the page of a run."""
    page_model, sizes = _page_model(run), VocabSizes.from_tokenizers(run.tokenizers)
    captured = build_page_graphs(page_model, run.model, sizes, precision)
    description = {
        "task": run.config.task.name,
        "graphs": captured.graphs,
        "info": captured.info,
        "sites": page_model.describe_sites(run.model),
        "tokenizers": describe_tokenizers(run.config.tokenizers, run.tokenizers),
        "labels": {"start": BOS_LABEL, "end": EOS_LABEL},
        **page_model.describe(run),
    }
    shown = {"task": run.config.task.name, "beam_size": _beam_size(run.config.decoding)}
    parts = {
        "model": _pack(json.dumps(description, allow_nan=False).encode()),
        "weights": _pack(captured.weights),
        "worker": _pack(bundle_modules("page-worker.js").encode()),
        "page": {**shown, "examples": _examples(run)},
    }
    has_images = run.config.task.name == "captioning"
    digests = {name: _sha256(to_script_json(part)) for name, part in parts.items()}
    return render_page(
        read_asset("model.html"),
        title=run.config.info.name or page_model.title,
        styles=["attention_map.css", *(["caption.css"] * has_images), "panes.css", "model.css"],
        scripts=[*(["model-images.js"] * has_images), "model-page.js"],
        data={**parts, "digests": digests},
        page_type="model",
        has_images=has_images,
        has_worker=True,
    )


def _pack(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _beam_size(config: DecodingConfig) -> int:
    """Return the choice of the page that is nearest to the setting of the run."""
    return min(_BEAM_SIZES, key=lambda size: abs(size - config.beam_size))


def _examples(run: LoadedRun) -> list[str]:
    """Return short texts that the run has logged; none for images."""
    if run.config.task.name == "captioning":
        return []
    entries = read_json_lines(Path(run.folder) / "samples.jsonl")
    texts = dict.fromkeys(str(entry.get("source_text") or "") for entry in entries)
    return [text for text in texts if text and len(text) <= _MAX_EXAMPLE][:_NUM_EXAMPLES]


EXPORTER = PageExporter()
