"""Two-way tables of tensor names, and the order of vocabularies, here and in another library.

A table is written once and read in both directions, so that import and export cannot disagree. A
name may contain `*`, a layer index. Our vocabularies begin with PAD, UNK, BOS and EOS; all others
follow in their order. BOS is the token that a decoder reads first; where that is another special
token there (PAD in Marian, EOS in BART), its row is used twice, and the copy is never predicted.
Invariants: `import_tensors(export_tensors(tensors))` equals `tensors`, bit for bit;
log-probabilities of all tokens are equal.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import DataError, format_count
from heedful.storage.state_dict import check_finite
from heedful.tokenization.vocabulary import BOS, NUM_SPECIAL_TOKENS

_AGAIN_HINT = "download or write the folder again; nothing was written"


class TensorLayout(NamedTuple):
    """How one tensor of the other library holds one or several of heedful's."""

    pack: Callable[[Sequence[Tensor]], Tensor]
    unpack: Callable[[Tensor], Sequence[Tensor]]


def layout_of_one(
    pack: Callable[[Tensor], Tensor], unpack: Callable[[Tensor], Tensor]
) -> TensorLayout:
    """Return the layout of a tensor that holds one of heedful's."""
    return TensorLayout(lambda tensors: pack(*tensors), lambda tensor: [unpack(tensor)])


SAME = layout_of_one(lambda tensor: tensor, lambda tensor: tensor)
TRANSPOSED = layout_of_one(lambda tensor: tensor.T.contiguous(), lambda tensor: tensor.T)
"""A matrix that the other library multiplies from the other side."""


def concatenated(count: int, *, dim: int = 0) -> TensorLayout:
    """Return the layout of a tensor that holds `count` tensors of one size, in order."""
    return TensorLayout(
        lambda tensors: torch.cat(list(tensors), dim=dim), lambda tensor: tensor.chunk(count, dim)
    )


class TensorRule(NamedTuple):
    """Names of heedful's tensors and of the tensor that holds them in the other library."""

    native: tuple[str, ...]
    foreign: str
    layout: TensorLayout = SAME


def tensor(native: str, foreign: str, layout: TensorLayout = SAME) -> TensorRule:
    """Return the rule of one tensor."""
    return TensorRule((native,), foreign, layout)


def affine(native: str, foreign: str, layout: TensorLayout = SAME) -> list[TensorRule]:
    """Return the rules of a layer or norm with weight and bias."""
    return [
        tensor(f"{native}.weight", f"{foreign}.weight", layout),
        tensor(f"{native}.bias", f"{foreign}.bias"),
    ]


def nested(native: str, foreign: str, rules: Iterable[TensorRule]) -> list[TensorRule]:
    """Put both names of rules behind a prefix."""
    return [
        TensorRule(
            tuple(native + name for name in rule.native), foreign + rule.foreign, rule.layout
        )
        for rule in rules
    ]


def attention_rules(native: str, foreign: str, names: Mapping[str, str]) -> list[TensorRule]:
    """Return the rules of multi-head attention; `names` are the names of four projections there."""
    return [
        rule
        for name, foreign_name in names.items()
        for rule in affine(f"{native}.{name}_projection", f"{foreign}.{foreign_name}")
    ]


