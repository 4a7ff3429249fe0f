"""Runs as a page: one HTML file that translates by itself, offline, and shows its attention.

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
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn
from typing_extensions import override

from heedful.attention.edit_operators import (
    editable_sites,
    onnx_translations,
    with_edit_operators,
)
from heedful.attention.edits import AttentionSite
from heedful.conversion import graphs
from heedful.conversion.exporting import check_equal_outputs, greedy_outputs
from heedful.conversion.graph_capture import to_onnx
from heedful.conversion.interface import Exporter
from heedful.conversion.registry import get_exporter
from heedful.decoding.config import DecodingConfig
from heedful.decoding.translation import BOS_LABEL, EOS_LABEL
from heedful.errors import RunError, check, check_choice
from heedful.inspection.attention_layers import (
    AttentionLayer,
    mark_output_layers,
    without_words,
)
from heedful.models.base import Seq2SeqModel
from heedful.plotting.html import bundle_modules, read_asset, render_page, to_script_json
from heedful.plotting.page_graphs import GraphWriter, Precision, check_operators
from heedful.plotting.page_runner import PageRunner
from heedful.storage.json_files import read_json_lines
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.page_tokenizers import describe_tokenizers, unsupported_tokenizer

PAGE_FILE = "page.html"
MAX_SIZE = 25_000_000
"""Bytes of a page; browsers open larger ones slowly, and their products take seconds a word."""
_PRECISIONS = ("fp32", "fp16", "int8")
_NUM_EXAMPLES = 3
_MAX_EXAMPLE = 60  # characters
_KEPT = ("max_source_length", "max_length_ratio", "max_length_offset", "max_length")
_TRANSLATED = {*_KEPT, "beam_size", "length_penalty", "stopping", "backend", "max_batch_tokens"}
"""Settings of decoding that a page has, or that do not change its outputs."""
_BEAM_SIZES = (1, 2, 4, 5, 8)
_USAGE = """\
## Use

