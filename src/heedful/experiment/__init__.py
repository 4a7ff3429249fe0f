"""Corpora: the data of a run, read, cut into tokens and reported on.

What differs between models of pairs and models of running text is all here: how data is read,
and how batches are made of it. Data that does not fit into memory is cut into files.
"""

from heedful.experiment.data_modules import build_prepared_dataset, load_data
from heedful.experiment.train import train
from heedful.experiment.training_loop import TrainingResult
from heedful.tasks.base import BatchIterator, DataModule
from heedful.tasks.language_modeling.data_module import LMDataModule
from heedful.tasks.masked_language_modeling.data_module import MaskedLMDataModule
from heedful.tasks.translation.data_module import ParallelDataModule

__all__ = [
    "BatchIterator",
    "DataModule",
    "LMDataModule",
    "MaskedLMDataModule",
    "ParallelDataModule",
    "TrainingResult",
    "build_prepared_dataset",
    "load_data",
    "train",
]
