"""Translation: write a target text for a source text, with an encoder-decoder or a prefix LM.

Models are evaluated on a test set, and on dev sources during training.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from math import sqrt
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
from heedful.aligners.links import format_pharaoh
from heedful.data.text.example_formats import ExampleSource
from heedful.data.text.pair_dataset import Pair
from heedful.decoding.requests import Request
from heedful.decoding.translation import Translation
from heedful.decoding.word_alignment import argmax_links, word_alignment
from heedful.errors import ConfigError, DataError, check
from heedful.evaluation.annotation_metrics import attention_entropies, format_numbers
from heedful.evaluation.base import Metric, compute_score
from heedful.evaluation.registry import (
    ALIGNMENT_METRICS,
    ALL_METRICS,
    DEFAULT_METRICS,
    MAX_NBEST,
    MODEL_METRICS,
    NBEST_METRICS,
    VALIDATION_METRICS,
)
from heedful.evaluation.text_metrics import join_outputs
from heedful.models.base import DecodableModel
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.ensembles import ShallowFusion
from heedful.models.language_model import LanguageModel
from heedful.models.prefix_lm import PrefixLanguageModelConfig
from heedful.tasks.command_line import PARALLEL_FILES, Split
from heedful.tasks.evaluation import (
    METRIC_SETTING,
    SHOWN_METRICS_SETTING,
    DevEvaluator,
    Evaluation,
    SystemOutputs,
)
from heedful.tasks.pair_data import PairData
from heedful.tasks.prediction import LoadedRun, RunLoader
from heedful.tasks.search_predictor import combine_models, first_difference
from heedful.tasks.task import Task, choose_vocab_size
from heedful.tasks.task_data import ExperimentConfig
from heedful.tasks.translation.guided_alignment import build_link_table
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.special_texts import PositionTokenizerConfig
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig, TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.training.config import TrainingConfig
from heedful.training.guided_alignment import NO_LINKS, AlignmentGuide
from heedful.training.objectives import CrossEntropyObjective, Objective

# The lines that metrics parse. Only they are kept: weights would take far more memory.
_LINE_FORMATS: dict[str, Callable[[Translation], str]] = {
    "text": lambda translation: translation.text,
    "log_probs": lambda translation: format_numbers(translation.log_probs),
    "entropies": lambda translation: format_numbers(attention_entropies(translation.weights)),
    "alignment": lambda translation: format_pharaoh(word_alignment(translation, argmax_links)),
}


class TranslationOutputs(SystemOutputs):
    """The outputs of a translator for a test set.

    Most metrics score output texts; perplexity scores log-probabilities of the references, AER
    their word alignments, attention entropy the weights of the outputs. Invariant: sources are
    decoded at most once, and once more for n-best lists, and for weights where CTranslate2 finds
    the texts; references are scored at most once, and only if a metric needs it.
    """

    @override
    def metric_inputs(self, metric: Metric) -> Sequence[str]:
        if metric in ALIGNMENT_METRICS.values():
            name = next(name for name, other in ALIGNMENT_METRICS.items() if other is metric)
            lines = self._scored["alignment"]
        elif metric in NBEST_METRICS.values():
            return self._nbest
        elif metric is MODEL_METRICS["attention-entropy"]:
            name, lines = "attention-entropy", self._outputs["entropies"]
        else:
            is_of_model = metric in MODEL_METRICS.values()
            return self._scored["log_probs"] if is_of_model else self.texts
        message = f"{name} needs attention weights, and this model has no attention"
        check(any(lines), "--metrics", message, "leave it out, or evaluate a run with attention")
        return lines

    @cached_property
    @override
    def texts(self) -> Sequence[str]:
        translator: Any = self.predictor
        if not translator.has_text_backend:
            return self._outputs["text"]
        return list(self.with_progress(translator.predict_texts(self.sources), len(self.sources)))

    @cached_property
    def _outputs(self) -> dict[str, list[str]]:
        return self._decode(self.sources)

    @cached_property
    def _nbest(self) -> list[str]:
        """The best outputs of each source; the search has as many hypotheses, or more."""
        translator: Any = self.predictor
        options = translator.options_class(n_best=MAX_NBEST)
        stream = translator.predict(self.sources, options)
        translations = self.with_progress(stream, len(self.sources))
        return [
            join_outputs(output.text for output in (best, *best.alternatives))
            for best in translations
        ]

    @cached_property
    def _scored(self) -> dict[str, list[str]]:
        """The first reference of each source, scored by the model."""
        pairs = zip(self.sources, self.references, strict=True)
        return self._decode([Request(source, target=choices[0]) for source, choices in pairs])

    def _decode(self, requests: Sequence[str | Request]) -> dict[str, list[str]]:
        lines: dict[str, list[str]] = {name: [] for name in _LINE_FORMATS}
        stream: Iterable[Any] = self.predictor.predict(requests)
        for translation in self.with_progress(stream, len(requests)):
            for name, format_line in _LINE_FORMATS.items():
                lines[name].append(format_line(translation))
        return lines


class DevTranslator(DevEvaluator):
    """Decodes the first `max_eval_samples` dev sources that may be decoded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        training = self.config.training
        self._check_metric(training.metric_for_best_model, METRIC_SETTING)
        for name in training.validation_metrics or ():
            self._check_metric(name, SHOWN_METRICS_SETTING)

    @override
    def choose_examples(self) -> list[Pair]:
        config = self.config
        max_length = min(config.decoding.max_source_length, config.data.filtering.max_length)
        encode = self.data_module.tokenizers.source.encode
        short = (
            pair
            for pair in self.data_module.dev_examples
            if pair.source.strip()
            and pair.target.strip()
            and len(encode(pair.source)) <= max_length
        )
        return list(islice(short, config.training.max_eval_samples))

    def _check_metric(self, name: str, setting: str) -> None:
        metric = VALIDATION_METRICS[name].metric
        if metric is None:
            return
        message = f"{name} needs outputs, but no dev source is short enough to be decoded"
        hint = f"raise decoding.max_source_length, or set {setting} to loss or accuracy"
        check(self.examples, setting, message, hint)
        references = [pair.target for pair in self.examples]
        try:
            compute_score(metric, references, references)
        except DataError as error:
            message = f"{name} cannot read the dev references: {error.message}"
            hint = f"set {setting} to a metric of text, such as bleu or exact-match"
            raise ConfigError(setting, message, hint) from error

    @override
    def to_sample(self, result: Translation, example: Pair) -> LoggedSample:
        sample = super().to_sample(result, example)
        return sample._replace(copy_probs=result.copy_probs_to_json())


