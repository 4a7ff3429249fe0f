"""Experiments: from a recipe to data, a trained run, and averages of runs.

Reading order: `plan` (which recipe), `train` (start or resume) with `ranks`, `data_modules` and
`prepared_data`, `trainer_setup` with `pretrained_encoder` and `embedding_files`, `job` (logs and
checkpoints) with `validation`; `evaluation` and `test_sets`; `checkpoint_averaging`,
`compression`, `distillation`, `back_translation`, `batch_size`, `bench`, `flops`, `environment`.
"""

from heedful.experiment.data_modules import load_data
from heedful.experiment.plan import load_training_recipe
from heedful.experiment.prepared_data import build_prepared_dataset
from heedful.experiment.train import train
from heedful.training.state import TrainingResult

__all__ = ["TrainingResult", "build_prepared_dataset", "load_data", "load_training_recipe", "train"]
