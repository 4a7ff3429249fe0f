"""Corpora: the data of a run, read, cut into tokens and reported on.

What differs between models of pairs and models of running text is all here: how data is read,
and how batches are made of it. Data that does not fit into memory is cut into files.
"""

from heedful.experiment.datasets import build_prepared_data, load_data
from heedful.experiment.train import train
from heedful.experiment.training_loop import TrainingResult
from heedful.tasks.base import BatchIterator, DataModule
from heedful.tasks.language_modeling.task import LanguageModelingDataModule
from heedful.tasks.masked_language_modeling.task import MaskedLanguageModelingDataModule
from heedful.tasks.seq2seq.task import ParallelDataModule

__all__ = [
    "BatchIterator",
    "DataModule",
    "LanguageModelingDataModule",
    "MaskedLanguageModelingDataModule",
    "ParallelDataModule",
    "TrainingResult",
    "build_prepared_data",
    "load_data",
    "train",
]
