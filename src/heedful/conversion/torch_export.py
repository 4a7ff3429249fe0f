"""Runs as programs of torch.export: `model.pt2`, and `encoder.pt2` and `step.pt2` for decoding.

`model.pt2` is the plain model with teacher forcing, captured without a graph break. Files are
opened with `torch.export.load`, which needs only torch. Invariant: sizes other than those of
capturing give what the model gives.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from typing_extensions import override

from heedful.conversion import graphs
from heedful.conversion.exporting import Program, describe_program, sample_targets, write_program
from heedful.conversion.graph_capture import explain_capture_errors
from heedful.conversion.hf_folder import write_json
from heedful.conversion.interface import Exporter
from heedful.data.text.batching import collate_sources
from heedful.errors import DataError, check
from heedful.models.language_model import LanguageModel
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes

_TOLERANCE = 1e-4  # of log-probabilities in fp32


_LOAD = """
def load(name):
    program = torch.export.load(FOLDER / f"{name}.pt2")
    return program.module(check_guards=False)


info = json.loads((FOLDER / "model.json").read_text(encoding="utf-8"))
step = load("step")


def start(state, sizes):
    for tensor in info["state"]:
        shape = [size if isinstance(size, int) else sizes.get(size, 0) for size in tensor["shape"]]
        zeros = torch.zeros(shape, dtype=getattr(torch, tensor["type"]))
        state.setdefault(tensor["name"], zeros)
    return state


def advance(tokens, state):
    inputs = [tokens if name == "tokens" else state[name] for name in info["step_inputs"]]
    outputs = dict(zip(info["step_outputs"], step(*inputs)))
    changed = {name.removeprefix("next."): value for name, value in outputs.items()}
    return outputs["log_probs"][..., -1, :].argmax(-1), state | changed
"""
_TRANSLATE = (
    _LOAD
    + """
encoder = load("encoder")


@torch.inference_mode()
def translate(text):
    ids = [*source.encode(text), info["eos"]]
    first = encoder(torch.tensor([ids]), torch.tensor([len(ids)]))
    state = dict(zip(info["encoder_outputs"], first))
    state = start(state, {"batch": 1, "source": len(ids)})
    output, tokens = [], torch.tensor([info["bos"]])
    while len(output) < max_length(ids[:-1]):
        token, state = advance(tokens, state)
        if token == info["eos"]:
            break
        output.append(int(token))
        tokens = torch.tensor(output[-1:])
    return target.decode(output) if ids[1:] else ""
"""
)
_GENERATE = (
    _LOAD
    + """

@torch.inference_mode()
def generate(text, num_tokens=20):
    output, tokens = [], torch.tensor([source.encode(text)])
    state = start({}, {"batch": 1})
    for _ in range(num_tokens):
        token, state = advance(tokens, state)
        output.append(int(token))
        tokens = torch.tensor([output[-1:]])
    return target.decode(output)
"""
)
_NOTE = """\
`model.pt2` is the model with teacher forcing, loaded with
`torch.export.load("model.pt2").module(check_guards=False)`: its inputs are {inputs}, token ids
(batch, length), padded with 0; sources end with EOS, id 3, and decoder inputs begin with BOS, id 2.
`model.json` names the inputs and outputs of the other programs."""


class TorchExporter(Exporter):
    """Programs of torch.export."""

    name = "torch"
    description = "torch.export programs"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return graphs.why_no_graphs(run) or graphs.why_no_forward(run)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        sizes = VocabSizes.from_tokenizers(run.tokenizers)
        captured = graphs.capture_graphs(run.model, sizes)
        programs = {"model": graphs.capture_forward(run.model, sizes), "step": captured.step}
        if captured.encoder is not None:
            programs["encoder"] = captured.encoder
        for name, program in programs.items():
            contents = io.BytesIO()  # torch reports errors of a disk without their cause
            with explain_capture_errors():
                torch.export.save(program, contents)
            (folder / f"{name}.pt2").write_bytes(contents.getbuffer())
        write_json(folder / "model.json", graphs.model_info(captured))
        write_program(run, folder, _program(run))

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        program = torch.export.load(folder / "model.pt2").module(check_guards=False)
        is_lm = isinstance(run.model, LanguageModel)
        plain = graphs.ForwardGraph(run.model)
        largest = 0.0
        for source in sources:
            batch = collate_sources([source])
            targets = sample_targets(run, [source])
            inputs = (targets,) if is_lm else (*batch, targets)
            with torch.inference_mode():
                difference = (program(*inputs) - plain(*inputs)).abs()
            largest = max(largest, float(difference.max()))
        message = f"log-probabilities differ by {largest:.2g} from those of the run"
        hint = "please report this run: nothing was written"
        check(largest <= _TOLERANCE, str(folder), message, hint, DataError)
        return f"log-probabilities for {len(sources)} texts differ by {largest:.1g} at most"

    @override
    def usage(self, run: LoadedRun) -> str:
        return describe_program(run, _program(run))


def _program(run: LoadedRun) -> Program:
    is_lm = isinstance(run.model, LanguageModel)
    inputs = "`tokens`" if is_lm else "`source_tokens`, `source_lengths` and `decoder_inputs`"
    code = _GENERATE if is_lm else _TRANSLATE
    return Program("import json\n\nimport torch", code, "torch", _NOTE.format(inputs=inputs))


EXPORTER = TorchExporter()
