"""Two-way tables of tensor names: those of heedful and of another library.

A table is written once and read in both directions, so that import and export cannot disagree. A
name may contain `*`, a layer index. Invariant: `import_tensors(export_tensors(tensors))`
equals `tensors`, bit for bit.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import DataError
from heedful.storage.state_dict import check_finite

_AGAIN_HINT = "download or write the folder again; nothing was written"


class TensorLayout(NamedTuple):
    """How one tensor of the other library holds one or several of heedful's."""

    pack: Callable[[Sequence[Tensor]], Tensor]
    unpack: Callable[[Tensor], Sequence[Tensor]]


def _only(tensors: Sequence[Tensor]) -> Tensor:
    (tensor,) = tensors
    return tensor


def layout_of_one(
    pack: Callable[[Tensor], Tensor], unpack: Callable[[Tensor], Tensor]
) -> TensorLayout:
    """Return the layout of a tensor that holds one of heedful's."""
    return TensorLayout(lambda tensors: pack(_only(tensors)), lambda tensor: [unpack(tensor)])


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

    ours: tuple[str, ...]
    theirs: str
    layout: TensorLayout = SAME


def tensor(ours: str, theirs: str, layout: TensorLayout = SAME) -> TensorRule:
    """Return the rule of one tensor."""
    return TensorRule((ours,), theirs, layout)


def affine(ours: str, theirs: str, layout: TensorLayout = SAME) -> list[TensorRule]:
    """Return the rules of a layer or norm with weight and bias."""
    return [
        tensor(f"{ours}.weight", f"{theirs}.weight", layout),
        tensor(f"{ours}.bias", f"{theirs}.bias"),
    ]


def nested(ours: str, theirs: str, rules: Iterable[TensorRule]) -> list[TensorRule]:
    """Put both names of rules behind a prefix."""
    return [
        TensorRule(tuple(ours + name for name in rule.ours), theirs + rule.theirs, rule.layout)
        for rule in rules
    ]


class TensorTable:
    """Rules that together name all tensors of a model."""

    def __init__(self, rules: Iterable[TensorRule]) -> None:
        self.rules = list(rules)

    def foreign_names(self, ours: Iterable[str]) -> dict[str, str]:
        """Return their name of each of our tensors that has one."""
        matches = {name: self._find(name) for name in ours}
        return {name: match[0] for name, match in matches.items() if match}

    def export_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return all tensors under their names; raise KeyError for one that no rule names."""
        converted: dict[str, Tensor] = {}
        for name in tensors:
            match = self._find(name)
            if match is None:
                raise KeyError(name)
            theirs, names, rule = match
            if theirs not in converted:
                converted[theirs] = rule.layout.pack([tensors[part] for part in names])
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
            theirs, names, rule = match
            if theirs in used:
                continue
            used.add(theirs)
            if theirs not in tensors:
                raise _error(location, f"the tensor {theirs} is missing")
            needed = [expected[part] for part in names]
            shape = tuple(rule.layout.pack([one.to("meta") for one in needed]).shape)
            actual = tuple(tensors[theirs].shape)
            if actual != shape:
                message = f"the tensor {theirs} has shape {actual}, but {settings} {shape}"
                raise _error(location, message)
            value = tensors[theirs].float()
            check_finite({theirs: value}, location=location, hint=_AGAIN_HINT, error=DataError)
            converted.update(zip(names, rule.layout.unpack(value), strict=True))
        for theirs in tensors:
            if theirs not in used and not any(re.fullmatch(item, theirs) for item in ignored):
                message = f"the tensor {theirs} is of no known part of the model"
                raise _error(location, message)
        return converted

    def _find(self, name: str) -> tuple[str, tuple[str, ...], TensorRule] | None:
        """Return the other library's name, heedful's names of its parts, and the rule."""
        for rule in self.rules:
            for pattern in rule.ours:
                regex = re.escape(pattern).replace(r"\*", r"(\d+)")
                if match := re.fullmatch(regex, name):
                    names = tuple(_fill(ours, match.groups()) for ours in rule.ours)
                    return _fill(rule.theirs, match.groups()), names, rule
        return None


def _fill(pattern: str, indices: Sequence[str]) -> str:
    for index in indices:
        pattern = pattern.replace("*", index, 1)
    return pattern


def _error(location: str, message: str) -> DataError:
    return DataError(location, message, _AGAIN_HINT)
