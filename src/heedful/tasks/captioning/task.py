"""Captioning as a task: captions with their images, and the likelihood of their tokens.

Models are evaluated on a test set, and on dev images during training.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.images.features import ImageFeatures
from heedful.errors import RunError, check
from heedful.models.captioning import CaptioningConfig
from heedful.models.efficientnet import EfficientNetEncoder
from heedful.models.image_encoders import FeatureEncoder
from heedful.tasks.captioning.data import CaptionData, CaptionDataModule
from heedful.tasks.captioning.default_recipe import default_recipe
from heedful.tasks.captioning.evaluation import CaptioningEvaluation
from heedful.tasks.captioning.predictor import Captioner, image_encoder_of
from heedful.tasks.ensembles import build_ensemble
from heedful.tasks.task import LoadedRun, RunLoader, Task

_MAX_MEASURED_IMAGES = 2000  # whose features are read to standardize channels


class CaptioningTask(Task):
    """Captioning of images."""

    name = "captioning"
    description = "captions images"
    next_command = "caption {run} IMAGES"
    default_recipe = staticmethod(default_recipe)
    model_configs = (CaptioningConfig,)
    data = CaptionData()
    evaluation = CaptioningEvaluation()

    @override
    def initialize_model(self, model: nn.Module, data_module: CaptionDataModule) -> None:
        """Load published weights, and give feature encoders the statistics of the training data."""
        config: Any = data_module.recipe
        store = config.data.train.open_images()
        for module in model.modules():
            if isinstance(module, EfficientNetEncoder):
                module.load_weights()
            if isinstance(module, FeatureEncoder) and isinstance(store, ImageFeatures):
                _set_statistics(module, store)

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Captioner:
        expected = None
        for folder, config, _, model in members:
            is_captioner = isinstance(config.model, CaptioningConfig)
            message = f"this run {config.task.description}, but {members[0].folder} captions images"
            check(is_captioner, str(folder), message, "leave it out", RunError)
            shape = image_encoder_of(model).image_shape
            expected = expected or shape
            message = f"reads {shape.describe()}, but {members[0].folder} {expected.describe()}"
            hint = "use runs that read the same images"
            check(shape == expected, str(folder), message, hint, RunError)
        first, ensemble = members[0], build_ensemble(members, device)
        return Captioner(ensemble, first.tokenizers, first.config.decoding, device=device)


def _set_statistics(encoder: FeatureEncoder, features: ImageFeatures) -> None:
    """Set step and offset, and mean and deviation over evenly spaced images of a feature file."""
    if features.scale is not None:
        encoder.step.copy_(torch.from_numpy(features.scale[0]))
        encoder.offset.copy_(torch.from_numpy(features.scale[1]))
    if encoder.standardize:
        count = min(len(features), _MAX_MEASURED_IMAGES)
        rows = np.linspace(0, len(features) - 1, count).round().astype(np.int64)
        values: Tensor = torch.from_numpy(features.read(rows)).double().flatten(0, 1)
        encoder.mean.copy_(values.mean(dim=0))
        encoder.deviation.copy_(values.std(dim=0).clamp(min=1e-6))


TASK = CaptioningTask()
