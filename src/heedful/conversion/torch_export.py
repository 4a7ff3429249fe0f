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
from heedful.conversion.exporting import Exporter
from heedful.conversion.graph_capture import explain_capture_errors
from heedful.conversion.hf_folder import write_json
from heedful.conversion.model_card import TOKENIZERS
from heedful.data.batching import collate_sources
from heedful.errors import DataError, check
from heedful.models.language_model import LanguageModel
from heedful.tasks.task import LoadedRun
from heedful.tokenization.vocabulary import BOS

_TOLERANCE = 1e-4  # of log-probabilities in fp32


_SEQ2SEQ_INPUTS = "source_tokens, source_lengths, decoder_inputs"
_USAGE = """\
## Use

```python
import torch

model = torch.export.load("model.pt2").module(check_guards=False)
# log_probs = model({inputs})
```

Inputs are token ids (batch, length), padded with 0; sources end with EOS, id 3, and decoder inputs
begin with BOS, id 2. `model.json` names the inputs and outputs of the other programs.
"""


class TorchExporter(Exporter):
    """Programs of torch.export."""

    name = "torch"
    description = "torch.export programs"

    @override
    def why_unsupported(self, run: LoadedRun) -> str | None:
        return graphs.why_no_graphs(run) or graphs.why_no_forward(run)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        vocab_size = len(run.tokenizers.target)
        captured = graphs.capture_graphs(run.model, vocab_size)
        programs = {"model": graphs.capture_forward(run.model, vocab_size), "step": captured.step}
        if captured.encoder is not None:
            programs["encoder"] = captured.encoder
        for name, program in programs.items():
            contents = io.BytesIO()  # torch reports errors of a disk without their cause
            with explain_capture_errors():
                torch.export.save(program, contents)
            (folder / f"{name}.pt2").write_bytes(contents.getbuffer())
        write_json(folder / "model.json", graphs.model_info(captured))
        run.tokenizers.save(folder / TOKENIZERS)

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        program = torch.export.load(folder / "model.pt2").module(check_guards=False)
        is_lm = isinstance(run.model, LanguageModel)
        plain = graphs.ForwardGraph(run.model)
        largest = 0.0
        for source in sources:
            batch = collate_sources([source])
            targets = torch.tensor([[BOS, *source]])
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
        inputs = "tokens" if isinstance(run.model, LanguageModel) else _SEQ2SEQ_INPUTS
        return _USAGE.format(inputs=inputs)


EXPORTER = TorchExporter()
