"""Model folders of Hugging Face: config.json and tensors in safetensors files, whole or in shards.

Nothing is unpickled: a folder with only `pytorch_model.bin` is an error. Invariant: a folder that
was written is read back with equal tensors.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from heedful.errors import DataError, check
from heedful.storage.json_files import read_json
from heedful.storage.state_dict import save_weights

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
    "flax_model.msgpack",
)
_AGAIN_HINT = "download the folder again"


class HFFolder:
    """A folder that `save_pretrained` of the package transformers writes."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        message = "not a folder of a Hugging Face model: it has no config.json"
        hint = "name a folder with config.json and model.safetensors"
        check((self.path / CONFIG).is_file(), str(self.path), message, hint, DataError)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of the model."""
        return self.read_json(CONFIG)

    @property
    def model_type(self) -> str:
        """The architecture, such as "marian"."""
        return str(self.config.get("model_type", ""))

    @property
    def generation_config(self) -> dict[str, Any]:
        """Decoding settings: generation_config.json, which takes precedence, and config.json."""
        settings = self.read_json(GENERATION_CONFIG) if self.has(GENERATION_CONFIG) else {}
        defined = {name: value for name, value in settings.items() if value is not None}
        return {**self.config, **defined}

    @property
    def small_files(self) -> list[Path]:
        """Settings and tokenizer files: all but the tensors."""
        names = (CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES)
        return [self.path / name for name in names if self.has(name)]

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.path / name).is_file()

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON object from a file."""
        path = self.path / name
        try:
            contents = read_json(path)
        except (OSError, ValueError):
            raise DataError(str(path), "missing, or not JSON", _AGAIN_HINT) from None
        check(isinstance(contents, dict), str(path), "not a JSON object", _AGAIN_HINT, DataError)
        return contents

    def setting(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a setting of config.json; raise DataError if it has another type."""
        value = self.config.get(name)
        value = default if value is None else value
        kinds = (int, float) if kind is float else (kind,)
        is_valid = isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))
        message = f"{name} must be {_TYPE_NAMES[kind]}, but is {value!r}"
        check(is_valid, str(self.path / CONFIG), message, _AGAIN_HINT, DataError)
        return value

    def read_tensors(self) -> dict[str, Tensor]:
        """Read all tensors, of all shards."""
        if self.has(WEIGHTS):
            return read_safetensors(self.path / WEIGHTS)
        if not self.has(INDEX):
            raise self._no_safetensors()
        weight_map = self.read_json(INDEX).get("weight_map")
        is_valid = isinstance(weight_map, dict)
        check(is_valid, str(self.path / INDEX), "has no weight_map", _AGAIN_HINT, DataError)
        assert isinstance(weight_map, dict)
        tensors: dict[str, Tensor] = {}
        for shard in sorted(set(map(str, weight_map.values()))):
            path = self.path / shard
            message = f"a shard that {INDEX} names is missing"
            is_inside = path.parent == self.path and path.is_file()
            check(is_inside, str(path), message, _AGAIN_HINT, DataError)
            tensors |= read_safetensors(path)
        for name, shard in weight_map.items():
            message = f"the tensor {name}, which {INDEX} names, is missing"
            check(name in tensors, str(self.path / str(shard)), message, _AGAIN_HINT, DataError)
        return tensors

    def _no_safetensors(self) -> DataError:
        pickled = next((name for name in _PICKLES if self.has(name)), None)
        if pickled is None:
            return DataError(str(self.path), f"has no {WEIGHTS}", _AGAIN_HINT)
        message = f"the weights are in {pickled}, which can run code when read; it is never opened"
        hint = "convert them where you trust them: load the model with transformers and call "
        return DataError(str(self.path), message, f"{hint}save_pretrained(FOLDER)")


_TYPE_NAMES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    dict: "an object",
}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file; raise DataError if it is not complete."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        reason = str(error).removeprefix("Error while deserializing header: ")
        message = f"not a complete safetensors file ({reason})"
        raise DataError(str(path), message, _AGAIN_HINT) from None


def write_hf_folder(
    folder: Path,
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a model into an existing folder, in one safetensors file."""
    for name, settings in ((CONFIG, config), (GENERATION_CONFIG, generation_config)):
        write_json(folder / name, settings)
    save_weights(tensors, folder / WEIGHTS, {"format": "pt"})


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a JSON file."""
    text = json.dumps(contents, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
