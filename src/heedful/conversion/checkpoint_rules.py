"""What checkpoints of JoeyNMT, OpenNMT-py and Eole have in common: settings, vocabularies, tensors.

Invariant: a setting that changes the outputs of a model is converted, or an error names it.
"""

import reprlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.conversion.interface import ImportedRun, build_recipe, expected_weights
from heedful.conversion.tensor_names import (
    TensorLayout,
    TensorRule,
    TensorTable,
    VocabularyOrder,
    layout_of_one,
    tensor,
)
from heedful.errors import DataError, check
from heedful.tokenization.imported import ImportedTokenizerConfig
from heedful.tokenization.tokenizer import Tokenizer, VocabularyTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, Vocabulary

# ----- settings of the other toolkit


class CheckpointSettings:
    """Settings of another toolkit; an error names the file and the setting."""

    def __init__(self, values: Mapping[str, Any], location: str, prefix: str = "") -> None:
        self.values, self.location, self.prefix = values, location, prefix

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Return a setting, or its default; raise DataError if it has another type."""
        value = self.values.get(name)
        value = default if value is None else value
        kinds = kind if isinstance(kind, tuple) else (kind,)
        is_valid = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        value_text = reprlib.repr(value)  # of a nested value, all of it could have no end
        message = f"{self.prefix}{name} must be of type {kinds[0].__name__}, but is {value_text}"
        check(is_valid, self.location, message, "the setting is needed to import", DataError)
        return value

    def section(self, name: str, *, is_needed: bool = True) -> "CheckpointSettings":
        """Return a section of the settings."""
        values = self.get(name, dict, None if is_needed else {})
        return CheckpointSettings(values, self.location, f"{self.prefix}{name}.")

    def require_one_of(self, name: str, allowed: Collection[Any]) -> None:
        """Raise DataError if a setting is given and is not one of these values."""
        value = self.values.get(name)
        if value is None or value in allowed:
            return
        value_text = reprlib.repr(value)
        message = f"{self.prefix}{name} is {value_text}, which heedful has no counterpart of"
        values = ", ".join(map(repr, allowed))
        raise DataError(self.location, message, f"models with one of these can be read: {values}")

    def require_off(self, *names: str) -> None:
        """Raise DataError if one of these settings is on."""
        for name in names:
            self.require_one_of(name, (0, 0.0, False, "", "none", [], None))


def find_file(folder: Path, named: str, default: str) -> Path:
    """Return a file that settings name: only its name counts, in the folder of the checkpoint."""
    name = Path(named).name or default
    file = next(filter(Path.is_file, (folder / default, folder / name)), None)
    hint = "copy it into the folder of the checkpoint"
    check(file, str(folder), f"the file {name} is missing", hint, DataError)
    assert file is not None
    return file


# ----- models


class Side(NamedTuple):
    """The tokenizer of a side, and the order of its ids."""

    tokenizer: Tokenizer
    settings: dict[str, Any]  # of the tokenizer in a recipe
    order: VocabularyOrder
    vocabulary: Vocabulary


def build_side(
    config: VocabularyTokenizerConfig | ImportedTokenizerConfig,
    order: VocabularyOrder,
    tokens: Sequence[str],
    path: Path | None = None,
    data: bytes = b"",
) -> Side:
    """Return a side from the settings of its tokenizer, its tokens, and a file read from `path`."""
    vocabulary = Vocabulary(tokens)
    tokenizer: Tokenizer
    if isinstance(config, VocabularyTokenizerConfig):
        tokenizer = config.tokenizer_class(vocabulary, config.normalization.normalize)
    else:
        try:
            tokenizer = config.build(vocabulary, data)
        except ValueError as error:
            raise DataError(str(path), str(error), "restore the file of the tokenizer") from None
    return Side(tokenizer, config.model_dump(mode="json"), order, vocabulary)


def order_vocabulary(
    tokens: Sequence[str], *, pad: str, unk: str, bos: str, eos: str, location: str
) -> tuple[VocabularyOrder, list[str]]:
    """Return the order of their tokens, and those without the special ones."""
    ids = {token: index for index, token in enumerate(tokens)}
    message = "contains a token twice"
    check(len(ids) == len(tokens), location, message, "restore the list", DataError)
    for name in (pad, unk, bos, eos):
        message = f"the vocabulary has no special token {name!r}"
        check(name in ids, location, message, "restore the list of tokens", DataError)
    order = VocabularyOrder.from_special_tokens(
        len(tokens), pad=ids[pad], unk=ids[unk], decoder_start=ids[bos], eos=ids[eos]
    )
    return order, [tokens[row] for row in order.rows[NUM_SPECIAL_TOKENS:]]


def swapped_columns(first: int) -> TensorLayout:
    """Return the layout of a matrix whose first columns there are the last ones here."""

    def unpack(foreign: Tensor) -> Tensor:
        return torch.cat([foreign[:, first:], foreign[:, :first]], dim=1)

    def pack(native: Tensor) -> Tensor:
        rest = native.size(1) - first
        return torch.cat([native[:, rest:], native[:, :rest]], dim=1)

    return layout_of_one(pack, unpack)


def repeated(names: Sequence[str], foreign: str) -> list[TensorRule]:
    """Return the rules of a source layer that initializes several layers."""
    return [
        TensorRule(
            tuple(f"{name}.{part}" for name in names),
            f"{foreign}.{part}",
            TensorLayout(lambda tensors: tensors[0], lambda tensor: [tensor] * len(names)),
        )
        for part in ("weight", "bias")
    ]


def rnn_rules(native: str, foreign: str, suffix: str = "l*") -> list[TensorRule]:
    """Return the rules of the cell of each layer; names of torch.nn end in the layer there."""
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    end = f"_{suffix}" if suffix else ""
    return [tensor(f"{native}.layer.{part}_l0", f"{foreign}.{part}{end}") for part in parts]


def encoder_rnn_rules() -> list[TensorRule]:
    """Return the rules of an encoder that is one `torch.nn` module."""
    forward = rnn_rules("encoder.layers.*.forward_cell", "encoder.rnn")
    backward = rnn_rules("encoder.layers.*.backward_cell", "encoder.rnn", "l*_reverse")
    return [*forward, *backward]


def build_run(
    path: Path,
    settings: Mapping[str, Any],
    sides: tuple[Side, Side],
    rules: Sequence[TensorRule],
    tensors: Mapping[str, Tensor],
    *,
    ignored: Collection[str],
    notes: Sequence[str] = (),
) -> ImportedRun:
    """Return the run of a recipe and of all tensors of a checkpoint."""
    source, target = sides
    tokenizers = TokenizerPair(source.tokenizer, target.tokenizer)
    recipe = build_recipe(
        {
            **settings,
            "tokenizers": {
                "type": "separate",
                "source": source.settings,
                "target": target.settings,
            },
        },
        location=str(path),
    )
    expected = expected_weights(recipe, tokenizers, tensors, location=str(path))
    weights = TensorTable(rules).import_tensors(
        tensors, expected, location=str(path), ignored=ignored, settings="its settings need"
    )
    return ImportedRun(recipe, tokenizers, weights, notes)
