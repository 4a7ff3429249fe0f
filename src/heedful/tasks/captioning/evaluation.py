"""Evaluation of captioning models: on a test set, and on dev images during training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from heedful.data.captions import CaptionedImage
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import VALIDATION_METRICS
from heedful.search.hypotheses import NaNLogProbsError
from heedful.tasks.captioning.caption import Caption, cell_labels
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.prediction import DevEvaluator, round_weights
from heedful.training.callbacks import LoggedSample


class ImageExample(NamedTuple):
    """A captioned image as an example to evaluate: what to caption, and its references."""

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
class GreedyCaptionEvaluator(DevEvaluator):
    """Captions dev images greedily: the first `max_eval_samples`."""

    def __post_init__(self) -> None:
        count = self.config.training.max_eval_samples
        self.examples: Sequence[ImageExample] = self.data_module.dev_examples[:count]

    @override
    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        metrics = {name: metric for name in names if (metric := VALIDATION_METRICS[name].metric)}
        examples = self.examples[:max_examples]
        if not metrics or not examples:
            return {}
        references = [example.references for example in examples]
        outputs = [result.text for result in self._caption(examples)] or [""] * len(examples)
        return {
            name: compute_score(metric, outputs, references).value
            for name, metric in metrics.items()
        }

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        samples = []
        examples = self.examples[:count]
        for result, example in zip(self._caption(examples), examples, strict=False):
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

    def _caption(self, examples: Sequence[ImageExample]) -> list[Caption]:
        """Caption; return nothing if log-probabilities are NaN: the trainer reports that."""
        if not examples:
            return []
        with self.eval_mode():
            tokenizers, decoding = self.data_module.tokenizers, self.config.decoding.greedy()
            captioner = Captioner(self.model, tokenizers, decoding, device=self.device)
            try:
                return list(captioner.predict(example.source for example in examples))
            except NaNLogProbsError:
                return []


def as_image_examples(names: Sequence[str], images: Sequence[CaptionedImage]) -> list[ImageExample]:
    """Return captioned images under the names that a captioner loads them by."""
    return [ImageExample(name, image.captions) for name, image in zip(names, images, strict=True)]
