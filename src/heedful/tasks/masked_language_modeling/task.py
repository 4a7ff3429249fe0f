"""Masked language modeling: predict the masked tokens of a text from both sides (BERT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from typing_extensions import override

from heedful.data.batching import DataCursor
from heedful.data.token_stream import LMBatch, LMBatchStream, concatenate_lines, disjoint_windows
from heedful.errors import check
from heedful.models.masked_language_model import (
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    mask_tokens,
)
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.tasks.masked_language_modeling.mask_filler import MaskFiller
from heedful.tasks.task import ExperimentConfig, LoadedRun, RunLoader
from heedful.tasks.text_task import TextDataModule, TextTask, check_single_run


class MaskedTextDataModule(TextDataModule):
    """Running text with masked tokens; the mask depends on seed and batch position alone."""

    @override
    def train_batches(self, cursor: DataCursor) -> LMBatchStream:
        stream = super().train_batches(cursor)
        stream.transform = self._mask
        return stream

    @override
    def validation_batches(self) -> Iterator[LMBatch]:
        windows = disjoint_windows(self.dev, self.recipe.data.lm_batching)
        for index, batch in enumerate(windows):
            yield self._mask(batch, DataCursor(-1, index))

    def _mask(self, batch: LMBatch, cursor: DataCursor) -> LMBatch:
        seed = f"{self.recipe.training.seed} {cursor.epoch} {cursor.batch}"
        masking, vocab_size = self.recipe.model.masking, len(self.tokenizers.target)
        return mask_tokens(batch.inputs, masking, vocab_size=vocab_size, seed=seed)


class MaskedLanguageModelingTask(TextTask):
    """Masked language modeling."""

    name = "masked-language-modeling"
    description = "is a masked language model: it fills masks"
    next_command = "evaluate {run} FILE"
    model_configs = (MaskedLanguageModelConfig,)
    data_module_class = MaskedTextDataModule

    @override
    def check_config(self, config: ExperimentConfig) -> None:
        sampling = config.training.scheduled_sampling
        check(
            isinstance(sampling, TeacherForcingConfig),
            "training.scheduled_sampling.type",
            f"a {config.model.type} predicts no token from its own outputs, so "
            f"'{sampling.type}' has no effect",
            "remove training.scheduled_sampling",
        )
        super().check_config(config)

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> MaskFiller:
        _, config, tokenizers, model = check_single_run(members)
        assert isinstance(model, MaskedLanguageModel), type(model)
        batching, masking = config.data.lm_batching, config.model.masking
        return MaskFiller(model, tokenizers.target, batching, masking, device=device)

    @override
    def comparison_key(self, predictor: MaskFiller, examples: Sequence[str]) -> object:
        """Return what decides which tokens are masked."""
        tokens = concatenate_lines(examples, predictor.tokenizer).tobytes()
        return predictor.masking, predictor.lm_batching, len(predictor.tokenizer), tokens


TASK = MaskedLanguageModelingTask()
