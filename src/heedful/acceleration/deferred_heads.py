"""Output layers that defer log-probabilities in training, for the kernels of the loss."""

from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration.cpu.training import can_defer_on_cpu
from heedful.acceleration.cuda.training import can_defer_on_gpu
from heedful.acceleration.deferred_log_probs import DeferredLogProbs
from heedful.models.language_model import LanguageModel
from heedful.models.output_heads import CopyInputs, Features, SoftmaxHead, log_softmax
from heedful.models.prefix_lm import PrefixLanguageModel
from heedful.shapes import Float, HiddenStates, LogProbs, SourceWeights


def deferred_log_softmax(
    inputs: Float[Tensor, "*B D"], projection: nn.Linear
) -> Float[Tensor, "*B N"]:
    """Return log softmax(W x + b), deferred where a kernel can compute the loss without it."""
    if can_defer_on_gpu(inputs, projection) or can_defer_on_cpu(inputs, projection):
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
