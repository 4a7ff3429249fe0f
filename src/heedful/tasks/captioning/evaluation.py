"""The evaluation of captioners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from heedful.evaluation.base import Metric
from heedful.evaluation.registry import VALIDATION_METRICS
from heedful.tasks.captioning.caption import cell_labels
from heedful.tasks.captioning.data import ImageExample
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import GreedyDevEvaluator, round_weights
from heedful.training.callbacks import LoggedSample


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


class CaptioningEvaluation(Evaluation):
    """The evaluation of captioners."""

    metrics = VALIDATION_METRICS
    shown_metrics = ("bleu-4", "cider-d")
    uses_beam = True
    test_metrics: ClassVar[Mapping[str, Metric]] = {
        name: spec.metric for name, spec in VALIDATION_METRICS.items() if spec.metric
    }
    default_metrics = ("bleu-4", "bleu-3", "bleu-2", "bleu-1", "caption-rouge-l", "cider-d")
    dev_evaluator = GreedyCaptionEvaluator
