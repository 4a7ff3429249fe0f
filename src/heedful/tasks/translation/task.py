"""Translation: write a target text for a source text, with an encoder-decoder or a prefix LM.

Models are evaluated on a test set, and on dev sources during training.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
from heedful.errors import ConfigError, check
from heedful.models.base import DecodableModel
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.ensembles import ShallowFusion
from heedful.models.language_model import LanguageModel
from heedful.models.prefix_lm import PrefixLanguageModelConfig
from heedful.tasks.command_line import PARALLEL_FILES
from heedful.tasks.ensembles import build_ensemble, first_difference
from heedful.tasks.pair_data import PairData
from heedful.tasks.task import LoadedRun, RunLoader, Task
from heedful.tasks.task_data import ExperimentConfig
from heedful.tasks.translation.default_recipe import default_recipe
from heedful.tasks.translation.evaluation import TranslationEvaluation
from heedful.tasks.translation.guided_alignment import build_link_table
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.position import PositionTokenizerConfig
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig
from heedful.training.config import TrainingConfig
from heedful.training.guided_alignment import NO_LINKS, AlignmentGuide
from heedful.training.objectives import CrossEntropyObjective, Objective

_LANGUAGE_MODEL = "decoding.shallow_fusion.run"


class TranslationData(PairData):
    """Parallel texts."""

    file_options = PARALLEL_FILES


class TranslationTask(Task):
    """Translation."""

    name = "translation"
    description = "translates"
    next_command = "translate {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (EncoderDecoderConfig, PrefixLanguageModelConfig)
    data = TranslationData()
    evaluation = TranslationEvaluation()
    supports_guided_alignment = True
    gpu_precision = "bf16"  # ConvS2S has the same BLEU on Multi30k: docs/performance.md

    @override
    def add_guided_alignment(
        self,
        objective: Objective,
        training: TrainingConfig,
        data_module: Any = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
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
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Translator:
        _, config, tokenizers, _ = members[0]
        model = build_ensemble(members, device)
        if config.decoding.shallow_fusion is not None:
            lm_run = load_run(config.decoding.shallow_fusion.run)
            model = _add_language_model(model, lm_run, members[0], device)
        return Translator(model, tokenizers, config.decoding, device=device)


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
