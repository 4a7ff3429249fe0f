"""Sequence labeling as a task: pairs of a text of words and a text of their tags."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.data.text.conll_files import ConllConfig
from heedful.data.text.example_formats import TAGGED_TEXTS, ExampleSource
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.errors import check
from heedful.evaluation.annotation_metrics import are_span_tags, extract_spans
from heedful.evaluation.base import Metric, compute_score
from heedful.evaluation.confusion import (
    ConfusionMatrix,
    LabelCounts,
    confusion_sums,
    describe_unknown_labels,
    finalize_confusion,
    format_label_metrics,
    format_label_table,
)
from heedful.evaluation.registry import ACCURACY, LOSS, METRICS, MetricSpec
from heedful.pytree import to_float64
from heedful.tasks.pair_task import PairTask
from heedful.tasks.prediction import DevEvaluator, SystemOutputs
from heedful.tasks.tagging.command import FILE_OPTIONS
from heedful.tasks.tagging.default_recipe import default_recipe
from heedful.tasks.tagging.model import SequenceTagger, SequenceTaggerConfig, tag_indices
from heedful.tasks.tagging.predictor import TaggedSentence, Tagger, choose_metrics
from heedful.tasks.task import (
    METRIC_SETTING,
    DataModule,
    ExperimentConfig,
    LoadedRun,
    RunLoader,
    TrainData,
    combine_labelers,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, PAD
from heedful.tokenization.whitespace import WhitespaceTokenizerConfig, WordCharacterTokenizerConfig
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective

_SPAN_METRICS = {name: METRICS[name] for name in ("span-f1", "span-f1-iob2")}


class TagLikelihood(Objective):
    """-log p(tags | words), summed over sentences and divided by the number of words."""

    @override
    def normalizer(self, batch: Batch) -> int:
        num_sentences = int((batch.targets[:, 0] != PAD).sum())  # without rows of padding
        return batch.num_targets - num_sentences  # without EOS

    @override
    def __call__(
        self, model: nn.Module, batch: Batch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        return LossTerms(-output.log_probs.sum(), output.auxiliary_losses)


class DevTagger(DevEvaluator):
    """Tags dev sentences; loss, accuracy and macro-F1 come from `metric_sums`."""

    @override
    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        pairs = self.data_module.dev_pairs[:max_examples]
        references = [pair.target for pair in pairs]
        metrics = {name: _SPAN_METRICS[name] for name in names if name in _SPAN_METRICS}
        if not metrics:
            return {}
        outputs = [result.text for result in self._tag([pair.source for pair in pairs])]
        scores = ((name, compute_score(m, outputs, references)) for name, m in metrics.items())
        return {name: score.value for name, score in scores}

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        pairs = self.data_module.dev_pairs[:count]
        results = self._tag([pair.source for pair in pairs])
        return [
            LoggedSample(
                source=list(result.words),
                reference=pair.target,
                output=list(result.tags),
                text=result.text,
                attention=(),
                source_text=pair.source,
            )
            for result, pair in zip(results, pairs, strict=True)
        ]

    def _tag(self, sentences: Sequence[str]) -> list[TaggedSentence]:
        with self.eval_mode():
            tokenizers, scheme = self.data_module.tokenizers, self.config.model.scheme
            return Tagger(self.model, tokenizers, scheme=scheme, device=self.device).tag(sentences)


class TaggingTask(PairTask):
    """Sequence labeling."""

    name = "tagging"
    description = "tags words"
    next_command = "tag {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (SequenceTaggerConfig,)
    example_format = TAGGED_TEXTS
    source_configs = (ConllConfig, *PAIR_SOURCES)
    file_options = FILE_OPTIONS
    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "macro-f1": MetricSpec("Macro-F1", higher_is_better=True, unit="fraction"),
        **{name: MetricSpec.from_metric(metric) for name, metric in _SPAN_METRICS.items()},
    }
    evaluation_metrics: ClassVar[Mapping[str, Metric]] = {
        "token-accuracy": METRICS["token-accuracy"],
        **_SPAN_METRICS,
    }
    default_metrics = ("token-accuracy",)
    has_evaluation_page = True
    dev_evaluator = DevTagger
    is_word_level = True

    @override
    def check_config(self, config: ExperimentConfig) -> None:
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
        super().check_config(config)

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs a decoder, and a sequence-tagger has none")
        message = f"is {training.label_smoothing:g}, but the tags of a sentence are not smoothed"
        hint = "set training.label_smoothing to 0"
        check(not training.label_smoothing, "training.label_smoothing", message, hint)
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return TagLikelihood()

    @override
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> DataModule:
        module = super().build_data_module(config, tokenizers, train, dev)
        references = [pair.target for pair in dev.examples]
        metric = config.training.metric_for_best_model
        has_spans = are_span_tags(tag for line in references for tag in line.split())
        message = f"{metric} needs tags of spans, such as B-TYPE and I-TYPE, and dev has none"
        hint = f"set {METRIC_SETTING} to accuracy"
        check(has_spans or metric not in _SPAN_METRICS, METRIC_SETTING, message, hint)
        labels = tokenizers.target.ids_to_tokens(range(NUM_SPECIAL_TOKENS, len(tokenizers.target)))
        tags = list(_tags(references))
        lines = describe_unknown_labels(labels, tags, "tags", location="data.dev")
        module.dev_report = [*module.dev_report, *lines]
        return module

    @override
    def metric_sums(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, the number of unknown tags, and the confusion counts.

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
    def finalize_metrics(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics; words with unknown tags count as errors of accuracy."""
        return finalize_confusion(sums)

    @override
    def format_metrics(self, metrics: Mapping[str, float]) -> str:
        return format_label_metrics(metrics)

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Tagger:
        def build(member: LoadedRun) -> Tagger:
            model, config = cast(SequenceTagger, member.model), member.config
            tagger = Tagger(model, member.tokenizers, scheme=config.model.scheme, device=device)
            if isinstance(train := config.data.train, ConllConfig):
                tagger.conll_columns = train.source_column, train.target_column
            return tagger

        return combine_labelers(members, SequenceTagger, build)

    @override
    def choose_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[str]:
        return choose_metrics(choices[0] for choices in references)

    @override
    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix:
        references, predicted = (list(_tags(lines)) for lines in _sides(outputs))
        return ConfusionMatrix.from_labels("words", references, predicted)

    @override
    def format_details(self, outputs: SystemOutputs) -> Iterator[str]:
        """Yield tables of the tags and, if there are any, of the types of spans."""
        yield from super().format_details(outputs)
        references, predicted = _sides(outputs)
        if are_span_tags(_tags(references)):
            yield ""
            yield from format_label_table("spans", count_spans(references, predicted))
        labels = cast(Tagger, outputs.predictor).labels
        yield from describe_unknown_labels(labels, list(_tags(references)), "tags")


def _sides(outputs: SystemOutputs) -> tuple[Sequence[str], Sequence[str]]:
    return [choices[0] for choices in outputs.references], outputs.texts


def _tags(lines: Iterable[str]) -> Iterator[str]:
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


TASK = TaggingTask()
