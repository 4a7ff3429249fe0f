"""Sequence labeling as a task: pairs of a text of words and a text of their tags."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.data.text.conll_files import ConllConfig
from heedful.data.text.example_formats import TAGGED_TEXTS
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.errors import check
from heedful.evaluation.annotation_metrics import are_span_tags, extract_spans
from heedful.evaluation.base import Metric
from heedful.evaluation.confusion import (
    ConfusionMatrix,
    LabelCounts,
    confusion_sums,
    describe_unknown_labels,
    format_label_table,
)
from heedful.evaluation.registry import METRICS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.evaluation import METRIC_SETTING, SystemOutputs
from heedful.tasks.labels import LabelData, LabelEvaluation, LabelTask
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.tagging.model import SequenceTagger, SequenceTaggerConfig, tag_indices
from heedful.tasks.tagging.predictor import Tagger, choose_metrics
from heedful.tasks.task_data import ExperimentConfig
from heedful.tokenization.special_texts import (
    WhitespaceTokenizerConfig,
    WordCharacterTokenizerConfig,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import PAD
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LikelihoodObjective

SPAN_METRICS = {name: METRICS[name] for name in ("span-f1", "span-f1-iob2")}


class TaggingEvaluation(LabelEvaluation):
    """The evaluation of taggers."""

    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        **LabelEvaluation.metrics,
        **{name: MetricSpec.from_metric(metric) for name, metric in SPAN_METRICS.items()},
    }
    test_metrics: ClassVar[Mapping[str, Metric]] = {
        "token-accuracy": METRICS["token-accuracy"],
        **SPAN_METRICS,
    }
    default_metrics = ("token-accuracy",)

    @override
    def batch_sums(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, the number of tags it has, and the confusion counts.

        Sentences with unknown tags are left out of the loss.
        """
        assert isinstance(model, SequenceTagger), type(model)
        emissions, mask, _ = model.score_tags(batch.sources, batch.targets.size(1))
        tags = tag_indices(batch)
        emissions = to_float64(emissions)
        is_known = (tags >= 0) | ~mask
        log_probs = model.head.log_likelihood(emissions, tags.clamp(min=0), mask)
        is_scored = is_known.all(dim=1)
        loss, num_words = -(log_probs * is_scored).sum(), mask[is_scored].sum()
        predicted = model.head.decode(emissions, mask)
        return confusion_sums(loss, num_words, predicted[mask], tags[mask], emissions.size(-1))

    @override
    def choose_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[str]:
        return choose_metrics(choices[0] for choices in references)

    @override
    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix:
        references, predicted = (list(split_tags(lines)) for lines in _sides(outputs))
        return ConfusionMatrix.from_labels("words", references, predicted)

    @override
    def format_details(self, outputs: SystemOutputs) -> Iterator[str]:
        """Yield tables of the tags and, if there are any, of the types of spans."""
        yield from super().format_details(outputs)
        references, predicted = _sides(outputs)
        if are_span_tags(split_tags(references)):
            yield ""
            yield from format_label_table("spans", count_spans(references, predicted))
        labels = cast(Tagger, outputs.predictor).labels
        yield from describe_unknown_labels(labels, list(split_tags(references)), "tags")


def _sides(outputs: SystemOutputs) -> tuple[Sequence[str], Sequence[str]]:
    return [choices[0] for choices in outputs.references], outputs.texts


def split_tags(lines: Iterable[str]) -> Iterator[str]:
    """Yield the tags of lines."""
    return (tag for line in lines for tag in line.split())


def count_spans(references: Sequence[str], predicted: Sequence[str]) -> Iterator[LabelCounts]:
    """Yield the counts of each type of span, and of all."""
    true: Counter[str] = Counter()
    false: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for sides in zip(references, predicted, strict=True):
        gold, predictions = (extract_spans(line.split()) for line in sides)
        true.update(span.label for span in gold & predictions)
        false.update(span.label for span in predictions - gold)
        missed.update(span.label for span in gold - predictions)
    for label in sorted({*true, *false, *missed}):
        yield label, true[label], false[label], missed[label]
    yield "all", true.total(), false.total(), missed.total()


