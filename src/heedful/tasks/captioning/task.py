"""Captioning as a task: captions with their images, and the likelihood of their tokens.

Models are evaluated on a test set, and on dev images during training.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.images.features import ImageFeatures
from heedful.errors import RunError, check
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import VALIDATION_METRICS
from heedful.models.captioning import CaptioningConfig
from heedful.models.efficientnet import EfficientNetEncoder
from heedful.models.image_encoders import FeatureEncoder
from heedful.tasks.captioning.caption import Caption
from heedful.tasks.captioning.data import CaptionData, CaptionDataModule
from heedful.tasks.captioning.predictor import Captioner, image_encoder_of
from heedful.tasks.evaluation import DevEvaluator, Evaluation
from heedful.tasks.prediction import LoadedRun, RunLoader
from heedful.tasks.search_predictor import combine_models
from heedful.tasks.task import DefaultRecipe, Task, until_time_is_over
from heedful.training.callbacks import LoggedSample


class DevCaptioner(DevEvaluator):
    """Captions the first `max_eval_samples` dev images."""

    @override
    def choose_examples(self) -> Sequence[Any]:
        return super().choose_examples()[: self.config.training.max_eval_samples]

    @override
    def to_sample(self, result: Caption, example: Any) -> LoggedSample:
        return super().to_sample(result, example)._replace(grid=result.grid)


class CaptioningEvaluation(Evaluation):
    """The evaluation of captioners."""

    metrics = VALIDATION_METRICS
    shown_metrics = ("bleu-4", "cider-d")
    uses_beam = True
    test_metrics: ClassVar[Mapping[str, Metric]] = {
        name: spec.metric for name, spec in VALIDATION_METRICS.items() if spec.metric
    }
    default_metrics = ("bleu-4", "bleu-3", "bleu-2", "bleu-1", "caption-rouge-l", "cider-d")
    dev_evaluator = DevCaptioner


_MANY_CAPTIONS = 10_000  # from which on words of less than 5 occurrences are unknown
_STRIDE = 8  # pixels per cell of default-captioner
_MAX_IMAGE_SIZE, _REDUCED_SIZE = 96, 64
_NUM_MEASURED = 20  # images that are looked at for colors


def _image_settings(images: list[Any]) -> dict[str, Any]:
    """Return the size and the channels of images, (rows, columns, channels) each."""
    size = [-(-length // _STRIDE) * _STRIDE for length in images[0].shape[:2]]
    if max(size) > _MAX_IMAGE_SIZE:
        size = [_REDUCED_SIZE, _REDUCED_SIZE]
    is_gray = all((image == image[:, :, :1]).all() for image in images)
    return {
        "model.encoder.image_size": size,
        "model.encoder.num_channels": 1 if is_gray else 3,
        "model.encoder.positional_encoding.max_positions": max(size) // _STRIDE,
    }


_MAX_MEASURED_IMAGES = 2000  # whose features are read to standardize channels


class CaptioningTask(Task):
    """Captioning of images."""

    name = "captioning"
    description = "captions images"
    next_command = "caption {run} IMAGES"
    model_configs = (CaptioningConfig,)
    data = CaptionData()
    evaluation = CaptioningEvaluation()
    examples_per_minute = 10_000  # captions

    @override
    def default_recipe(self, device: torch.device, train: Any) -> DefaultRecipe:
        """Size encoders by the first images, or by the grid and the channels of features."""
        if train is None:
            return DefaultRecipe("default-captioner")
        examples, store = train.read(), train.open_images()
        num_captions = sum(len(example.captions) for example in examples)
        settings: dict[str, Any] = {
            "tokenizers.tokenizer.min_frequency": 5 if num_captions >= _MANY_CAPTIONS else 2,
            "training.max_minutes": self.choose_minutes(num_captions),
        }
        if not isinstance(store, ImageFeatures):
            images = store.read([example.image for example in examples[:_NUM_MEASURED]])
            return DefaultRecipe("default-captioner", {**settings, **_image_settings(images)})
        settings["model.encoder.grid"] = list(store.grid)
        settings["model.encoder.num_channels"] = store.num_channels
        if device.type == "cpu":
            return DefaultRecipe("default-feature-captioner", settings)
        settings = {**until_time_is_over(), **settings}
        return DefaultRecipe("show-attend-tell-2015-soft-flickr8k", settings)

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
    def build_predictor(self, run: LoadedRun, device: torch.device) -> Captioner:
        model: Any = run.model
        return Captioner(model, run.tokenizers, run.config.decoding, device=device)

    @override
    def combine_runs(
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
        ensemble: Any = combine_models(members, device)
        return self.build_predictor(members[0]._replace(model=ensemble), device)


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
