"""Evaluation of captioning models: on a test set, and on dev images during training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from heedful.data.captions import CaptionedImage
from heedful.tasks.captioning.caption import cell_labels
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.prediction import GreedyDevEvaluator, round_weights
from heedful.training.callbacks import LoggedSample


class ImageExample(NamedTuple):
    """A captioned image as an example to evaluate: its name, and its references."""

    source: str
    captions: tuple[str, ...]

    @property
    def target(self) -> str:
        """The first caption."""
        return self.captions[0]

    @property
    def references(self) -> tuple[str, ...]:
        """All captions."""
        return self.captions


@dataclass
class GreedyCaptionEvaluator(GreedyDevEvaluator):
    """Captions the first `max_eval_samples` dev images."""

    predictor_class = Captioner

    def __post_init__(self) -> None:
        count = self.config.training.max_eval_samples
        self.examples: Sequence[ImageExample] = self.data_module.dev_examples[:count]

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        samples = []
        examples = self.examples[:count]
        for result, example in zip(self._decode(examples), examples, strict=False):
            samples.append(
                LoggedSample(
                    source=cell_labels(result.grid),
                    reference=example.target,
                    output=result.tokens,
                    text=result.text,
                    attention=round_weights(result.weights) if result.has_attention else (),
                    source_text=str(example.source),
                    grid=result.grid,
                )
            )
        return samples


def as_image_examples(names: Sequence[str], images: Sequence[CaptionedImage]) -> list[ImageExample]:
    """Return captioned images under the names that a captioner loads them by."""
    return [ImageExample(name, image.captions) for name, image in zip(names, images, strict=True)]
