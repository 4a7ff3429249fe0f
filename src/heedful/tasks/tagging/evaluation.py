"""The evaluation of taggers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, cast

from torch import Tensor, nn
from typing_extensions import override

from heedful.data.text.batching import Batch
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
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import DevEvaluator, SystemOutputs
from heedful.tasks.tagging.model import SequenceTagger, tag_indices
from heedful.tasks.tagging.predictor import TaggedSentence, Tagger, choose_metrics
from heedful.training.callbacks import LoggedSample

SPAN_METRICS = {name: METRICS[name] for name in ("span-f1", "span-f1-iob2")}


class DevTagger(DevEvaluator):
    """Tags dev sentences; loss, accuracy and macro-F1 come from `batch_sums`."""

    @override
    def compute_scores(
        self, names: Sequence[str], *, max_examples: int | None = None
    ) -> dict[str, float]:
        pairs = self.data_module.dev_pairs[:max_examples]
        references = [pair.target for pair in pairs]
        metrics = {name: SPAN_METRICS[name] for name in names if name in SPAN_METRICS}
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


class TaggingEvaluation(Evaluation):
    """The evaluation of taggers."""

    metrics: ClassVar[Mapping[str, MetricSpec]] = {
        "loss": LOSS,
        "accuracy": ACCURACY,
        "macro-f1": MetricSpec("Macro-F1", higher_is_better=True, unit="fraction"),
        **{name: MetricSpec.from_metric(metric) for name, metric in SPAN_METRICS.items()},
    }
    test_metrics: ClassVar[Mapping[str, Metric]] = {
        "token-accuracy": METRICS["token-accuracy"],
        **SPAN_METRICS,
    }
    default_metrics = ("token-accuracy",)
    draws_page = True
    dev_evaluator = DevTagger

    @override
    def batch_sums(self, model: nn.Module, batch: Batch) -> Tensor:
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
    def finalize(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics; words with unknown tags count as errors of accuracy."""
        return finalize_confusion(sums)

    @override
    def format(self, metrics: Mapping[str, float]) -> str:
        return format_label_metrics(metrics)

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
