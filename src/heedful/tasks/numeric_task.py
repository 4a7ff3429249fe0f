"""Tasks on examples without tokens: numbers, images."""

from typing import ClassVar

from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.text.sharded_dataset import PreparedDataset
from heedful.errors import check
from heedful.tasks.task import BatchShape, ExperimentConfig, Task, TrainData, VocabSizes
from heedful.tokenization.tokenizer_pair import NoTokenizersConfig


class NumericTask(Task):
    """A task whose examples have no tokens; `tokenizers.type` is 'none'."""

    model_inputs: ClassVar[str]
    """The model and what it reads, for messages: "a forecaster reads numbers"."""
    train_source_configs: ClassVar[tuple[type[BaseConfig], ...]] = ()
    has_references = False

    @override
    def check_config(self, config: ExperimentConfig) -> None:
        message = f"{self.model_inputs}, which have no tokenizers"
        is_none = isinstance(config.tokenizers, NoTokenizersConfig)
        check(is_none, "tokenizers.type", message, "set `tokenizers: {type: none}`")
        super().check_config(config)

    @override
    def describe_vocabulary(self, sizes: VocabSizes) -> str:
        return ""

    @override
    def load_train(self, config: ExperimentConfig, prepared: PreparedDataset) -> TrainData:
        raise self.example_format.no_tokens_error()

    @override
    def row_size(self, shape: BatchShape) -> int:
        return 1
