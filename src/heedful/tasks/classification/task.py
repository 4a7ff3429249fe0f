"""Text classification as a task: pairs of a text and its label."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.tasks.classification.data import ClassificationData
from heedful.tasks.classification.default_recipe import default_recipe
from heedful.tasks.classification.evaluation import ClassificationEvaluation
from heedful.tasks.classification.model import TextClassifier, TextClassifierConfig, label_indices
from heedful.tasks.classification.predictor import Classifier
from heedful.tasks.ensembles import combine_labelers
from heedful.tasks.task import LoadedRun, RunLoader, Task
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective


class LabelCrossEntropy(Objective):
    """-log p(label | text), summed over texts; with label smoothing as for tokens."""

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    @override
    def normalizer(self, batch: Batch) -> int:
        return len(batch.targets)

    @override
    def __call__(
        self, model: nn.Module, batch: Batch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        log_probs = output.log_probs.squeeze(1).float()
        loss = nn.functional.nll_loss(log_probs, label_indices(batch), reduction="sum")
        uniform = -log_probs.mean(dim=-1).sum()
        return LossTerms(torch.lerp(loss, uniform, self.label_smoothing), output.auxiliary_losses)


class ClassificationTask(Task):
    """Text classification."""

    name = "classification"
    description = "classifies texts"
    next_command = "classify {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (TextClassifierConfig,)
    data = ClassificationData()
    evaluation = ClassificationEvaluation()

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs a decoder, and a text-classifier has none")
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return LabelCrossEntropy(label_smoothing=training.label_smoothing)

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Classifier:
        def build(member: LoadedRun) -> Classifier:
            return Classifier(cast(TextClassifier, member.model), member.tokenizers, device=device)

        return combine_labelers(members, TextClassifier, build)


TASK = ClassificationTask()