class TensorTable:
    """Rules that together name all tensors of a model."""

    def __init__(self, rules: Iterable[TensorRule]) -> None:
        self.rules = list(rules)

    def foreign_names(self, native: Iterable[str]) -> dict[str, str]:
        """Return their name of each of our tensors that has one."""
        matches = {name: self._find(name) for name in native}
        return {name: match[0] for name, match in matches.items() if match}

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return all tensors under their names; raise KeyError for one that no rule names."""
        converted: dict[str, Tensor] = {}
        for name in tensors:
            match = self._find(name)
            if match is None:
                raise KeyError(name)
            foreign, names, rule = match
            if foreign not in converted:
                converted[foreign] = rule.layout.pack([tensors[part] for part in names])
        return converted

    def import_tensors(
        self,
        tensors: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        *,
        location: str,
        ignored: Collection[str] = (),
        settings: str = "its config.json needs",
    ) -> dict[str, Tensor]:
        """Return the tensors, in fp32, of a model that has the names and shapes of `expected`.

        A missing tensor, another shape, NaN, and a tensor that the model does not have are errors,
        but for the `ignored` patterns of their names.
        """
        converted: dict[str, Tensor] = {}
        used: set[str] = set()
        for name in expected:
            match = self._find(name)
            assert match is not None, f"no rule for {name}"
            foreign, names, rule = match
            if foreign in used:
                continue
            used.add(foreign)
            if foreign not in tensors:
                raise _error(location, f"the tensor {foreign} is missing")
            needed = [expected[part] for part in names]
            shape = tuple(rule.layout.pack([one.to("meta") for one in needed]).shape)
            actual = tuple(tensors[foreign].shape)
            if actual != shape:
                message = f"the tensor {foreign} has shape {actual}, but {settings} {shape}"
                raise _error(location, message)
            value = tensors[foreign].float()
            check_finite({foreign: value}, location=location, hint=_AGAIN_HINT, error=DataError)
            converted.update(zip(names, rule.layout.unpack(value), strict=True))
        for foreign in tensors:
            if foreign not in used and not any(re.fullmatch(item, foreign) for item in ignored):
                message = f"the tensor {foreign} is of no known part of the model"
                raise _error(location, message)
        return converted

    def _find(self, name: str) -> tuple[str, tuple[str, ...], TensorRule] | None:
        """Return the other library's name, heedful's names of its parts, and the rule."""
        for rule in self.rules:
            for pattern in rule.native:
                regex = re.escape(pattern).replace(r"\*", r"(\d+)")
                if match := re.fullmatch(regex, name):
                    names = tuple(_fill(native, match.groups()) for native in rule.native)
                    return _fill(rule.foreign, match.groups()), names, rule
        return None


def _fill(pattern: str, indices: Sequence[str]) -> str:
    for index in indices:
        pattern = pattern.replace("*", index, 1)
    return pattern


def _error(location: str, message: str) -> DataError:
    return DataError(location, message, _AGAIN_HINT)


# ----- the order of a vocabulary

NO_ROW = -1
NEVER_LOGIT = -1e4
"""Added to the logit of a token that is never predicted: exp(-1e4) is 0, and its loss is finite."""


class VocabularyOrder(NamedTuple):
    """Which row of their tables each of our ids has."""

    rows: tuple[int, ...]  # by our id; NO_ROW for a token that they do not have
    num_rows: int  # of their tables

    @classmethod
    def from_special_tokens(
        cls,
        size: int,
        *,
        pad: int,
        unk: int | None,
        decoder_start: int,
        eos: int,
        text_token: int | None = None,
    ) -> "VocabularyOrder":
        """Return the order of a vocabulary with these ids of special tokens.

        `text_token` is part of texts, also if decoders read it first.
        """
        for row in (pad, unk or 0, decoder_start, eos):
            if not 0 <= row < size:
                raise ValueError(f"the special token {row} of {format_count(size, 'token')}")
        special = (pad, NO_ROW if unk is None else unk, decoder_start, eos)
        others = [row for row in range(size) if row not in special or row == text_token]
        return cls((*special, *others), size)

    def tokens(self, names: Sequence[str]) -> list[str]:
        """Return the names of our tokens, without the special ones, of names by their id."""
        return [names[row] for row in self.rows[NUM_SPECIAL_TOKENS:]]

    def vocab_ids(self) -> dict[int, int]:
        """Return heedful's id of each of their ids; BOS only where it is no copy."""
        copies = set(self._copies)
        ids = {row: index for index, row in enumerate(self.rows) if index not in copies}
        ids.pop(NO_ROW, None)
        return ids

    @property
    def _copies(self) -> list[int]:
        """Our ids that are never predicted: a copy of another token, or not in their vocabulary."""
        has_copy = self.rows.count(self.rows[BOS]) > 1
        missing = [index for index, row in enumerate(self.rows) if row == NO_ROW]
        return [*missing, *([BOS] if has_copy else [])]

    @property
    def table_layout(self) -> TensorLayout:
        """The layout of an embedding table, or of the weights of an output layer."""
        return layout_of_one(self._pack, self._pick)

    @property
    def bias_layout(self) -> TensorLayout:
        """The layout of the bias of logits, which is (1, size) there."""

        def unpack(foreign: Tensor) -> Tensor:
            bias = self._pick(foreign.squeeze(0)).clone()
            bias[self._copies] = NEVER_LOGIT
            return bias

        return layout_of_one(lambda native: self._pack(native).unsqueeze(0), unpack)

    def _pick(self, foreign: Tensor) -> Tensor:
        rows = torch.tensor(self.rows)
        picked = foreign[rows.clamp(min=0)]
        picked[rows == NO_ROW] = 0
        return picked

    def _pack(self, native: Tensor) -> Tensor:
        if self.rows == tuple(range(self.num_rows)):
            return native
        foreign = native.new_zeros(self.num_rows, *native.shape[1:])
        if not native.is_meta:
            ids = self.vocab_ids()
            foreign[list(ids)] = native[list(ids.values())]
        return foreign


def identity_order(size: int) -> VocabularyOrder:
    """Return the order of an exported vocabulary, whose ids are the same."""
    return VocabularyOrder(tuple(range(size)), size)
