"""Replacements of modules for inference, and the function that applies them to a model.

A replacement is a subclass of the module's exact type. It shares parameters, children and hooks
with the module, and calls the plain methods while gradients are recorded, in training mode, or
while a forward hook would miss a call. Invariant: an accelerated model matches the plain
model up to rounding.
"""

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import nn

from heedful.acceleration.cpu import decoding_state, packed_linear, transformer_stack
from heedful.acceleration.cuda import captured_models, static_cache
from heedful.acceleration.precision import Int8Linear
from heedful.layers.transformer import TransformerStack
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.language_model import LanguageModel
from heedful.models.output_heads import SoftmaxHead
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.models.transformer import TransformerDecoder

Module = TypeVar("Module", bound=nn.Module)


class Acceleration(NamedTuple):
    """A replacement for modules of a given type."""

    original: type[nn.Module]
    replacement: type[nn.Module]
    device_types: tuple[str, ...] = ("cpu",)
    supports: Callable[[Any], bool] = lambda module: True

    def matches(self, module: nn.Module, device: torch.device) -> bool:
        """Whether a module can be replaced; a subclass cannot, it may compute something else."""
        is_original = type(module) is self.original and device.type in self.device_types
        return is_original and self.supports(module)


REGISTRY: tuple[Acceleration, ...] = (
    Acceleration(EncoderDecoderModel, decoding_state.TrackedEncoderDecoderModel),
    Acceleration(
        EncoderDecoderModel,
        captured_models.CapturedEncoderDecoderModel,
        ("cuda",),
        # The vocabulary of a head that copies grows with the padding of the source.
        supports=lambda model: not model.decoder.output_head.copies_source,
    ),
    Acceleration(PrefixLanguageModel, captured_models.CapturedPrefixLanguageModel, ("cuda",)),
    Acceleration(PrefixLanguageModel, decoding_state.TrackedPrefixLanguageModel),
    Acceleration(LanguageModel, decoding_state.TrackedLanguageModel),
    Acceleration(
        TransformerDecoder,
        transformer_stack.PackedTransformerDecoder,
        supports=transformer_stack.can_share_caches,
    ),
    Acceleration(
        TransformerDecoder,
        static_cache.StaticCacheDecoder,
        ("cuda",),
        supports=static_cache.can_use_static_cache,
    ),
    Acceleration(
        TransformerStack,
        transformer_stack.PackedTransformerStack,
        supports=transformer_stack.has_standard_layers,
    ),
    Acceleration(TransformerStack, transformer_stack.ContiguousMemoryStack, ("cpu", "cuda")),
    *(
        Acceleration(wiring, stateless, supports=decoding_state.needs_no_state)
        for wiring, stateless in decoding_state.STATELESS_WIRINGS
    ),
    Acceleration(
        SoftmaxHead,
        packed_linear.PackedSoftmaxHead,
        # Only of an exact linear map can the forward hooks be checked.
        supports=lambda head: type(head.projection) in {nn.Linear, Int8Linear},
    ),
)
"""In order of preference: the first that matches a module replaces it."""


def accelerate(module: Module, device: torch.device) -> Module:
    """Return a module in which each part that has a replacement is replaced.

    Parts without one, inside and out, are the same objects as before; `module` is not changed. Its
    parameters must stay constant for as long as the accelerated module is used.
    """
    children = {key: child and accelerate(child, device) for key, child in module._modules.items()}
    match = next((entry for entry in REGISTRY if entry.matches(module, device)), None)
    if match is None and all(child is module._modules[name] for name, child in children.items()):
        return module
    replacement = copy.copy(module)  # shares parameters, buffers and hooks
    replacement._modules = children
    if match is not None:
        replacement.__class__ = cast(type[Module], match.replacement)
    return replacement


def accelerate_for_inference(model: Module, device: torch.device | str) -> Module:
    """Move a model to its device, in eval mode, and accelerate it.

    A model that is there is left in place: on a GPU, `to` copies the weights of RNNs into a new
    block of memory, but CUDA graphs of training steps read them where they were.
    """
    device = torch.device(device)
    tensors = chain(model.parameters(), model.buffers())
    if not all(_is_on(tensor, device) for tensor in tensors):
        model.to(device)
    return accelerate(model.eval(), device)


def _is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    return tensor.device.type == device.type and device.index in {None, tensor.device.index}
