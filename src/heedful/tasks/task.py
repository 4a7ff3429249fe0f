"""The task interface: all code that depends on the task.

A task has models, an objective and a predictor, and two sides of its own: `TaskData` and
`Evaluation`. Invariant: no module outside `tasks/` depends on which task a recipe, a model or a
predictor has.
"""

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from heedful.config import BaseConfig
from heedful.errors import RunError, check
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import LoadedRun, Predictor, RunLoader, TokenizedTextPredictor
from heedful.tasks.task_data import ExperimentConfig, TaskData, VocabSizes
from heedful.tokenization.subword import NUM_BYTES
from heedful.training.config import TrainingConfig
from heedful.training.objectives import Objective, SequenceLevelObjective
from heedful.training.rollouts import CiderDReward
from heedful.training.trainer import PrecisionName

MIN_MINUTES = 5
_UNLIMITED_STEPS = 1_000_000
_PIECES_PER_CHARACTER, _MIN_VOCAB_SIZE = 3, 100


class DefaultRecipe(NamedTuple):
    """A bundled recipe, and the settings that depend on the data."""

    name: str
    settings: Mapping[str, Any] = {}


def until_time_is_over() -> dict[str, Any]:
    """Return the settings that end a recipe, and its learning rate, with `max_minutes`."""
    return {
        "training.max_steps": _UNLIMITED_STEPS,
        "training.max_minutes": MIN_MINUTES,
        "training.validate_every": None,
        "training.patience": None,
        "training.lr_scheduler": {"type": "cosine", "warmup_ratio": 0.05},
    }


def choose_vocab_size(size: float, num_characters: int, max_size: int) -> int:
    """Return a number of subwords: about `size`, but 3 or more per different character."""
    size = round(max(size, _PIECES_PER_CHARACTER * num_characters), -2)
    return int(NUM_BYTES + min(max_size, max(_MIN_VOCAB_SIZE, size)))


class Task(ABC):
    """A task of models, such as translation."""

    name: ClassVar[str]
    description: ClassVar[str]
    """What a run of it does, after "this run": "translates"."""
    next_command: ClassVar[str]
    """What to do with a trained run: "translate {run} FILE"."""
    model_configs: ClassVar[tuple[type[BaseConfig], ...]]
    """Whose `type` selects this task."""
    data: ClassVar[TaskData]
    evaluation: ClassVar[Evaluation]
    predictor: ClassVar[type[TokenizedTextPredictor]]
    """What `build_predictor` builds, unless it is overridden."""
    supports_guided_alignment: ClassVar[bool] = False
    """Whether `training.guided_alignment` can be set."""
    gpu_precision: ClassVar[PrecisionName] = "fp32"
    """Of training on a GPU where the recipe names none."""
    objective: ClassVar[type[Objective] | None] = None
    """What models are trained with, if the recipe has no choice."""
    no_decoder: ClassVar[str] = ""
    """Why objectives and schedules of decoders do not work, if there is no decoder."""
    default_recipes: ClassVar[tuple[str, ...]] = ()
    """What is trained on a CPU and on a GPU if no recipe is named."""
    examples_per_minute: ClassVar[int]
    """Of what `measure` counts; training takes `MIN_MINUTES`, or longer for more examples."""

    def check_config(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for sections that do not fit together; builds nothing."""
        self.data.check(config)
        self.check_objective(config.training)
        self.evaluation.check(config)

    def check_objective(self, training: TrainingConfig) -> None:
        """Raise ConfigError for an objective that the model cannot be trained with."""
        if self.no_decoder:
            training.check_no_decoder(self.no_decoder)
        training.objective.check(training.label_smoothing, training.scheduled_sampling)
        if training.guided_alignment is None:
            return
        location = "training.guided_alignment"
        message = f"works with encoder-decoder models, but this run {self.description}"
        check(self.supports_guided_alignment, location, message, f"remove {location}")
        message = f"works with the objective 'cross-entropy', not {training.objective.type!r}"
        is_valid = training.objective.type == "cross-entropy"
        check(is_valid, location, message, f"remove {location}")

    def default_recipe(self, device: torch.device, train: Any) -> DefaultRecipe:
        """Return what to train on a source of data, or None, if no recipe is named.

        Recipes that are not called "default" were made for another time.
        """
        message, hint = "there is no default for this data", "name a recipe"
        check(self.default_recipes, "recipe", message, hint)
        is_cpu = device.type == "cpu"
        name = self.default_recipes[0 if is_cpu else 1]
        settings = {} if name.startswith("default") else until_time_is_over()
        if train is not None:
            count, sizes = self.measure(train, is_cpu=is_cpu)
            settings |= {"training.max_minutes": self.choose_minutes(count), **sizes}
        return DefaultRecipe(name, settings)

    def measure(self, train: Any, *, is_cpu: bool) -> tuple[int, dict[str, Any]]:
        """Return the number of training examples, and the settings that depend on them."""
        raise NotImplementedError

    def core_settings(self, num_cores: int) -> dict[str, Any]:
        """Return settings of the default for a CPU with so many cores; a resumed run keeps its own.

        The names are the same for any number.
        """
        del num_cores
        return {}

    def choose_minutes(self, num_examples: int) -> int:
        """Return the minutes of training on so many examples."""
        return max(MIN_MINUTES, round(num_examples / self.examples_per_minute))

    def build_model(self, config: ExperimentConfig, sizes: VocabSizes) -> nn.Module:
        """Build the model with new parameters."""
        return config.model.build(source_vocab_size=sizes.source, target_vocab_size=sizes.target)

    def initialize_model(self, model: nn.Module, data_module: Any) -> None:
        """Set buffers of a new model that depend on the training data; by default none."""
        del model, data_module

    def build_objective(self, training: TrainingConfig) -> Objective:
        """Build the training objective."""
        if self.objective is not None:
            return self.objective(label_smoothing=training.label_smoothing)
        return training.objective.build(
            label_smoothing=training.label_smoothing, scheduled_sampling=training.scheduled_sampling
        )

    def add_training_data(
        self,
        objective: Objective,
        training: TrainingConfig,
        data_module: Any = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Give an objective what it needs of the training data: the references of a reward.

        Without data, it has none of it, but needs as much memory.
        """
        del training
        if not isinstance(objective, SequenceLevelObjective) or data_module is None:
            return
        reward = objective.rollout_sampler.reward
        if isinstance(reward, CiderDReward):
            reward.references = data_module.build_reference_table()
            log(f"reward cider-d: {reward.references.describe()}; the loss has 1 - reward")

    def build_predictor(self, run: LoadedRun, device: torch.device) -> Predictor:
        """Build the predictor of a run: by default from its model and tokenizers."""
        return self.predictor(run.model, run.tokenizers, device=device)

    def combine_runs(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Predictor:
        """Build the predictor of the first run, with those of the others as its ensemble.

        Raise RunError for a run of another task, or one that differs too much.
        """
        predictors: list[Any] = []
        for member in members:
            folder, first = str(member.folder), members[0].folder
            message = f"this run {member.config.task.description}, but {first} {self.description}"
            is_same = member.config.task.name == self.name
            check(is_same, folder, message, "leave it out", RunError)
            predictors.append(self.build_predictor(member, device))
            if mismatch := self.find_mismatch(predictors[0], predictors[-1], first):
                raise RunError(folder, *mismatch)
        predictors[0].ensemble_with = predictors[1:]
        return predictors[0]

    def find_mismatch(self, first: Any, other: Any, folder: Path | str) -> tuple[str, str] | None:
        """Return why a predictor cannot join an ensemble with that of `folder`, and what can."""
        return None
