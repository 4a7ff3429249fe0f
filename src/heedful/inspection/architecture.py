"""Blocks of a built model, and the data flow between them, to be drawn.

Blocks come from the tree of modules; equal neighbors become one, with their number. Edges come from
autograd: a block leads to another if the other computes with its output, and no block lies between.
Where a sample or an argmax lies between, there is no gradient, hence no edge. Invariant: each
parameter of the model belongs to one block, and each copy that a block stands for is equal to it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.pytree import tensors_of

VOCABULARY = 999_983
"""Size of the vocabularies of a model to draw: a prime, which no other size has by chance."""
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_VIEWS = re.compile(
    r"(T|M?H?Transpose|Cat|Stack|Views?|UnsafeView|ReshapeAlias|Split\w*|Unbind|Slice|Select"
    r"|Unsqueeze|Squeeze|Permute|Expand|Clone|ToCopy)Backward\d"
)


# ----- boxes -----


@dataclass(eq=False)
class Block:
    """A module, or a parameter, and how it is drawn."""

    role: str
    kind: str
    detail: str = ""
    paths: list[str] = field(default_factory=list)
    children: list["Block"] = field(default_factory=list)
    copies: int = 1
    order: float = float("inf")  # of its first operation
    edges: set[tuple["Block", "Block"]] = field(default_factory=set)  # between children

    @property
    def signature(self) -> tuple[Any, ...]:
        """Equal for blocks that differ in numbers of their names only."""
        role = re.sub(r"\d+", "", self.role)
        return (role, self.kind, self.detail, *(child.signature for child in self.children))

    @property
    def label(self) -> tuple[str, str]:
        """What is written in bold, and beside it."""
        copies = f" \u00d7 {self.copies}" if self.copies > 1 else ""
        return self.role + copies, " ".join(filter(None, (self.kind, self.detail)))


class Architecture(NamedTuple):
    """The blocks of a model; `inputs` has the blocks elsewhere that each top block leads to."""

    root: Block
    inputs: set[tuple[Block, Block]]


def read_architecture(model: nn.Module, outputs: Iterable[Tensor], calls: "Calls") -> Architecture:
    """Return the blocks of a model, and how data flow on the way to outputs of recorded calls."""
    root = Block("", type(model).__name__, paths=[""])
    root.children = list(_blocks(model, "", "", {id(model)}))
    chains = dict(_chains(root, ()))
    owners = _owners(model)
    flow = _Flow(owners, calls)
    flow.read(outputs)
    for path, order in flow.first.items():
        for block in chains[path]:
            block.order = min(block.order, order)
    representatives: dict[Block, Block] = {}
    _fold(root, representatives)
    inputs = set()
    for source, target in sorted(flow.edges):
        edge = _lift(chains[source], chains[target], representatives)
        if edge is not None:
            parent, start, end, deep_end = edge
            parent.edges.add((start, end))
            if parent is root and deep_end is not None:
                inputs.add((start, deep_end))
    return Architecture(root, inputs)


def _owners(model: nn.Module) -> dict[int, str]:
    """Return the path of each parameter that belongs to one module alone."""
    paths: dict[int, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            inner = f"{path}.{name}".strip(".") if module._modules else path
            paths[id(parameter)].append(inner)
    return {key: of_key[0] for key, of_key in paths.items() if len(of_key) == 1}


def _blocks(module: nn.Module, path: str, prefix: str, seen: set[int]) -> Iterator[Block]:
    """Yield the blocks in a module: its own parameters, if it has parts, and its parts."""
    direct = module._parameters if module._modules else {}
    for name, parameter in direct.items():
        if parameter is not None:
            yield Block(name, "", _shape(parameter), [f"{path}.{name}".strip(".")])
    for name, child in module.named_children():
        if id(child) in seen or not is_shown(child):
            continue
        seen.add(id(child))
        inner, role = f"{path}.{name}".strip("."), f"{prefix}{name}"
        if isinstance(child, _CONTAINERS) and not prefix:
            yield from _blocks(child, inner, f"{role} ", seen)
        else:
            yield _block(child, inner, role, seen)


def _block(module: nn.Module, path: str, role: str, seen: set[int]) -> Block:
    block = Block(role, type(module).__name__, sizes_of(module), [path])
    block.children = list(_blocks(module, path, "", seen))
    if len(block.children) == 1:
        _merge(block)
    elif block.children and next(module.parameters(), None) is None:
        block.kind = ", ".join(part.kind for part in block.children)
        block.paths += [inner for part in block.children for inner in part.paths]
        block.children = []
    return block


def _chains(block: Block, outer: tuple[Block, ...]) -> Iterator[tuple[str, tuple[Block, ...]]]:
    """Yield each path with the blocks around it, from the model inwards."""
    chain = (*outer, block)
    yield from ((path, chain) for path in block.paths)
    for child in block.children:
        yield from _chains(child, chain)


def is_shown(module: nn.Module) -> bool:
    """Whether a module is drawn: it has parameters, or is a part of attention."""
    if isinstance(module, _CONTAINERS):
        return any(map(is_shown, module.children()))
    is_attention = type(module).__module__.startswith("heedful.attention.")
    return is_attention or next(module.parameters(), None) is not None


def _merge(block: Block) -> None:
    """Draw a block and the only one in it as one."""
    (child,) = block.children
    block.paths, block.children, block.detail = (
        block.paths + child.paths,
        child.children,
        child.detail,
    )
    if child.children:
        block.kind = child.kind
    elif "Norm" in child.kind:
        block.detail = f"{child.kind} {child.detail}"


def sizes_of(module: nn.Module) -> str:
    """Return the sizes of a module of torch, or the shapes of parameters."""
    match module:
        case nn.Linear():
            sizes = f"{_size(module.in_features)} \u2192 {_size(module.out_features)}"
        case nn.Embedding():
            sizes = f"{_size(module.num_embeddings)} \u00d7 {_size(module.embedding_dim)}"
        case nn.RNNBase():
            sizes = f"{_size(module.input_size)} \u2192 {_size(module.hidden_size)}"
        case nn.Conv1d() | nn.Conv2d():
            kernel = "\u00d7".join(map(str, module.kernel_size))
            sizes = f"{module.in_channels} \u2192 {module.out_channels}, kernel {kernel}"
        case _:
            sizes = "" if module._modules else _shapes_of(module)
    return sizes


def _shapes_of(module: nn.Module) -> str:
    shapes = {name: _shape(one) for name, one in module._parameters.items() if one is not None}
    if set(shapes) <= {"weight", "bias"}:  # of a norm
        return shapes.get("weight", "")
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())


def _shape(parameter: Tensor) -> str:
    return " \u00d7 ".join(map(_size, parameter.shape)) or "1"


def _size(size: int) -> str:
    more = size - VOCABULARY
    if not 0 <= more < 100:
        return f"{size:,}"
    return f"vocabulary + {more}" if more else "vocabulary"


def _fold(block: Block, representatives: dict[Block, Block]) -> None:
    """Sort the children by their first operation, and keep one of equal neighbors."""
    for earlier, later in pairwise(block.children):
        if later.order == float("inf"):  # nothing is known: after the one before it
            later.order = earlier.order
    block.children.sort(key=lambda child: child.order)
    kept = []
    for _, group in groupby(block.children, key=lambda child: child.signature):
        first, *others = group
        first.copies = 1 + len(others)
        if others:
            last = others[-1].role.removeprefix(first.role.rstrip("0123456789"))
            first.role = f"{first.role} \u2013 {last}"
        representatives.update(dict.fromkeys([first, *others], first))
        _fold(first, representatives)
        kept.append(first)
    block.children = kept


def _lift(
    source: Sequence[Block], target: Sequence[Block], representatives: dict[Block, Block]
) -> tuple[Block, Block, Block, Block | None] | None:
    """Return the block around both, the blocks in it, and the innermost box of the target."""
    depth = sum(first is second for first, second in zip(source, target, strict=False))
    if depth == min(len(source), len(target)):
        return None
    if any(representatives.get(one, one) is not one for one in source[1:depth]):
        return None
    start, end = representatives.get(source[depth]), representatives.get(target[depth])
    if start is None or end is None or start is end:
        return None
    innermost = target[depth]
    for place, block in enumerate(target[depth + 1 :], depth):
        if representatives[innermost] is not innermost:
            return source[depth - 1], start, end, None
        if has_rows(innermost, place):
            break
        innermost = block
    return source[depth - 1], start, end, representatives.get(innermost)


def has_rows(block: Block, depth: int) -> bool:
    """Whether the children of a block are lines of text, not boxes with arrows."""
    parts = block.children
    return depth >= 2 and not any(part.children or part.role == "attention" for part in parts)


# ----- data flow -----

Calls = dict[Any, str]
"""The operations whose results drawn modules returned, with the paths of the modules."""


def record_calls(model: nn.Module) -> Calls:
    """Record the results of all drawn modules from now on, of the innermost ones first."""
    calls: Calls = {}

    def record(path: str, inputs: Any, output: Any) -> None:
        passed = {tensor.grad_fn for tensor in _tensors(inputs)}
        for tensor in _tensors(output):
            if tensor.grad_fn is not None and tensor.grad_fn not in passed:
                calls.setdefault(tensor.grad_fn, path)

    for path, module in model.named_modules():
        if path and is_shown(module) and not isinstance(module, _CONTAINERS):
            module.register_forward_hook(
                lambda _, args, kwargs, output, path=path: record(
                    path, (args, tuple(kwargs.values())), output
                ),
                with_kwargs=True,
            )
    return calls


class _Flow:
    """The edges between owners of operations in a graph of autograd."""

    def __init__(self, owners: dict[int, str], calls: Calls) -> None:
        self.edges: set[tuple[str, str]] = set()
        self.first: dict[str, int] = {}
        self._owners = owners
        self._calls = calls
        self._of_weights: dict[Any, set[str]] = {}  # owners of what is computed from parameters
        self._last: dict[Any, set[str]] = defaultdict(set)  # owners of the last operations before

    def read(self, outputs: Iterable[Tensor]) -> None:
        """Add the edges on all ways to these outputs."""
        for node in _topological(tensor.grad_fn for tensor in outputs):
            self._visit(node)

    def _visit(self, node: Any) -> None:
        inputs = [before for before, _ in node.next_functions if before is not None]
        if hasattr(node, "variable"):
            owner = self._owners.get(id(node.variable))
            self._of_weights[node] = {owner} if owner is not None else set()
            return
        weights = set().union(*(self._of_weights.get(one, set()) for one in inputs))
        is_view = _VIEWS.fullmatch(type(node).__name__)
        if inputs and is_view and all(one in self._of_weights for one in inputs):
            self._of_weights[node] = weights
            return
        before = set().union(*(self._last[one] for one in inputs))
        path = self._calls.get(node)
        owners = weights or ({path} if path is not None else set())
        for owner in owners:
            number = node._sequence_nr()
            self.first[owner] = min(number, self.first.get(owner, number))
        inside = {one for one in before if path is not None and one.startswith(f"{path}.")}
        if inside and not weights:  # what comes past them is part of what they return
            self._last[node] = inside
            return
        for owner in owners:
            self.edges |= {(one, owner) for one in before if one != owner}
        self._last[node] = owners or before


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor | tuple):
        for part in [value] if isinstance(value, Tensor) else value:
            yield from tensors_of(part) if isinstance(part, Tensor) else _tensors(part)


def _topological(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes of a graph, each after those that it depends on."""
    seen: set[Any] = set()
    stack = [(root, False) for root in roots if root is not None]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(before, False) for before, _ in node.next_functions if before is not None]
