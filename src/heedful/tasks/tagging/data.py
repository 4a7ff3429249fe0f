"""The data of taggers."""

from typing_extensions import override

from heedful.data.text.conll_files import ConllConfig
from heedful.data.text.example_formats import TAGGED_TEXTS, ExampleSource
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.errors import check
from heedful.evaluation.annotation_metrics import are_span_tags
from heedful.evaluation.confusion import describe_unknown_labels
from heedful.tasks.evaluation import METRIC_SETTING
from heedful.tasks.pair_data import PairData
from heedful.tasks.tagging.command import FILE_OPTIONS
from heedful.tasks.tagging.evaluation import SPAN_METRICS, split_tags
from heedful.tasks.task_data import DataModule, ExperimentConfig, TrainData
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from heedful.tokenization.whitespace import WhitespaceTokenizerConfig, WordCharacterTokenizerConfig


class TaggingData(PairData):
    """The data of taggers."""

    example_format = TAGGED_TEXTS
    source_configs = (ConllConfig, *PAIR_SOURCES)
    file_options = FILE_OPTIONS
    is_word_level = True

    @override
    def check(self, config: ExperimentConfig) -> None:
        source, target = (getattr(config.tokenizers, name, None) for name in ("source", "target"))
        hint = "set `tokenizers: {type: separate, source: {type: word-character}, "
        hint += "target: {type: whitespace}}`"
        has_characters = isinstance(source, WordCharacterTokenizerConfig)
        has_words = isinstance(source, WhitespaceTokenizerConfig)
        is_valid = has_characters or has_words or getattr(source, "mark_words", False)
        message = "a sequence-tagger needs words that are separated by spaces"
        check(is_valid, "tokenizers.source.type", message, hint)
        is_valid = isinstance(target, WhitespaceTokenizerConfig)
        message = "the target texts of a sequence-tagger are tags, separated by spaces"
        check(is_valid, "tokenizers.target.type", message, hint)
        is_valid = has_characters or config.model.characters is None
        message = f"set, but tokenizers.source.type is '{source and source.type}'"
        check(is_valid, "model.characters", message, hint)
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
        references = [pair.target for pair in dev.examples]
        metric = config.training.metric_for_best_model
        has_spans = are_span_tags(tag for line in references for tag in line.split())
        message = f"{metric} needs tags of spans, such as B-TYPE and I-TYPE, and dev has none"
        hint = f"set {METRIC_SETTING} to accuracy"
        check(has_spans or metric not in SPAN_METRICS, METRIC_SETTING, message, hint)
        labels = tokenizers.target.ids_to_tokens(range(NUM_SPECIAL_TOKENS, len(tokenizers.target)))
        tags = list(split_tags(references))
        lines = describe_unknown_labels(labels, tags, "tags", location="data.dev")
        module.dev_report = [*module.dev_report, *lines]
        return module
