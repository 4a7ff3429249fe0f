"""Runs as ONNX: `encoder.onnx` and `decoder_step.onnx`, or `language_model.onnx`.

`model.json` names the tensors of the state; `onnx_runner.py` shows how to use them.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from typing_extensions import override

from heedful.conversion import graphs, onnx_runner
from heedful.conversion.exporting import (
    Program,
    check_equal_outputs,
    describe_program,
    greedy_outputs,
    write_program,
)
from heedful.conversion.graph_capture import to_onnx
from heedful.conversion.hf_folder import write_json
from heedful.conversion.interface import Exporter
from heedful.models.language_model import LanguageModel
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes

_NUM_GENERATED = 12
_TRANSLATE = """
model = OnnxModel(FOLDER)


def translate(text):
    tokens = source.encode(text)
    [output] = model.translate([tokens], [max_length(tokens)])
    return target.decode(output) if tokens else ""
"""
_GENERATE = """
model = OnnxModel(FOLDER)


def generate(text, num_tokens=20):
    return target.decode(model.generate(source.encode(text), num_tokens))
"""


class OnnxExporter(Exporter):
    """ONNX graphs for onnxruntime."""

    name = "onnx"
    description = "a folder of ONNX graphs"
    packages = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return graphs.why_no_graphs(run)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        write_graphs(run.model, VocabSizes.from_tokenizers(run.tokenizers), folder)
        write_program(run, folder, _program(run))

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        model = onnx_runner.OnnxModel(folder)
        if isinstance(run.model, LanguageModel):
            expected = graphs.continue_prompts(run.model, sources, _NUM_GENERATED)
            actual = [model.generate(prompt, _NUM_GENERATED) for prompt in sources]
        else:
            expected, limits = greedy_outputs(run, sources)
            actual = model.translate(sources, limits)
        check_equal_outputs(expected, actual, location=str(folder))
        return f"{len(sources)} greedy outputs of onnxruntime are equal, token for token"

    @override
    def usage(self, run: LoadedRun) -> str:
        return describe_program(run, _program(run))


def _program(run: LoadedRun) -> Program:
    is_lm = isinstance(run.model, LanguageModel)
    code = _GENERATE if is_lm else _TRANSLATE
    graphs_used = "`language_model.onnx`: with a prompt, then with one token at a time"
    if not is_lm:
        graphs_used = "`encoder.onnx` once, `decoder_step.onnx` for each token"
    note = f"`onnx_runner.py` is 100 lines that show how the graphs are called: {graphs_used}."
    return Program("from onnx_runner import OnnxModel", code, "onnxruntime numpy", note)


def write_graphs(model: nn.Module, vocab_sizes: VocabSizes, folder: Path) -> None:
    """Write the graphs of a model, model.json and the runner."""
    captured = graphs.capture_graphs(model, vocab_sizes)
    names = ["language_model"]
    if captured.encoder is not None:
        names = ["encoder", "decoder_step"]
        inputs = [graphs.SOURCE_TOKENS, graphs.SOURCE_LENGTHS]
        _write_graph(captured.encoder, folder / "encoder.onnx", inputs, captured.encoder_outputs)
    path = folder / f"{names[-1]}.onnx"
    _write_graph(captured.step, path, captured.step_inputs, captured.step_outputs)
    write_json(folder / "model.json", {"graphs": names, **graphs.model_info(captured)})
    shutil.copyfile(onnx_runner.__file__, folder / "onnx_runner.py")


def _write_graph(
    program: torch.export.ExportedProgram, path: Path, inputs: list[str], outputs: list[str]
) -> None:
    to_onnx(program, inputs, outputs).save(path)


EXPORTER = OnnxExporter()
