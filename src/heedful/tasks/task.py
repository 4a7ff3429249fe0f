"""The task interface: all code that depends on the task.

A task names its model configs, data sources and metrics, and builds data module, objective and
predictor. `PairTask` and `TextTask` implement the data half for pairs of texts and for running
text; `NumericTask` is the base for numbers and images. Invariant: no module outside `tasks/`
depends on which task a recipe, a model or a predictor has.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor
from heedful.data.text.example_formats import ExampleFormat, ExampleSource
from heedful.data.text.sharded_dataset import PreparedDataset
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError, RunError, check, check_choice, choices_hint, did_you_mean
from heedful.evaluation.base import Direction, Metric
from heedful.evaluation.confusion import ConfusionMatrix
from heedful.evaluation.registry import MetricSpec
from heedful.models.output_heads import count_correct, negative_log_likelihood
from heedful.tasks.command_line import FileOptions
from heedful.tasks.default_recipe import DefaultRecipe
from heedful.tasks.prediction import DevEvaluator, Predictor, SystemOutputs
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.training.config import TrainingConfig
from heedful.training.objectives import Objective
from heedful.training.state import ResumableBatches
from heedful.training.trainer import PrecisionName

METRIC_SETTING = "training.metric_for_best_model"
SHOWN_METRICS_SETTING = "training.validation_metrics"
METRICS_SETTING = "evaluation.metrics"


class ExperimentConfig(Protocol):
    """The sections of a recipe that tasks read."""

    @property
    def data(self) -> Any: ...
    @property
    def tokenizers(self) -> Any: ...
    @property
    def model(self) -> Any: ...
    @property
    def training(self) -> TrainingConfig: ...
    @property
    def decoding(self) -> DecodingConfig: ...
    @property
    def evaluation(self) -> Any: ...


class BatchShape(NamedTuple):
    """Padded lengths of the rows of a batch; 0 source tokens in running text."""

    source_length: int
    target_length: int


class VocabSizes(NamedTuple):
    """Numbers of tokens, special tokens included."""

    source: int
    target: int

    @classmethod
    def from_tokenizers(cls, tokenizers: TokenizerPair) -> Self:
        """Return the sizes of both vocabularies."""
        return cls(len(tokenizers.source), len(tokenizers.target))


class LoadedRun(NamedTuple):
    """Contents of a run folder."""

    folder: Path | str
    config: Any  # a recipe
    tokenizers: TokenizerPair
    model: nn.Module


Labeler = TypeVar("Labeler", bound=Any)
RunLoader = Callable[[Path | str], LoadedRun]


class TrainData(NamedTuple):
    """Tokenized training data."""

    dataset: Any  # a PairDataset, a TokenStream or a SeriesDataset
    fingerprint: str
    report: Sequence[str]  # lines about its size and what was filtered out


@dataclass(eq=False)
class DataModule(ABC):
    """Tokenized training and dev data of a run."""

    recipe: ExperimentConfig
    tokenizers: TokenizerPair
    train: Any
    dev: Any
    fingerprint: str  # hash of the training data
    dev_report: Sequence[str] = ()  # lines about the size of the dev data

    @abstractmethod
    def train_batches(self, cursor: DataCursor) -> ResumableBatches:
        """Return the training batches from this position on."""

    @abstractmethod
    def validation_batches(self) -> Iterator[Any]:
        """Yield the dev batches, the same at each call."""


class Task(ABC):
    """A task of models, such as translation: data, objective, metrics and predictor."""

    name: ClassVar[str]
    description: ClassVar[str]
    """What a run of it does, after "this run": "translates"."""
    next_command: ClassVar[str]
    """What to do with a trained run: "translate {run} FILE"."""
    example_format: ClassVar[ExampleFormat]
    model_configs: ClassVar[tuple[type[BaseConfig], ...]]
    """Whose `type` selects this task."""
    source_configs: ClassVar[tuple[type[BaseConfig], ...]]
    """What data.dev and data.test may be."""
    train_source_configs: ClassVar[tuple[type[BaseConfig], ...]]
    """What only data.train may be."""
    file_options: ClassVar[FileOptions]
    """The files that `train`, `prepare`, `evaluate` and `compare` take for it."""
    metrics: ClassVar[Mapping[str, MetricSpec]]
    """What a validation can be judged by; "loss" first."""
    is_word_level: ClassVar[bool] = False
    """Whether outputs are labels of words, so that tokens must show where a word begins."""
    supports_guided_alignment: ClassVar[bool] = False
    """Whether `training.guided_alignment` can be set."""
    gpu_precision: ClassVar[PrecisionName] = "fp32"
    """Of training on a GPU where the recipe names none."""
    validation_metrics: ClassVar[tuple[str, ...]] = ()
    """Those that it shows beside what `metric_sums` gives, unless the recipe names others."""
    has_references: ClassVar[bool]
    """Whether `evaluate` and `compare` score predicted texts against references; if not, they
    show what `Predictor.evaluate` returns."""
    has_evaluation_page: ClassVar[bool] = False
    """Whether `evaluate --html` has something to draw."""
    has_search: ClassVar[bool] = False
    """Whether --beam has an effect."""
    evaluation_metrics: ClassVar[Mapping[str, Metric]] = {}
    """What `evaluate` and `compare` can compute."""
    default_metrics: ClassVar[tuple[str, ...]] = ()
    """What they compute unless told otherwise; the first decides a comparison."""
    compared_scores: ClassVar[Mapping[str, Direction]] = {}
    """The scores of `Predictor.evaluate` that `compare` shows, without references."""
    comparison_hint: ClassVar[str] = ""
    """What to do if `comparison_key` differs."""
    system_outputs: ClassVar[type[SystemOutputs]] = SystemOutputs
    """What `evaluate` scores against references."""
    dev_evaluator: ClassVar[type[DevEvaluator]] = DevEvaluator
    """What predicts for dev examples during training."""
    batch_size_setting: ClassVar[str]
    """The setting that --auto-find-batch-size changes."""
    batch_size_unit: ClassVar[str]

    # ----- configuration

    def check_config(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for sections that do not fit together."""
        self.check_sources(config)
        self.check_objective(config.training)
        shown = config.training.validation_metrics or ()
        names = [(METRIC_SETTING, config.training.metric_for_best_model)]
        names += [(SHOWN_METRICS_SETTING, metric) for metric in shown]
        for setting, metric in names:
            message = f"the model (type: {config.model.type}) has no metric called {metric!r}"
            message += did_you_mean(metric, self.metrics)
            check(metric in self.metrics, setting, message, choices_hint(self.metrics))
        for metric in config.evaluation.metrics:
            check_choice(metric, self.evaluation_metrics, "metric", location=METRICS_SETTING)

    def check_objective(self, training: TrainingConfig) -> None:
        """Raise ConfigError for an objective that the model cannot be trained with."""
        training.objective.check(training.label_smoothing, training.scheduled_sampling)
        if training.guided_alignment is None:
            return
        location = "training.guided_alignment"
        message = f"works with encoder-decoder models, but this run {self.description}"
        check(self.supports_guided_alignment, location, message, f"remove {location}")
        message = f"works with the objective 'cross-entropy', not {training.objective.type!r}"
        is_valid = training.objective.type == "cross-entropy"
        check(is_valid, location, message, f"remove {location}")

    def check_sources(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for data of another task."""
        additional = config.data.additional_tests
        message, hint = f"has no effect: the model {self.description}", "leave it out"
        check(self.has_references or not additional, "data.additional_tests", message, hint)
        sources = {split: getattr(config.data, split) for split in ("train", "dev", "test")}
        sources |= {f"additional_tests.{name}": test for name, test in additional.items()}
        corpora = getattr(config.data.train, "corpora", ())
        sources |= {f"train.corpora.{row}.source": part.source for row, part in enumerate(corpora)}
        chosen = "leave out the recipe, and one for this data is chosen"
        for split, source in sources.items():
            more = self.train_source_configs if split == "train" else ()
            if source is not None and not isinstance(source, (*self.source_configs, *more)):
                message = f"the model (type: {config.model.type}) learns from "
                message += f"{self.example_format.description}, not from '{source.type}'"
                hint = f"give {self.file_options.usage('dev' if split == 'dev' else 'train')}"
                hint += f"; or {chosen}" if split.startswith("train") else ""
                raise ConfigError(f"data.{split}.type", message, hint)

    @staticmethod
    def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
        """Return what to train on a source of data, or None, if no recipe is named."""
        raise ConfigError("recipe", "there is no default for this data", "name a recipe")

    # ----- data

    @abstractmethod
    def describe_vocabulary(self, sizes: VocabSizes) -> str:
        """Return the vocabulary sizes as `train` prints them; empty if there are none."""

    def read_examples(self, source: Any) -> list[Any]:
        """Read the examples of a test set, each with `source` and `references`."""
        return source.read()

    @abstractmethod
    def tokenize_train(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        corpora: Sequence[ExampleSource],
    ) -> TrainData:
        """Tokenize the training examples of each source in memory."""

    @abstractmethod
    def load_train(self, config: ExperimentConfig, prepared: PreparedDataset) -> TrainData:
        """Return training data that `heedful prepare` has tokenized."""

    @abstractmethod
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> DataModule:
        """Tokenize the dev examples and join them with the training data."""

    @abstractmethod
    def row_size(self, shape: BatchShape) -> int:
        """Return what a row of this shape counts for in `batch_size_setting`."""

    @abstractmethod
    def worst_case_shapes(self, data_module: Any) -> list[BatchShape]:
        """Return the shapes of batches among which is the one that needs the most memory."""

    @abstractmethod
    def max_rows(self, data_module: Any) -> int:
        """Return the number of rows of the largest batch the data can fill."""

    @abstractmethod
    def mean_shape(self, batches: Sequence[Any]) -> BatchShape:
        """Return the mean unpadded lengths of the rows of batches, at least 1."""

    @abstractmethod
    def dummy_batch(
        self,
        model: BaseConfig,
        sizes: VocabSizes,
        shape: BatchShape,
        rows: int,
        device: torch.device | str = "cpu",
    ) -> Any:
        """Return a batch of random tokens, or numbers, for a model."""

    def pad_batch(self, config: ExperimentConfig, batch: Any) -> Any:
        """Return the batch with empty rows added, so that few shapes occur; by default as it is."""
        return batch

    def batch_size(self, config: ExperimentConfig) -> int:
        """Return the value of `batch_size_setting`."""
        return attrgetter(self.batch_size_setting)(config)

    # ----- model and training

    def build_model(self, config: ExperimentConfig, sizes: VocabSizes) -> nn.Module:
        """Build the model with new parameters."""
        return config.model.build(source_vocab_size=sizes.source, target_vocab_size=sizes.target)

    def initialize_model(self, model: nn.Module, data_module: Any) -> None:
        """Set buffers of a new model that depend on the training data; by default none."""
        del model, data_module

    def build_objective(self, training: TrainingConfig) -> Objective:
        """Build the training objective."""
        return training.objective.build(
            label_smoothing=training.label_smoothing, scheduled_sampling=training.scheduled_sampling
        )

    def add_guided_alignment(
        self,
        objective: Objective,
        training: TrainingConfig,
        data_module: Any = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Add the loss of guided alignment to an objective, if the settings ask for it.

        Without data it has no links, but needs as much memory.
        """
        del objective, training, data_module, log

    def add_references(
        self,
        objective: Objective,
        data_module: Any = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Give the references of the training data to a reward that compares with all of them."""
        del objective, data_module, log

    def metric_sums(self, model: nn.Module, batch: Any) -> Tensor:
        """Return float64 sums over a batch that add up over batches and ranks.

        By default: -log p of the targets, correct argmax tokens, and the number of targets.
        """
        log_probs = model(batch, need_weights=False).log_probs
        loss = negative_log_likelihood(log_probs, batch.targets).item()
        num_correct = count_correct(log_probs, batch.targets).item()
        return torch.tensor((loss, num_correct, batch.num_targets), dtype=torch.float64)

    def finalize_metrics(self, sums: Tensor) -> dict[str, float]:
        """Return the metrics of summed `metric_sums`, "loss" first."""
        loss, num_correct, num_targets = sums.tolist()
        return {"loss": loss / num_targets, "accuracy": num_correct / num_targets}

    def format_metrics(self, metrics: Mapping[str, float]) -> str:
        """Return the metrics of a validation in one line."""
        others = dict(metrics)
        loss, accuracy = others.pop("loss"), others.pop("accuracy")
        return (
            f"validation loss {loss:.4f}, perplexity {math.exp(min(loss, 50)):.2f}, "
            f"{100 * accuracy:.1f} % of tokens correct"
            + "".join(f", {name} {score:.2f}" for name, score in others.items())
        )

    # ----- use

    @abstractmethod
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Predictor:
        """Build the predictor of a run; of multiple runs, an ensemble, or raise."""

    def comparison_key(self, predictor: Any, examples: Sequence[Any]) -> object:
        """Return a key that must be equal in runs whose `Predictor.evaluate` is compared."""
        return None

    def confusion(self, outputs: SystemOutputs) -> ConfusionMatrix | None:
        """Return the confusions of labels, if outputs are labels."""
        return None

    def render_evaluation_page(self, predictor: Any, examples: Sequence[Any], title: str) -> str:
        """Return the page of `evaluate --html`, of tasks without references that have one."""
        message = f"there is no such page: this run {self.description}"
        raise ConfigError("--html", message, "leave it out")

    def format_details(self, outputs: SystemOutputs) -> Iterable[str]:
        """Return further lines for `evaluate` to print below the scores."""
        confusion = self.confusion(outputs)
        return ["", *confusion.format_table()] if confusion else ()

    def choose_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return the metrics that are computed for these references by default."""
        return self.default_metrics


def combine_labelers(
    members: Sequence[LoadedRun], model_class: type, build: Callable[[LoadedRun], Labeler]
) -> Labeler:
    """Build the predictor of the first run, with those of the others as its ensemble.

    Raise RunError for a run of another task, or with other labels.
    """
    labelers: list[Labeler] = []
    for member in members:
        first, task = members[0], member.config.task
        message = f"this run {task.description}, but {first.folder} {first.config.task.description}"
        is_same = isinstance(member.model, model_class)
        check(is_same, str(member.folder), message, "leave it out", RunError)
        labelers.append(build(member))
        different = sorted(set(labelers[0].labels) ^ set(labelers[-1].labels))
        message = f"its labels differ from those of {first.folder}: {', '.join(different)}"
        hint = "use runs with the same labels"
        check(not different, str(member.folder), message, hint, RunError)
    labelers[0].ensemble_with = labelers[1:]
    return labelers[0]


def random_tokens(size: int, rows: int, length: int, device: torch.device | str) -> Tensor:
    """Return random ids that are no special tokens."""
    return torch.randint(min(NUM_SPECIAL_TOKENS, size - 1), size, (rows, length), device=device)
