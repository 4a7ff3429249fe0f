"""Imported GPT-2, BERT, RoBERTa and DistilBERT models, also trained further, as they came.

The run has kept settings and tokenizer files of the original; its tensors go through the table of
the importer, which defines `read_order(folder)` and `export_tensors(folder, weights)`. Invariant:
transformers opens the same model as before the import.
"""

import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from heedful.conversion.hf_folder import CONFIG, WEIGHTS, HFFolder
from heedful.conversion.registry import HF_IMPORTERS
from heedful.data.text.token_stream import LMBatch
from heedful.errors import DataError, check
from heedful.models.language_model import LanguageModel
from heedful.runs import Run
from heedful.storage.state_dict import save_weights, unique_weights
from heedful.tasks.prediction import LoadedRun
from heedful.tokenization.vocabulary import BOS, EOS

_TOLERANCE = 1e-3  # of log-probabilities
_USAGE = """\
## Use

Settings and tokenizer files are those of the model that was imported. In this folder:

```python
from transformers import {auto_class}, AutoTokenizer

model = {auto_class}.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""
_MISSING = """\

The pooler and the heads of other tasks are not in it, as the import does not read them:
transformers initializes them at random.
"""


def original_folder(run: LoadedRun) -> HFFolder | None:
    """Return the files of the folder that a language model was imported from; None if none."""
    path = Run(run.folder).original
    return HFFolder(path) if (path / CONFIG).is_file() else None


def write(run: LoadedRun, original: HFFolder, folder: Path) -> None:
    """Write the tensors of a run, and the original settings and tokenizer files."""
    for path in original.small_files:
        shutil.copyfile(path, folder / path.name)
    tensors = _importer(original).export_tensors(original, unique_weights(run.model))
    save_weights(tensors, folder / WEIGHTS, {"format": "pt"})


def compare(
    run: LoadedRun, original: HFFolder, folder: Path, sources: Sequence[Sequence[int]]
) -> str:
    """Compare log-probabilities of the tokens of sources, which are our ids."""
    import transformers

    auto_class = getattr(transformers, _auto_class(original))
    model = auto_class.from_pretrained(folder, dtype=torch.float32).eval()
    order = _importer(original).read_order(original)
    is_causal = isinstance(run.model, LanguageModel)
    difference = 0.0
    for source in sources:
        tokens = torch.tensor([list(source) if is_causal else [*source, EOS]])
        read = tokens if is_causal else torch.tensor([[BOS, *source, EOS]])
        with torch.no_grad():
            native = run.model(LMBatch(tokens, tokens)).log_probs
            logits = model(torch.tensor(order.rows)[read]).logits[:, -native.size(1) :]
        ids = {row: our_id for row, our_id in order.vocab_ids().items() if our_id < native.size(-1)}
        foreign = logits[..., list(ids)].log_softmax(-1)
        difference = max(difference, float((native[..., list(ids.values())] - foreign).abs().max()))
    message = f"log-probabilities differ by {difference:.2g} from those of the run"
    hint = "with the model settings of the import they are equal; --to safetensors has all settings"
    check(difference < _TOLERANCE, str(folder), message, hint, DataError)
    return f"log-probabilities of {len(sources)} sample texts equal those of the run"


def describe_usage(original: HFFolder) -> str:
    """Return the section of the model card with a program that opens the folder."""
    auto_class = _auto_class(original)
    missing = "" if auto_class == "AutoModelForCausalLM" else _MISSING
    return _USAGE.format(auto_class=auto_class) + missing


def _importer(original: HFFolder) -> Any:
    return import_module(HF_IMPORTERS[original.model_type])


def _auto_class(original: HFFolder) -> str:
    return "AutoModelForCausalLM" if original.model_type == "gpt2" else "AutoModelForMaskedLM"
