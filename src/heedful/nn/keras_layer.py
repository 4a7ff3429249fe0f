"""Base of the layers that are called as in Keras: sizes from the first call, weights as arrays."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from typing_extensions import override

from heedful.attention.attention import SingleHeadAttention
from heedful.errors import ArgumentError, check
from heedful.nn.mechanism import training_mode

Shape = Sequence[int]


class LazyParameters(nn.Module):
    """A module whose parameters without sizes get them from a state dict that is loaded."""

    @override
    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None and prefix + name in state_dict:
                materialize_(parameter, state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class KerasLayer(LazyParameters):
    """A layer whose parameters may get their sizes from the first call or from a state dict.

    Until then they are `UninitializedParameter`s, as in torch's lazy modules: an optimizer may hold
    them already.
    """

    attention: SingleHeadAttention

    @property
    def is_built(self) -> bool:
        """Whether all parameters have their sizes."""
        return not any(isinstance(item, UninitializedParameter) for item in self.parameters())

    def get_weights(self) -> list[NDArray[Any]]:
        """Return the parameters as arrays, in the order and the shapes of Keras."""
        self._check_built()
        return [parameter.detach().cpu().numpy() for parameter in self.parameters()]

    def set_weights(self, weights: Sequence[NDArray[Any]]) -> None:
        """Set the parameters from arrays in the order and the shapes of Keras."""
        self._check_built()
        parameters = list(self.parameters())
        expected = [tuple(parameter.shape) for parameter in parameters]
        actual = [np.shape(array) for array in weights]
        message = f"have the shapes {actual}, but must have {expected}"
        hint = "pass get_weights() of a Keras layer with the same options"
        check(actual == expected, "weights", message, hint, ArgumentError)
        with torch.no_grad():
            for parameter, array in zip(parameters, weights, strict=True):
                parameter.copy_(torch.as_tensor(array))

    def _check_built(self) -> None:
        hint = "call the layer or its method build once, or pass query_size to the constructor"
        check(self.is_built, type(self).__name__, "has no sizes yet", hint, ArgumentError)

    def _mode(self, training: bool | None) -> AbstractContextManager[None]:
        return nullcontext() if training is None else training_mode(self.attention, training)


def unsized_parameter(device: torch.device | str | None, dtype: torch.dtype | None) -> nn.Parameter:
    """Return a parameter that gets its shape from `materialize_`."""
    return cast(nn.Parameter, UninitializedParameter(device=device, dtype=dtype))  # type: ignore[call-arg]


def materialize_(parameter: Tensor, shape: Shape) -> bool:
    """Give a parameter its shape if it has none yet, and return whether it had none."""
    if not isinstance(parameter, UninitializedParameter):
        return False
    parameter.materialize(tuple(shape))
    return True
