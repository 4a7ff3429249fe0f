"""Replacements of modules for training and for inference, and what applies them to a model.

A replacement is a subclass of the module's exact type. It shares parameters, children and hooks
with the module, and calls the plain methods where its own would not apply: those for inference
while gradients are recorded or in training mode, and all while a forward hook would miss a call.
Invariant: an accelerated model matches the plain model up to rounding; in training, dropout in
distribution.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration import chunked_attention, kernels
from heedful.acceleration.cpu import decoding_state, packed_linear, transformer_stack
from heedful.acceleration.cpu import training as cpu_training
from heedful.acceleration.cpu.training import can_defer_on_cpu
from heedful.acceleration.cuda import captured_models, static_cache
from heedful.acceleration.cuda import training as cuda_training
from heedful.acceleration.cuda.training import can_defer_on_gpu
from heedful.acceleration.deferred_log_probs import DeferredLogProbs
from heedful.acceleration.precision import Int8Linear
from heedful.acceleration.transformer_step import can_share_caches, has_standard_layers
from heedful.attention.positional_encoding import SinusoidalEncoding
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.rnn import RecurrentLayerWrapper, StackedCells
from heedful.layers.self_attention import CompressedSelfAttention
from heedful.layers.sublayers import FeedForward, SublayerConnection
from heedful.layers.transformer import TransformerStack
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.language_model import LanguageModel, RecurrentBackbone
from heedful.models.output_heads import CopyInputs, Features, SoftmaxHead, log_softmax
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.models.recurrent.decoder_parts import PreOutput
from heedful.models.transformer import TransformerDecoder
from heedful.pytree import Module, ModuleChange, rebuild_modules
from heedful.shapes import Float, HiddenStates, LogProbs, SourceWeights


def deferred_log_softmax(
    inputs: Float[Tensor, "*B D"], projection: nn.Linear
) -> Float[Tensor, "*B N"]:
    """Return log softmax(W x + b), deferred where a kernel can compute the loss without it."""
    is_on_gpu = inputs.device.type == cuda_training.TRITON_DEVICE_TYPE
    if (can_defer_on_gpu if is_on_gpu else can_defer_on_cpu)(inputs, projection):
        return DeferredLogProbs(inputs, projection)
    return log_softmax(projection(inputs))


class DeferredSoftmaxHead(SoftmaxHead):
    """log softmax(W f + b), computed if something other than the loss uses it."""

    @override
    def forward(
        self, features: Features, weights: SourceWeights | None, copying: CopyInputs | None = None
    ) -> LogProbs:
        return deferred_log_softmax(features, self.projection)


class DeferredLanguageModel(LanguageModel):
    """A language model that defers its log-probabilities."""

    @override
    def compute_log_probs(self, outputs: HiddenStates) -> LogProbs:
        return deferred_log_softmax(self.dropout(outputs), self.lm_head)


class DeferredPrefixLanguageModel(PrefixLanguageModel):
    """A prefix language model that defers its log-probabilities."""

    @override
    def compute_log_probs(self, outputs: HiddenStates) -> LogProbs:
        return deferred_log_softmax(self.dropout(outputs), self.lm_head)


class Acceleration(NamedTuple):
    """A replacement for modules of a given type."""

    original: type[nn.Module]
    replacement: type[nn.Module]
    device_types: tuple[str, ...] = ("cpu",)
    supports: Callable[[Any], bool] = lambda module: True
    parents: tuple[type[nn.Module], ...] = ()
    """Exact types of modules whose children are replaced; any if there are none."""

    def matches(
        self, module: nn.Module, device: torch.device, parent: nn.Module | None = None
    ) -> bool:
        """Whether a module can be replaced; a subclass cannot, it may compute something else."""
        is_original = type(module) is self.original and device.type in self.device_types
        is_child = not self.parents or type(parent) in self.parents
        return is_original and is_child and self.supports(module)


FUSED_NORMS = (
    Acceleration(
        nn.LayerNorm,
        cuda_training.FusedLayerNorm,
        ("cuda",),
        supports=cuda_training.has_affine_vectors,
        # What other layers normalize does not go straight into a product.
        parents=(SublayerConnection, TransformerStack),
    ),
    Acceleration(SublayerConnection, cuda_training.FusedSublayerConnection, ("cuda",)),
)

FOR_POSITIONS = (
    Acceleration(SinusoidalEncoding, kernels.TabulatedSinusoids),
    Acceleration(
        CompressedSelfAttention,
        chunked_attention.ChunkedCompressedSelfAttention,
        ("cpu", "cuda", "mps"),
    ),
)

FOR_TRAINING: tuple[Acceleration, ...] = (
    Acceleration(
        nn.Dropout,
        cpu_training.FastDropout,
        supports=lambda dropout: not dropout.inplace,
        parents=(
            TokenEmbedding,
            FeedForward,
            SublayerConnection,
            RecurrentLayerWrapper,
            StackedCells,
            PreOutput,
            RecurrentBackbone,
            LanguageModel,
            PrefixLanguageModel,
        ),
    ),
    Acceleration(SoftmaxHead, DeferredSoftmaxHead, ("cpu", "cuda")),
    Acceleration(LanguageModel, DeferredLanguageModel, ("cpu", "cuda")),
    Acceleration(PrefixLanguageModel, DeferredPrefixLanguageModel, ("cpu", "cuda")),
    Acceleration(FeedForward, cuda_training.FusedFeedForward, ("cuda",)),
    *FUSED_NORMS,
    *FOR_POSITIONS,
)
"""Replacements for training."""

FOR_INFERENCE: tuple[Acceleration, ...] = (
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
        supports=can_share_caches,
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
        supports=has_standard_layers,
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
    *FUSED_NORMS,
    *FOR_POSITIONS,
)
"""Replacements for inference, in order of preference: the first that matches a module is used."""


def accelerate(
    module: Module, device: torch.device, replacements: Sequence[Acceleration] | None = None
) -> Module:
    """Return a module in which each part that has a replacement, for inference, is replaced.

    Parts without one, inside and out, are the same objects as before; `module` is not changed.
    """
    replacements = FOR_INFERENCE if replacements is None else replacements

    def find_replacement(_: str, part: nn.Module, parent: nn.Module | None) -> ModuleChange | None:
        matches = (entry for entry in replacements if entry.matches(part, device, parent))
        match = next(matches, None)
        return match and partial(_set_class, module_class=match.replacement)

    return rebuild_modules(module, find_replacement)


def restore_plain(module: Module) -> Module:
    """Return a module whose replacements are the plain modules again; it shares all parameters."""
    originals = {entry.replacement: entry.original for entry in (*FOR_INFERENCE, *FOR_TRAINING)}

    def find_original(_: str, part: nn.Module, parent: nn.Module | None) -> ModuleChange | None:
        original = originals.get(type(part))
        return None if original is None else partial(_set_class, module_class=original)

    return rebuild_modules(module, find_original)


def _set_class(module: nn.Module, module_class: type[nn.Module]) -> None:
    module.__class__ = module_class


def accelerate_for_training(model: Module, device: torch.device | str) -> Module:
    """Return a model that trains faster; it shares all parameters and buffers."""
    return accelerate(model, torch.device(device), FOR_TRAINING)


def accelerate_for_inference(model: Module, device: torch.device | str) -> Module:
    """Move a model to its device, in eval mode, and accelerate it.

    Its parameters must stay constant for as long as the accelerated model is used.
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
