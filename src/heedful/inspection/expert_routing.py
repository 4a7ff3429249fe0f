"""Which experts of a mixture processed which token, and with which gates.

Invariant: the gates of a token are those by which the outputs of its experts were weighted; they
sum to 1, unless a token has no expert.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from heedful.inspection.attention_layers import AttentionLayer
from heedful.layers.expert_gates import Routing
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.shapes import Float

_DIGITS = 6  # of numbers in JSON


class ExpertRouting(NamedTuple):
    """The gates of one mixture of experts for one text."""

    path: str
    """Of the module in the model."""
    tokens: Sequence[str]
    """Of a decoder those that it predicts, of an encoder those that it reads."""
    gates: Float[np.ndarray, "T X"]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        gates = self.gates.astype(np.float64).round(_DIGITS).tolist()
        return {"path": self.path, "tokens": list(self.tokens), "gates": gates}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "ExpertRouting":
        """Return what `to_json` wrote."""
        return cls(fields["path"], fields["tokens"], np.array(fields["gates"], np.float32))


@contextmanager
def trace_experts(models: Mapping[str, nn.Module]) -> Iterator[dict[str, list[Tensor]]]:
    """Record the gates of all calls by path, which begins with the key of its model.

    A call has a row for each token that is not padding; an RNN may call its experts step by step.
    """
    gates: dict[str, list[Tensor]] = {}

    @torch.no_grad()
    def record_call(path: str, _: nn.Module, inputs: tuple[Tensor], routing: Routing) -> None:
        dense = routing.gate_weights.new_zeros(len(inputs[0]), len(routing.load))
        index = routing.token_indices, routing.expert_indices
        gates.setdefault(path, []).append(dense.index_put(index, routing.gate_weights).float())

    with ExitStack() as stack:
        for prefix, model in models.items():
            for path, module in model.named_modules():
                if isinstance(module, MixtureOfExperts):
                    hook = partial(record_call, prefix + path)
                    handle = module.gate.register_forward_hook(hook)
                    stack.callback(handle.remove)
        yield gates


def name_tokens(
    gates: Mapping[str, Sequence[Tensor]], layers: Sequence[AttentionLayer], *, eos_label: str
) -> list[ExpertRouting]:
    """Return the routing of each mixture; attention layers of the same text name its tokens.

    The step that predicts EOS has no row in them.
    """
    joined = {path: torch.cat(list(calls)).cpu().numpy() for path, calls in gates.items()}
    return [
        ExpertRouting(path, _find_tokens(path, len(rows), layers, eos_label), rows)
        for path, rows in joined.items()
    ]


def _find_tokens(
    path: str, count: int, layers: Sequence[AttentionLayer], eos_label: str
) -> Sequence[str]:
    if "encoder" in path.split("."):
        axes = [layer.keys for layer in layers if not layer.kind.startswith("decoder")]
    else:
        by_output = sorted(layers, key=lambda layer: layer.kind != "cross")
        axes = [layer.queries for layer in by_output if not layer.kind.startswith("encoder")]
    for axis in axes:
        tokens = [*axis.tokens, eos_label]
        if 0 <= len(tokens) - count <= 1:
            return tokens[:count]
    return [str(number) for number in range(1, count + 1)]
