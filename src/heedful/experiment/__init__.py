"""Corpora: the data of a run, read, cut into tokens and reported on.

What differs between models of pairs and models of running text is all here: how data is read,
and how batches are made of it. Data that does not fit into memory is cut into files.
"""

from heedful.experiment.data_modules import build_prepared_dataset, load_data
from heedful.experiment.train import train
from heedful.experiment.training_loop import TrainingResult
from heedful.tasks.masked_language_modeling.task import MaskedTextDataModule
from heedful.tasks.pair_task import PairDataModule
from heedful.tasks.task import BatchIterator, DataModule
from heedful.tasks.text_task import TextDataModule

__all__ = [
    "BatchIterator",
    "DataModule",
    "MaskedTextDataModule",
    "PairDataModule",
    "TextDataModule",
    "TrainingResult",
    "build_prepared_dataset",
    "load_data",
    "train",
]
