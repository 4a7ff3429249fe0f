"""Classification of images by glimpses as a task: labeled images, cross-entropy and REINFORCE."""

from collections.abc import Sequence

import torch
from torch import nn
from typing_extensions import override

from heedful.data.images.labeled_images import LabeledImageBatch
from heedful.errors import RunError, check
from heedful.tasks.glimpse.data import LabeledImageData
from heedful.tasks.glimpse.default_recipe import default_recipe
from heedful.tasks.glimpse.draw_window import DrawWindowConfig
from heedful.tasks.glimpse.evaluation import GlimpseEvaluation
from heedful.tasks.glimpse.model import (
    GlimpseModel,
    RecurrentAttentionConfig,
)
from heedful.tasks.glimpse.predictor import GlimpseClassifier
from heedful.tasks.task import LoadedRun, RunLoader, Task
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective


class GlimpseObjective(Objective):
    """-log p(class | image), the mean of the episodes of an image, summed over images.

    The losses of policies (REINFORCE) and baseline are auxiliary losses of the model.
    """

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    @override
    def normalizer(self, batch: LabeledImageBatch) -> int:
        return batch.num_targets

    @override
    def __call__(
        self, model: nn.Module, batch: LabeledImageBatch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        log_probs = output.log_probs.float()
        loss = nn.functional.nll_loss(log_probs, output.labels, reduction="sum")
        if self.label_smoothing:
            loss = torch.lerp(loss, -log_probs.mean(dim=-1).sum(), self.label_smoothing)
        num_episodes = len(output.labels) // len(batch.labels)
        return LossTerms(loss / num_episodes, output.auxiliary_losses)


class GlimpseTask(Task):
    """Classification of images by glimpses."""

    name = "glimpses"
    description = "classifies images by glimpses"
    next_command = "glimpse {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (RecurrentAttentionConfig, DrawWindowConfig)
    data = LabeledImageData()
    evaluation = GlimpseEvaluation()

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs a decoder, and a glimpse model has none")
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return GlimpseObjective(label_smoothing=training.label_smoothing)

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> GlimpseClassifier:
        classifiers: list[GlimpseClassifier] = []
        for folder, config, _, model in members:
            if not isinstance(model, GlimpseModel):
                message = f"this run {config.task.description}, but {members[0].folder} "
                message += self.description
                raise RunError(str(folder), message, "leave it out")
            classifier = GlimpseClassifier(model, config.data.labeled_images, device=device)
            classifiers.append(classifier)
            first = classifiers[0].model
            sizes = (model.image_size, model.num_classes), (first.image_size, first.num_classes)
            message = "{} pixels and {} classes, but {folder} has {} and {}".format(
                *sizes[0], *sizes[1], folder=members[0].folder
            )
            hint = "use runs with the same model.image_size and model.num_classes"
            check(sizes[0] == sizes[1], str(folder), message, hint, RunError)
        first_classifier, *first_classifier.ensemble_with = classifiers
        return first_classifier


TASK = GlimpseTask()
