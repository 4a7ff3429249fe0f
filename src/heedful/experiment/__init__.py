"""Experiments: from a recipe to data, a trained run, and averages of runs."""

from heedful.experiment.arguments import load_training_recipe
from heedful.experiment.data_modules import build_prepared_dataset, load_data
from heedful.experiment.train import train
from heedful.training.state import TrainingResult

__all__ = [
    "TrainingResult",
    "build_prepared_dataset",
    "load_data",
    "load_training_recipe",
    "train",
]