class TaggingData(LabelData):
    """The data of taggers."""

    example_format = TAGGED_TEXTS
    source_configs = (ConllConfig, *PAIR_SOURCES)
    is_word_level = True
    label_name = "tags"

    @override
    def check(self, config: ExperimentConfig) -> None:
        source, target = (getattr(config.tokenizers, name, None) for name in ("source", "target"))
        hint = "set `tokenizers: {type: separate, source: {type: word-character}, "
        hint += "target: {type: whitespace}}`"
        has_characters = isinstance(source, WordCharacterTokenizerConfig)
        has_words = isinstance(source, WhitespaceTokenizerConfig)
        is_valid = has_characters or has_words or getattr(source, "mark_words", False)
        message = "a sequence-tagger needs words that are separated by spaces"
        check(is_valid, "tokenizers.source.type", message, hint)
        is_valid = isinstance(target, WhitespaceTokenizerConfig)
        message = "the target texts of a sequence-tagger are tags, separated by spaces"
        check(is_valid, "tokenizers.target.type", message, hint)
        is_valid = has_characters or config.model.characters is None
        message = f"set, but tokenizers.source.type is '{source and source.type}'"
        check(is_valid, "model.characters", message, hint)
        super().check(config)

    @override
    def split_labels(self, target: str, tokenizers: TokenizerPair) -> list[str]:
        return target.split()

    @override
    def check_dev(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, examples: Sequence[Pair]
    ) -> list[str]:
        metric = config.training.metric_for_best_model
        has_spans = are_span_tags(split_tags(pair.target for pair in examples))
        message = f"{metric} needs tags of spans, such as B-TYPE and I-TYPE, and dev has none"
        hint = f"set {METRIC_SETTING} to accuracy"
        check(has_spans or metric not in SPAN_METRICS, METRIC_SETTING, message, hint)
        return super().check_dev(config, tokenizers, examples)


class TagLikelihood(LikelihoodObjective):
    """-log p(tags | words), summed over sentences and divided by the number of words."""

    @override
    def normalizer(self, batch: Batch) -> int:
        num_sentences = int((batch.targets[:, 0] != PAD).sum())  # without rows of padding
        return batch.num_targets - num_sentences  # without EOS


class TaggingTask(LabelTask):
    """Sequence labeling."""

    name = "tagging"
    description = "tags words"
    next_command = "tag {run} FILE"
    model_configs = (SequenceTaggerConfig,)
    data = TaggingData()
    evaluation = TaggingEvaluation()
    objective = TagLikelihood
    no_decoder = "needs a decoder, and a sequence-tagger has none"
    default_recipes = ("default-tagger", "bilstm-tagger")
    examples_per_minute = 100_000  # words

    @override
    def measure(self, train: Any, *, is_cpu: bool) -> tuple[int, dict[str, Any]]:
        """Take a CRF and the F1 of spans where all tags are O or those of spans (B-X, I-X ...)."""
        counts = Counter(split_tags(line for _, line in train.stream()))
        settings: dict[str, Any] = {}
        if are_span_tags(counts):
            settings["model.output_head"] = {"type": "crf"}
            settings["training.metric_for_best_model"] = "span-f1"
        return counts.total(), settings

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        message = f"is {training.label_smoothing:g}, but the tags of a sentence are not smoothed"
        hint = "set training.label_smoothing to 0"
        super().check_objective(training)
        check(not training.label_smoothing, "training.label_smoothing", message, hint)

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> Tagger:
        model, scheme = cast(SequenceTagger, run.model), run.config.model.scheme
        tagger = Tagger(model, run.tokenizers, scheme=scheme, device=device)
        if isinstance(train := run.config.data.train, ConllConfig):
            tagger.conll_columns = train.source_column, train.target_column
        return tagger


TASK = TaggingTask()
