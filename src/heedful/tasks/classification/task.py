"""Text classification as a task: pairs of a text and its label."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.data.text.example_formats import LABELED_TEXTS, ExampleSource
from heedful.errors import check
from heedful.evaluation.confusion import (
    ConfusionMatrix,
    confusion_sums,
    describe_unknown_labels,
    finalize_confusion,
    format_label_metrics,
)
from heedful.evaluation.registry import ACCURACY, LOSS, MetricSpec
from heedful.pytree import to_float64
from heedful.shapes import Int
from heedful.tasks.classification.command import FILE_OPTIONS
from heedful.tasks.classification.default_recipe import default_recipe
from heedful.tasks.classification.model import TextClassifier, TextClassifierConfig
from heedful.tasks.classification.predictor import METRICS, Classifier
from heedful.tasks.pair_task import PairTask
from heedful.tasks.prediction import DevEvaluator, SystemOutputs, round_weights
from heedful.tasks.task import (
    DataModule,
    ExperimentConfig,
    LoadedRun,
    RunLoader,
    TrainData,
    combine_labelers,
)
from heedful.tokenization.sentences import SentenceWordTokenizerConfig
from heedful.tokenization.tokenizer import LabelTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective


def label_indices(batch: Batch) -> Int[Tensor, "B"]:
    """Return the labels of a batch, counted from 0; negative where a label is unknown."""
    return batch.targets[:, 0] - NUM_SPECIAL_TOKENS


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


class SampleClassifier(DevEvaluator):
    """Classifies the first dev texts; all metrics come from `metric_sums`."""

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        pairs = self.data_module.dev_pairs[:count]
        with self.eval_mode():
            classifier = Classifier(self.model, self.data_module.tokenizers, device=self.device)
            results = classifier.classify([pair.source for pair in pairs])
        return [
            LoggedSample(
                source=list(result.source_tokens),
                reference=pair.target,
                output=[result.text],
                text=result.text,
                attention=() if result.weights is None else round_weights(result.weights[None]),
                source_text=pair.source,
            )
            for result, pair in zip(results, pairs, strict=True)
        ]


class ClassificationTask(PairTask):
    """Text classification."""

    name = "classification"
    description = "classifies texts"
    next_command = "classify {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (TextClassifierConfig,)
    example_format = LABELED_TEXTS
    file_options = FILE_OPTIONS
    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "macro-f1": MetricSpec("Macro-F1", higher_is_better=True, unit="fraction"),
    }
    evaluation_metrics = METRICS
    default_metrics = tuple(METRICS)
    has_evaluation_page = True
    dev_evaluator = SampleClassifier

    @override
    def check_config(self, config: ExperimentConfig) -> None:
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
        super().check_config(config)

    @override
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> DataModule:
        module = super().build_data_module(config, tokenizers, train, dev)
        target = tokenizers.target
        labels = [target.normalizer(pair.target) for pair in dev.examples]
        known = target.ids_to_tokens(range(NUM_SPECIAL_TOKENS, len(target)))
        lines = describe_unknown_labels(known, labels, "labels", location="data.dev")
        module.dev_report = [*module.dev_report, *lines]
        return module

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs a decoder, and a text-classifier has none")
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return LabelCrossEntropy(label_smoothing=training.label_smoothing)

    @override
    def pad_batch(self, config: ExperimentConfig, batch: Batch) -> Batch:
        return batch  # a row without a label has no loss

    @override
    def metric_sums(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, the number of unknown labels, and the confusion counts."""
        log_probs = to_float64(model(batch).log_probs.squeeze(1))
        labels = label_indices(batch).to(log_probs.device)
        is_known = labels >= 0
        loss = nn.functional.nll_loss(log_probs[is_known], labels[is_known], reduction="sum")
        predicted = log_probs.argmax(dim=-1)
        return confusion_sums(loss, is_known.sum(), predicted, labels, log_probs.size(1))

    @override
    def finalize_metrics(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics; texts with unknown labels count as errors of accuracy."""
        return finalize_confusion(sums)

    @override
    def format_metrics(self, metrics: Mapping[str, float]) -> str:
        return format_label_metrics(metrics)

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Classifier:
        def build(member: LoadedRun) -> Classifier:
            return Classifier(cast(TextClassifier, member.model), member.tokenizers, device=device)

        return combine_labelers(members, TextClassifier, build)

    @override
    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix:
        labels = [choices[0].strip() for choices in outputs.references]
        return ConfusionMatrix.from_labels("texts", labels, outputs.texts)


TASK = ClassificationTask()
