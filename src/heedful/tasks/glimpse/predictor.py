"""The glimpse classifier: a trained model, or an ensemble, that classifies images by glimpses.

Invariant: the prediction for an image does not depend on the other images.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt
from torch import Tensor
from typing_extensions import override

from heedful.config import check_types
from heedful.data.images.image_files import decode_base64_image
from heedful.data.images.labeled_images import (
    Bytes,
    IdxImagesConfig,
    LabeledImage,
    LabeledImageBatchingConfig,
    LabeledImageDataset,
    stack_images,
)
from heedful.errors import DataError, check
from heedful.evaluation.base import MetricScore
from heedful.inspection.attention_layers import AttentionLayer
from heedful.plotting.raster import encode_png
from heedful.pytree import map_tensors
from heedful.shapes import Float
from heedful.tasks.glimpse.model import GlimpseModel, GlimpseOutput
from heedful.tasks.prediction import (
    PredictionOptions,
    Predictor,
    check_json,
    format_predictor,
    parse_numbers,
)

_BATCH_SIZE = 1000
_NO_LABEL = -1
_DIGITS = 4
Coordinate = Annotated[float, Field(ge=-1, le=1)]
GlimpseIndex = Annotated[NonNegativeInt, Field(strict=False)]  # a string in JSON
Location = Annotated[tuple[Coordinate, Coordinate], Field(strict=False)]


class GlimpsePrediction(NamedTuple):
    """The class of an image, and the trail of glimpses that led to it."""

    image: Bytes  # (height, width)
    probabilities: NDArray[np.float32]  # of each class
    step_probabilities: NDArray[np.float32]  # (glimpses, classes): after each glimpse
    boxes: NDArray[np.float32]  # (glimpses, scales, 4): top, left, height, width in pixels
    target: int | None = None
    attention_map: None = None  # a trail is drawn on the image: `glimpse.trajectories`
    attention_layers: Sequence[AttentionLayer] = ()

    @property
    def label(self) -> int:
        """The most probable class."""
        return int(self.probabilities.argmax())

    @property
    def text(self) -> str:
        """The class as text."""
        return str(self.label)

    @property
    def tokens(self) -> Sequence[str]:
        """The class as the only token."""
        return [self.text]

    @classmethod
    def from_json(cls, image: LabeledImage, fields: Mapping[str, Any]) -> Self:
        """Return the prediction for an image of the size of the model from its JSON."""
        steps, boxes = (
            np.array([glimpse[name] for glimpse in fields["glimpses"]], np.float32)
            for name in ("probabilities", "boxes")
        )
        probabilities = np.array(fields["probabilities"], np.float32)
        return cls(image.pixels, probabilities, steps, boxes, image.label)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; docs/glimpses.md explains each field."""
        fields: dict[str, Any] = {
            "label": self.label,
            "probabilities": _rounded(self.probabilities),
            "glimpses": [
                {"boxes": _rounded(boxes), "probabilities": _rounded(probabilities)}
                for boxes, probabilities in zip(self.boxes, self.step_probabilities, strict=True)
            ],
        }
        return fields if self.target is None else {**fields, "target": self.target}


def _rounded(values: NDArray[np.float32]) -> Any:
    return values.astype(float).round(_DIGITS).tolist()


class GlimpseOptions(PredictionOptions):
    """Settings of one call."""

    locations: dict[GlimpseIndex, Location] = Field(
        default_factory=dict, json_schema_extra={"propertyNames": {"pattern": "^[0-9]{1,9}$"}}
    )
    """Where to look, by index of the glimpse: row and column of its middle, from -1 to 1. The
    others are those of the policy."""