Open `page.html` in a browser: it needs no server, no network and no other file.
"""


class PageExporter(Exporter):
    """A page that runs the model."""

    name = "page"
    description = "a page that translates by itself"
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
        reason = graphs.why_no_graphs(run)
        if reason is None and not isinstance(run.model, Seq2SeqModel):
            reason = f"only translation models have a page, but it {run.config.task.description}"
        return (
            reason
            or unsupported_tokenizer(run.config.tokenizers, run.tokenizers)
            or _unsupported_decoding(run.config.decoding)
        )

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        path = folder / PAGE_FILE
        path.write_text(render_model_page(run, self._precision), encoding="utf-8")
        size = path.stat().st_size
        limit = f"at most {MAX_SIZE / 1e6:.0f} MB can be exported"
        message = f"the page would have {size / 1e6:.1f} MB, and {limit}"
        is_smallest = self._precision == _PRECISIONS[-1]
        hint = "train a smaller model" if is_smallest else f"add --dtype {_PRECISIONS[-1]}"
        check(size <= MAX_SIZE, "--to page", message, f"{hint}; nothing was written", RunError)

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        runner = PageRunner.find()
        if runner is None:
            return self._compare_graphs(run, sources)
        expected, limits = greedy_outputs(run, sources)
        path, exact = folder / PAGE_FILE, folder / "fp32.html"
        count = f"{len(sources)} greedy outputs of the page in {runner.name}"
        if self._precision == "fp32":
            check_equal_outputs(expected, runner.search(path, sources, limits), location=str(path))
            return f"{count} are equal, token for token"
        exact.write_text(render_model_page(run, "fp32"), encoding="utf-8")
        check_equal_outputs(expected, runner.search(exact, sources, limits), location=str(path))
        exact.unlink()
        actual = runner.search(path, sources, limits)
        num_equal = sum(one == other for one, other in zip(expected, actual, strict=True))
        return f"{count} are equal in fp32, and {num_equal} of them in {self._precision}"

    def _compare_graphs(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> str:
        """Compare the graphs of the page, whose interpreter cannot run without Node.js."""
        exporter = get_exporter("onnx")
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


def build_page_graphs(model: nn.Module, sizes: VocabSizes, precision: Precision) -> PageGraphs:
    """Capture a model; raise RunError for an operator that the interpreter does not have."""
    captured = graphs.capture_graphs(with_edit_operators(model), sizes)
    names = ["language_model"] if captured.encoder is None else ["encoder", "decoder_step"]
    writer = GraphWriter(precision)
    written = {}
    for name, program in zip(names, filter(None, (captured.encoder, captured.step)), strict=True):
        inputs = captured.step_inputs
        outputs = captured.step_outputs
        if name == "encoder":
            inputs = [graphs.SOURCE_TOKENS, graphs.SOURCE_LENGTHS]
            outputs = captured.encoder_outputs
        exported = to_onnx(program, inputs, outputs, onnx_translations())
        written[name] = writer.write_graph(exported.model_proto.graph)
    check_operators(written)
    return PageGraphs(written, graphs.model_info(captured), bytes(writer.weights))


def describe_sites(model: nn.Module) -> dict[str, Any]:
    """Return what a page needs to know of each attention, by its path, to show and to edit it."""
    decoder = getattr(model, "decoder", None)
    kinds = {site: _kind(site) for site in editable_sites(model) if site.role in ("cross", "self")}
    axis, nothing = without_words([]), np.zeros((0, 0, 0))
    layers = [
        AttentionLayer(kind, axis, axis, nothing, path=site.path) for site, kind in kinds.items()
    ]
    marked = mark_output_layers(layers, decoder)
    return {
        site.path: {
            "type": layer.kind,
            "is_default": layer.is_default,
            "num_heads": site.num_heads,
            "attends_to_source": site.attends_to_source,
        }
        for site, layer in zip(kinds, marked, strict=True)
    }


def _kind(site: AttentionSite) -> str:
    if site.role == "cross":
        return "cross"
    return "encoder-self" if site.attends_to_source else "decoder-self"


def _unsupported_decoding(config: DecodingConfig) -> str | None:
    """Return the first setting that a page would need to obey and does not have."""
    default = DecodingConfig()
    for name in DecodingConfig.model_fields:
        if name not in _TRANSLATED and getattr(config, name) != getattr(default, name):
            return f"decoding.{name} is set, and pages have only beam search with a length penalty"
    return None


def render_model_page(run: LoadedRun, precision: Precision) -> str:
    """Return the page of a run."""
    captured = build_page_graphs(run.model, VocabSizes.from_tokenizers(run.tokenizers), precision)
    description = {
        "graphs": captured.graphs,
        "info": captured.info,
        "sites": describe_sites(run.model),
        "tokenizers": describe_tokenizers(run.config.tokenizers, run.tokenizers),
        "decoding": _describe_decoding(run.config.decoding),
        "labels": {"start": BOS_LABEL, "end": EOS_LABEL},
    }
    compressed = gzip.compress(captured.weights, 9, mtime=0)
    parts = {
        "model": description,
        "weights": base64.b64encode(compressed).decode(),
        "worker": bundle_modules("page-worker.js"),
        "page": {"examples": _examples(run), "beam_size": _beam_size(run.config.decoding)},
    }
    digests = {name: _sha256(to_script_json(part)) for name, part in parts.items()}
    return render_page(
        read_asset("model.html"),
        title=run.config.info.name or "Translator",
        styles=["attention_map.css", "panes.css", "model.css"],
        scripts=["model-page.js"],
        data={**parts, "digests": digests},
        page_type="model",
        has_worker=True,
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _describe_decoding(config: DecodingConfig) -> dict[str, Any]:
    penalty = config.length_penalty.build()
    return {
        **{name: getattr(config, name) for name in _KEPT},
        "beam_size": config.beam_size,
        "length_penalty": penalty._asdict(),
        "stopping": config.stopping.model_dump(mode="json"),
    }


def _beam_size(config: DecodingConfig) -> int:
    """Return the choice of the page that is nearest to the setting of the run."""
    return min(_BEAM_SIZES, key=lambda size: abs(size - config.beam_size))


def _examples(run: LoadedRun) -> list[str]:
    """Return short texts that the run has logged."""
    entries = read_json_lines(Path(run.folder) / "samples.jsonl")
    texts = dict.fromkeys(str(entry.get("source_text") or "") for entry in entries)
    return [text for text in texts if text and len(text) <= _MAX_EXAMPLE][:_NUM_EXAMPLES]


EXPORTER = PageExporter()