class TranslationEvaluation(Evaluation):
    """The evaluation of translators."""

    metrics = VALIDATION_METRICS
    shown_metrics = ("bleu", "chrf")
    uses_beam = True
    test_metrics = ALL_METRICS
    default_metrics = DEFAULT_METRICS
    system_outputs = TranslationOutputs
    dev_evaluator = DevTranslator


_VOCAB_FACTOR = 22  # times the square root of the number of pairs
_MAX_VOCAB_SIZE = 32_000  # per language, besides bytes
_BATCH_TOKENS, _BATCH_FACTORS = 1536, ((16, 4), (8, 2), (0, 1))  # from so many cores on
_CHARACTER_PAIRS = 100_000  # whose characters are counted


_LANGUAGE_MODEL = "decoding.shallow_fusion.run"


class TranslationData(PairData):
    """Parallel texts."""

    file_options = PARALLEL_FILES

    @override
    def build_dataset(
        self, config: ExperimentConfig, tokenizers: TokenizerPair, data: ExampleSource, split: Split
    ) -> tuple[Any, list[str]]:
        """Tokenize; count the targets that are longer than outputs may be."""
        dataset, report = super().build_dataset(config, tokenizers, data, split)
        rows, limits = np.arange(len(dataset)), config.decoding.length_limits
        pairs = zip(*dataset.sequence_lengths(rows), strict=True)
        num_cut = sum(target > limits(source + 1)[1] for source, target in pairs)
        hint = "raise decoding.max_length_ratio (tokens for each source token) or max_length"
        if num_cut:
            report += [f"{num_cut} of {len(rows)} targets are longer than outputs may be: {hint}"]
        return dataset, report


