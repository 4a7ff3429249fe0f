"""The data of text classifiers."""

from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.data.text.example_formats import LABELED_TEXTS, ExampleSource
from heedful.errors import check
from heedful.evaluation.confusion import describe_unknown_labels
from heedful.tasks.classification.command import FILE_OPTIONS
from heedful.tasks.pair_data import PairData
from heedful.tasks.task_data import DataModule, ExperimentConfig, TrainData
from heedful.tokenization.sentences import SentenceWordTokenizerConfig
from heedful.tokenization.tokenizer import LabelTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS


class ClassificationData(PairData):
    """The data of text classifiers."""

    example_format = LABELED_TEXTS
    file_options = FILE_OPTIONS

    @override
    def check(self, config: ExperimentConfig) -> None:
        target = getattr(config.tokenizers, "target", None)
        message = "the target texts of a text-classifier are labels"
        hint = "set `tokenizers: {type: separate, source: {type: word}, target: {type: label}}`"
        check(isinstance(target, LabelTokenizerConfig), "tokenizers.target.type", message, hint)
        source = getattr(config.tokenizers, "source", None)
        is_hierarchical = config.model.encoder.type == "hierarchical"
        message = "a hierarchical encoder reads sentences, which this tokenizer does not mark"
        hint = "set tokenizers.source.type to 'sentence-word'"
        is_valid = not is_hierarchical or isinstance(source, SentenceWordTokenizerConfig)
        check(is_valid, "tokenizers.source.type", message, hint)
        super().check(config)

    @override
    def build_data_module(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        train: TrainData,
        dev: ExampleSource,
    ) -> DataModule:
        module = super().build_data_module(config, tokenizers, train, dev)
        target = tokenizers.target
        labels = [target.normalizer(pair.target) for pair in dev.examples]
        known = target.ids_to_tokens(range(NUM_SPECIAL_TOKENS, len(target)))
        lines = describe_unknown_labels(known, labels, "labels", location="data.dev")
        module.dev_report = [*module.dev_report, *lines]
        return module

    @override
    def pad_batch(self, config: ExperimentConfig, batch: Batch) -> Batch:
        return batch  # a row without a label has no loss
