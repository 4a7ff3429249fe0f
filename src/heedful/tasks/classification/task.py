"""Text classification as a task: pairs of a text and its label."""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.data.text.example_formats import LABELED_TEXTS
from heedful.errors import check
from heedful.evaluation.confusion import (
    ConfusionMatrix,
    confusion_sums,
    describe_unknown_labels,
)
from heedful.pytree import to_float64
from heedful.tasks.classification.model import TextClassifierConfig, label_indices
from heedful.tasks.classification.predictor import METRICS, Classifier
from heedful.tasks.evaluation import SystemOutputs
from heedful.tasks.labels import LabelData, LabelEvaluation, LabelTask
from heedful.tasks.task_data import ExperimentConfig
from heedful.tokenization.special_texts import SentenceWordTokenizerConfig
from heedful.tokenization.tokenizer import LabelTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.objectives import LossTerms, Objective


class ClassificationEvaluation(LabelEvaluation):
    """The evaluation of text classifiers."""

    test_metrics = METRICS

    @override
    def batch_sums(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, the number of labels it has, and the confusion counts."""
        log_probs = to_float64(model(batch).log_probs.squeeze(1))
        labels = label_indices(batch).to(log_probs.device)
        is_known = labels >= 0
        loss = nn.functional.nll_loss(log_probs[is_known], labels[is_known], reduction="sum")
        predicted = log_probs.argmax(dim=-1)
        return confusion_sums(loss, is_known.sum(), predicted, labels, log_probs.size(1))

    @override
    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix:
        return ConfusionMatrix.from_labels("texts", _reference_labels(outputs), outputs.texts)

    @override
    def format_details(self, outputs: SystemOutputs) -> Iterator[str]:
        """Yield a table of the labels, and those that the training data lacks."""
        yield from super().format_details(outputs)
        labels = cast(Classifier, outputs.predictor).labels
        yield from describe_unknown_labels(labels, _reference_labels(outputs), "labels")


def _reference_labels(outputs: SystemOutputs) -> list[str]:
    return [choices[0].strip() for choices in outputs.references]


class ClassificationData(LabelData):
    """The data of text classifiers."""

    example_format = LABELED_TEXTS
    label_name = "labels"

    @override
    def check(self, config: ExperimentConfig) -> None:
        target = getattr(config.tokenizers, "target", None)
        message = "the target texts of a text-classifier are labels"
        hint = "set `tokenizers: {type: separate, source: {type: word}, target: {type: label}}`"
        check(isinstance(target, LabelTokenizerConfig), "tokenizers.target.type", message, hint)
        source = getattr(config.tokenizers, "source", None)
        is_hierarchical = config.model.encoder.type == "hierarchical"
        message = "a hierarchical encoder reads sentences, which this tokenizer does not mark"
        hint = "set tokenizers.source.type to 'sentence-word'"
        is_valid = not is_hierarchical or isinstance(source, SentenceWordTokenizerConfig)
        check(is_valid, "tokenizers.source.type", message, hint)
        super().check(config)

    @override
    def split_labels(self, target: str, tokenizers: TokenizerPair) -> list[str]:
        return [tokenizers.target.normalizer(target)]

    @override
    def pad_batch(self, config: ExperimentConfig, batch: Batch) -> Batch:
        return batch  # a row without a label has no loss


MAX_WORD_LENGTH = 15  # characters per word, on average


class LabelCrossEntropy(Objective):
    """-log p(label | text), summed over texts; with label smoothing as for tokens."""

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


class ClassificationTask(LabelTask):
    """Text classification."""

    name = "classification"
    description = "classifies texts"
    next_command = "classify {run} FILE"
    model_configs = (TextClassifierConfig,)
    data = ClassificationData()
    evaluation = ClassificationEvaluation()
    predictor = Classifier
    objective = LabelCrossEntropy
    no_decoder = "needs a decoder, and a text-classifier has none"
    default_recipes = ("default-classifier", "bilstm-classifier")
    examples_per_minute = 20_000

    @override
    def measure(self, train: Any, *, is_cpu: bool) -> tuple[int, dict[str, Any]]:
        """Take characters as tokens if there are no spaces between words, else words."""
        num_texts = num_words = num_characters = 0
        for text, _ in train.stream():
            num_texts += 1
            num_words += len(text.split())
            num_characters += len(text)
        has_spaces = num_characters <= MAX_WORD_LENGTH * num_words
        return num_texts, {} if has_spaces else {"tokenizers.source": {"type": "character"}}


TASK = ClassificationTask()