class GlimpseClassifier(Predictor[LabeledImage, GlimpsePrediction]):
    """A trained glimpse model, and the rest of its ensemble."""

    request_name = "images"
    reads_files = True
    input_schema: ClassVar[Mapping[str, Any]] = {
        "type": ["string", "object"],
        "contentEncoding": "base64",
        "required": ["pixels"],
    }
    options_class = GlimpseOptions

    def __init__(
        self,
        model: GlimpseModel,
        batching: LabeledImageBatchingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model.to(device).eval()
        self.batching = batching
        self.device = device
        self.ensemble_with: Sequence[GlimpseClassifier] = ()  # with the same sizes and classes

    def __repr__(self) -> str:
        size = self.model.image_size
        return format_predictor(self, f"{self.model.num_classes} classes", f"{size} x {size}")

    @override
    def parse_json(self, value: Any) -> LabeledImage:
        """Return an image in base64, or of `pixels` from 0 to 255, in the middle of a canvas."""
        noun, example = "an image in base64 or its pixels", '{"pixels": [[0, 255], [255, 0]]}'
        if isinstance(value, str):
            pixels = decode_base64_image(value, "L")[:, :, 0]
        else:
            rows = check_json(value, dict, noun, example).get("pixels")
            pixels = parse_numbers(rows, is_byte=True, noun=noun, example=example)
            check_json(rows if pixels.ndim == 2 else None, list, noun, example)
        margins = [max(0, self.model.image_size - length) for length in pixels.shape]
        padding = [(margin // 2, margin - margin // 2) for margin in margins]
        return LabeledImage(np.pad(pixels, padding), _NO_LABEL)

    @override
    def example(self) -> str:
        size = self.model.image_size
        return b64encode(encode_png(np.zeros((size, size), np.uint8))).decode()

    @override
    def read_file(self, path: str) -> list[LabeledImage]:
        """Read the images and labels of an idx file."""
        return IdxImagesConfig(path=path).read()

    @check_types
    def classify(
        self, images: Iterable[LabeledImage], *, location: str = "images"
    ) -> Iterator[GlimpsePrediction]:
        """Classify images; those smaller than `model.image_size` are placed as in a test set."""
        return self.predict(images, location=location)

    @override
    def predict(
        self,
        requests: Iterable[LabeledImage],
        options: GlimpseOptions | None = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[GlimpsePrediction]:
        if options is not None and options.locations:
            members = (self, *self.ensemble_with)
            models = [member.model.with_locations(options.locations) for member in members]
            yield from self.with_models(models).predict(requests, location=location)
            return
        images = list(requests)
        if not images:
            return
        dataset = self._dataset(images, location=location or self.request_name)
        for rows, canvases, output in self._run(dataset):
            yield from _to_predictions(canvases, output, dataset.labels[rows].tolist())

    @override
    def force(
        self, request: LabeledImage, result: GlimpsePrediction, num_rows: int
    ) -> Float[Tensor, "R T N"]:
        """Return what the model would say after each glimpse."""
        return torch.from_numpy(result.step_probabilities).log().expand(num_rows, -1, -1)

    @override
    def token_names(self, request: LabeledImage, ids: Sequence[int]) -> list[str]:
        return list(map(str, ids))

    @override
    def evaluate(self, examples: Sequence[LabeledImage]) -> list[MetricScore]:
        """Return error rate, loss and glimpses per image."""
        dataset = self._dataset(examples, location="test images")
        errors, loss, num_glimpses = 0, 0.0, 0.0
        for rows, _, output in self._run(dataset):
            labels = torch.from_numpy(dataset.labels[rows])
            errors += int((output.log_probs.argmax(dim=-1) != labels).sum())
            loss -= float(output.log_probs.gather(1, labels[:, None]).sum())
            num_glimpses += float(output.mean_glimpses.sum())
        episodes = getattr(self.model, "num_test_episodes", 1)
        signature = f"images:{len(dataset)}|episodes:{episodes}"
        signature += f"|ensemble:{1 + len(self.ensemble_with)}" if self.ensemble_with else ""
        values = {
            "error rate": 100 * errors / len(dataset),
            "loss": loss / len(dataset),
            "glimpses per image": num_glimpses / len(dataset),
        }
        return [MetricScore(name, value, signature) for name, value in values.items()]

    def _dataset(self, examples: Sequence[LabeledImage], *, location: str) -> LabeledImageDataset:
        check(examples, location, "there are no images", "give a file of images", DataError)
        dataset = stack_images(examples, self.model.image_size, self.batching, location=location)
        check_labels(dataset, self.model.num_classes, location=location)
        return dataset

    @torch.inference_mode()
    def _run(
        self, dataset: LabeledImageDataset
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], GlimpseOutput]]:
        """Yield rows, canvases, and outputs on the CPU with the mean probabilities of members."""
        for start in range(0, len(dataset), _BATCH_SIZE):
            rows = np.arange(start, min(start + _BATCH_SIZE, len(dataset)))
            batch = map_tensors(lambda tensor: tensor.to(self.device), dataset.collate(rows))
            images = batch.render(self.model.image_size)
            outputs = [member.model.predict(images) for member in (self, *self.ensemble_with)]
            total = reduce(torch.logaddexp, (output.log_probs for output in outputs))
            joined = outputs[0]._replace(log_probs=total.log_softmax(dim=-1))
            yield rows, images.cpu().numpy(), map_tensors(lambda tensor: tensor.cpu(), joined)


def _to_predictions(
    canvases: NDArray[np.float32], output: GlimpseOutput, labels: Sequence[int]
) -> Iterator[GlimpsePrediction]:
    probabilities, step_probabilities = output.log_probs.exp(), output.step_log_probs.exp()
    for index, label in enumerate(labels):
        count = int(output.num_glimpses[index])
        yield GlimpsePrediction(
            (255 * canvases[index]).round().astype(np.uint8),
            probabilities[index].numpy(),
            step_probabilities[index, :count].numpy(),
            output.boxes[index, :count].numpy(),
            None if label == _NO_LABEL else label,
        )


def check_labels(dataset: LabeledImageDataset, num_classes: int, *, location: str) -> None:
    """Raise DataError for a label that the model does not have."""
    largest = int(dataset.labels.max())
    message = f"there is a label {largest}, but the model has the classes 0 to {num_classes - 1}"
    hint = f"set model.num_classes={largest + 1}"
    check(largest < num_classes, location, message, hint, DataError)
