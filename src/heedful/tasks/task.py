"""The task interface: all code that depends on the task.

A task has models, an objective and a predictor, and two sides of its own: `TaskData` and
`Evaluation`. Invariant: no module outside `tasks/` depends on which task a recipe, a model or a
predictor has.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from heedful.config import BaseConfig
from heedful.errors import ConfigError, check
from heedful.tasks.default_recipe import DefaultRecipe
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import Predictor
from heedful.tasks.task_data import ExperimentConfig, TaskData, VocabSizes
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.config import TrainingConfig
from heedful.training.objectives import Objective, SequenceLevelObjective
from heedful.training.rollouts import CiderDReward
from heedful.training.trainer import PrecisionName


class LoadedRun(NamedTuple):
    """Contents of a run folder."""

    folder: Path | str
    config: Any  # a recipe
    tokenizers: TokenizerPair
    model: nn.Module


RunLoader = Callable[[Path | str], LoadedRun]


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
    supports_guided_alignment: ClassVar[bool] = False
    """Whether `training.guided_alignment` can be set."""
    gpu_precision: ClassVar[PrecisionName] = "fp32"
    """Of training on a GPU where the recipe names none."""

    def check_config(self, config: ExperimentConfig) -> None:
        """Raise ConfigError for sections that do not fit together; builds nothing."""
        self.data.check(config)
        self.check_objective(config.training)
        self.evaluation.check(config)

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

    @staticmethod
    def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
        """Return what to train on a source of data, or None, if no recipe is named."""
        raise ConfigError("recipe", "there is no default for this data", "name a recipe")

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
        if not isinstance(objective, SequenceLevelObjective) or data_module is None:
            return
        reward = objective.rollout_sampler.reward
        if isinstance(reward, CiderDReward):
            reward.references = data_module.build_reference_table()
            log(f"reward cider-d: {reward.references.describe()}; the loss has 1 - reward")

    @abstractmethod
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Predictor:
        """Build the predictor of a run; of multiple runs, an ensemble, or raise."""