class TranslationTask(Task):
    """Translation."""

    name = "translation"
    description = "translates"
    next_command = "translate {run} FILE"
    model_configs = (EncoderDecoderConfig, PrefixLanguageModelConfig)
    data = TranslationData()
    evaluation = TranslationEvaluation()
    supports_guided_alignment = True
    gpu_precision = "bf16"  # ConvS2S has the same BLEU on Multi30k: docs/performance.md

    default_recipes = ("default", "default-gpu")  # docs/lab/first-minutes.md: how they were found
    examples_per_minute = 40_000

    @override
    def measure(self, train: Any, *, is_cpu: bool) -> tuple[int, dict[str, Any]]:
        """Take 22 sqrt(n) subwords per language for n pairs."""
        characters: set[str] = set()
        count = 0
        for count, pair in enumerate(train.stream(), start=1):
            if count <= _CHARACTER_PAIRS:
                characters.update(pair.source, pair.target)
        size = choose_vocab_size(_VOCAB_FACTOR * sqrt(count), len(characters), _MAX_VOCAB_SIZE)
        if not is_cpu:
            return count, {"tokenizers.tokenizer.vocab_size": 2 * size}  # of both languages
        return count, {f"tokenizers.{side}.vocab_size": size for side in ("source", "target")}

    @override
    def core_settings(self, num_cores: int) -> dict[str, Any]:
        """Processes on many cores share larger batches: docs/scale.md."""
        factor = next(factor for cores, factor in _BATCH_FACTORS if num_cores >= cores)
        return {"training.batching.max_tokens": factor * _BATCH_TOKENS}

    @override
    def add_training_data(
        self,
        objective: Objective,
        training: TrainingConfig,
        data_module: Any = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Add references, and the loss of guided alignment with its links."""
        super().add_training_data(objective, training, data_module, log)
        config = training.guided_alignment
        if config is None:
            return
        assert isinstance(objective, CrossEntropyObjective), type(objective)
        table = NO_LINKS if data_module is None else build_link_table(config, data_module, log)
        objective.guide = AlignmentGuide(table, config.weight)

    @override
    def check_config(self, config: ExperimentConfig) -> None:
        super().check_config(config)
        model, tokenizers = config.model, config.tokenizers
        copies = isinstance(model, EncoderDecoderConfig) and model.copies_source
        points = isinstance(model, EncoderDecoderConfig) and model.points_to_source
        is_shared = isinstance(tokenizers, SharedTokenizerConfig)
        target = tokenizers.tokenizer if is_shared else tokenizers.target
        message = "copying needs the same token ids in source and target"
        hint = "set tokenizers.type to 'shared'; words with `open_vocabulary: true`"
        check(is_shared or not copies, "tokenizers.type", message, hint)
        message = "only an output head that copies can predict words beyond the vocabulary"
        hint = "remove it, or set model.decoder.output_head.type to 'pointer-generator'"
        is_open = getattr(target, "open_vocabulary", False)
        check(copies or not is_open, "tokenizers.tokenizer.open_vocabulary", message, hint)
        message = "output head 'pointer' and target tokenizer 'position' need one another"
        hint = "set model.decoder.output_head.type to 'pointer', and tokenizers.target.type to "
        is_valid = points == isinstance(target, PositionTokenizerConfig)
        check(is_valid, "tokenizers.target.type", message, hint + "'position'")
        message = "most tokens of an extended vocabulary have probability 0, which has no logarithm"
        is_valid = not (config.training.label_smoothing and (copies or points))
        check(is_valid, "training.label_smoothing", message, "set it to 0")

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> Translator:
        model: Any = run.model
        return Translator(model, run.tokenizers, run.config.decoding, device=device)

    @override
    def combine_runs(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Translator:
        first, fusion = members[0], members[0].config.decoding.shallow_fusion
        model: Any = combine_models(members, device)
        if fusion is not None:
            model = _add_language_model(model, load_run(fusion.run), first, device)
        return self.build_predictor(first._replace(model=model), device)


def _add_language_model(
    model: DecodableModel, lm_run: LoadedRun, first: LoadedRun, device: torch.device
) -> DecodableModel:
    """Add a language model, which must have the target vocabulary (shallow fusion)."""
    if not isinstance(lm_run.model, LanguageModel):
        message = f"the run {lm_run.folder} is a {lm_run.config.model.type}, not a language model"
        hint = "name a run whose model has `type: language-model`"
        raise ConfigError(_LANGUAGE_MODEL, message, hint)
    difference = first_difference(first.tokenizers.target, lm_run.tokenizers.target)
    message = f"the vocabulary of {lm_run.folder} differs from that of the target texts: "
    hint = "train it on target texts with their tokenizer"
    check(not difference, _LANGUAGE_MODEL, message + difference, hint)
    return ShallowFusion(
        model,
        accelerate_for_inference(lm_run.model, device),
        weight=first.config.decoding.shallow_fusion.weight,
        context_length=lm_run.config.data.lm_batching.context_length,
        copies_source=getattr(first.config.model, "copies_source", False),
    )


TASK = TranslationTask()
