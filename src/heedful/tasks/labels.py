"""Labels of texts and of words: predictor, evaluation and task of classifier and tagger.

An ensemble averages the probabilities of each label; its members have the same labels, in any
order. Invariant: the prediction for a text does not depend on the other texts.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from typing_extensions import override

from heedful.data.text.pair_dataset import Pair
from heedful.evaluation.confusion import (
    describe_unknown_labels,
    finalize_confusion,
    format_label_metrics,
)
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.shapes import Float
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.pair_data import PairData
from heedful.tasks.prediction import RequestT, ResultT, TokenizedTextPredictor
from heedful.tasks.task import Task
from heedful.tasks.task_data import ExperimentConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS


class LabelPredictor(TokenizedTextPredictor[RequestT, ResultT]):
    """A trained model with its tokenizers and labels, and the rest of its ensemble."""

    def __init__(
        self, model: Any, tokenizers: TokenizerPair, *, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(model, tokenizers, device=device)
        self.labels = target_labels(tokenizers)

    @property
    def members(self) -> Sequence[Self]:
        """All of the ensemble, the predictor itself first."""
        return [self, *self.ensemble_with]

    @override
    def predict_with_layers(self, request: RequestT, options: Any = None) -> ResultT:
        """Return a prediction with the layers of the first member."""
        result: Any = super().predict_with_layers(request, options)
        prefix, *_ = self.models
        layers = [layer._replace(path=prefix + layer.path) for layer in result.attention_layers]
        return result._replace(attention_layers=layers)

    @override
    def token_names(self, request: RequestT, ids: Sequence[int]) -> list[str]:
        return [self.labels[index] for index in ids]

    def average(self, probabilities: Sequence[Float[Tensor, "*B N"]]) -> Float[Tensor, "*B N"]:
        """Return the mean of the probabilities of each member, as float64."""
        rows = [
            values.double()[..., [member.labels.index(label) for label in self.labels]]
            for values, member in zip(probabilities, self.members, strict=True)
        ]
        return torch.stack(rows).mean(dim=0)


class LabelEvaluation(Evaluation):
    """The evaluation of models that assign labels: from counts of true and predicted ones."""

    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "macro-f1": MetricSpec("Macro-F1", higher_is_better=True, unit="fraction"),
    }
    draws_page = True

    @override
    def finalize(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics; unknown labels count as errors."""
        return finalize_confusion(sums)

    @override
    def format(self, metrics: Mapping[str, float]) -> str:
        return format_label_metrics(metrics)


class LabelData(PairData):
    """Pairs of a text and its labels."""

    label_name: ClassVar[str]

    @abstractmethod
    def split_labels(self, target: str, tokenizers: TokenizerPair) -> list[str]:
        """Return the labels of a target text."""

    @override
    def check_dev(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, examples: Sequence[Pair]
    ) -> list[str]:
        """Report dev labels that the training data does not have."""
        labels = [
            label for pair in examples for label in self.split_labels(pair.target, tokenizers)
        ]
        known, name = target_labels(tokenizers), self.label_name
        return list(describe_unknown_labels(known, labels, name, location="data.dev"))


class LabelTask(Task):
    """A task whose outputs are labels; the members of an ensemble have the same ones."""

    @override
    def find_mismatch(
        self, first: LabelPredictor, other: LabelPredictor, folder: Path | str
    ) -> tuple[str, str] | None:
        different = sorted(set(first.labels) ^ set(other.labels))
        message = f"its labels differ from those of {folder}: {', '.join(different)}"
        return (message, "use runs with the same labels") if different else None


def target_labels(tokenizers: TokenizerPair) -> list[str]:
    """Return the labels of the training data."""
    target = tokenizers.target
    return target.ids_to_tokens(range(NUM_SPECIAL_TOKENS, len(target)))
