"""Runs as plain files: tensors in safetensors, all settings in config.json, the tokenizers.

Any program with a safetensors reader can open the tensors by our names; `load_folder` builds the
model again, and `heedful import` makes it a run. Invariant: the tensors are bit-equal.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from typing_extensions import override

from heedful.config import validate_settings
from heedful.conversion.exporting import TOKENIZERS
from heedful.conversion.hf_folder import HFFolder, write_hf_folder
from heedful.conversion.interface import Exporter, ImportedRun, build_model
from heedful.errors import DataError, check
from heedful.recipes import Recipe
from heedful.storage.state_dict import load_into_model, unique_weights
from heedful.tasks.prediction import LoadedRun
from heedful.version import VERSION

MODEL_TYPE = "heedful"
_RECIPE = "recipe"

_USAGE = """\
## Use

```python
from safetensors.torch import load_file

tensors = load_file("model.safetensors")  # by name; tied ones once
```

With heedful, in Python and as a run for its commands:

```python
from heedful.conversion.safetensors_export import load_folder

model = load_folder(".").model
```

```bash
heedful import . --run RUN
```
"""


class SafetensorsExporter(Exporter):
    """Tensors, settings and tokenizers as files of their own."""

    name = "safetensors"
    description = "a safetensors file with settings and tokenizers"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return None

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        config = {"model_type": MODEL_TYPE, "heedful_version": VERSION}
        config[_RECIPE] = run.config.model_dump(mode="json")
        write_hf_folder(folder, config, {}, unique_weights(run.model))
        run.tokenizers.save(folder / TOKENIZERS)

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        loaded = load_folder(folder)
        expected, actual = (unique_weights(model) for model in (run.model, loaded.model))
        message, hint = "the tensors differ from those of the run", "please report this run"
        pairs = ((tensor, actual[name]) for name, tensor in expected.items())
        is_equal = expected.keys() == actual.keys() and all(torch.equal(*pair) for pair in pairs)
        check(is_equal, str(folder), message, hint, DataError)
        message = "the tokenizers encode in another way than those of the run"
        texts = [run.tokenizers.source.decode(source) for source in sources]
        ids = (
            loaded.tokenizers.source.encode_batch(texts),
            run.tokenizers.source.encode_batch(texts),
        )
        check(ids[0] == ids[1], str(folder), message, hint, DataError)
        return f"{len(expected)} tensors are bit-equal, {len(texts)} texts have equal tokens"

    @override
    def usage(self, run: LoadedRun) -> str:
        return _USAGE


def read_run(folder: HFFolder) -> ImportedRun:
    """Read an exported folder."""
    location = str(folder.path / "config.json")
    recipe = validate_settings(Recipe, folder.setting(_RECIPE, dict), location=location)
    tokenizers = recipe.tokenizers.load(folder.path / TOKENIZERS)
    return ImportedRun(recipe, tokenizers, folder.read_tensors())


def load_folder(folder: Path | str) -> LoadedRun:
    """Build the model of an exported folder, in evaluation mode."""
    run = read_run(HFFolder(folder))
    model = build_model(run.recipe, run.tokenizers)
    load_into_model(model, run.weights, location=str(folder))
    return LoadedRun(folder, run.recipe, run.tokenizers, model)


EXPORTER = SafetensorsExporter()
