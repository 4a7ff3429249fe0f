"""Sequence labeling as a task: pairs of a text of words and a text of their tags."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from typing_extensions import override

from heedful.data.text.batching import Batch
from heedful.data.text.conll_files import ConllConfig
from heedful.errors import check
from heedful.tasks.ensembles import combine_labelers
from heedful.tasks.tagging.data import TaggingData
from heedful.tasks.tagging.default_recipe import default_recipe
from heedful.tasks.tagging.evaluation import TaggingEvaluation
from heedful.tasks.tagging.model import SequenceTagger, SequenceTaggerConfig
from heedful.tasks.tagging.predictor import Tagger
from heedful.tasks.task import LoadedRun, RunLoader, Task
from heedful.tokenization.vocabulary import PAD
from heedful.training.config import TrainingConfig
from heedful.training.objectives import LossTerms, Objective


class TagLikelihood(Objective):
    """-log p(tags | words), summed over sentences and divided by the number of words."""

    @override
    def normalizer(self, batch: Batch) -> int:
        num_sentences = int((batch.targets[:, 0] != PAD).sum())  # without rows of padding
        return batch.num_targets - num_sentences  # without EOS

    @override
    def __call__(
        self, model: nn.Module, batch: Batch, step: int, unwrapped_model: nn.Module
    ) -> LossTerms:
        output = model(batch)
        return LossTerms(-output.log_probs.sum(), output.auxiliary_losses)


class TaggingTask(Task):
    """Sequence labeling."""

    name = "tagging"
    description = "tags words"
    next_command = "tag {run} FILE"
    default_recipe = staticmethod(default_recipe)
    model_configs = (SequenceTaggerConfig,)
    data = TaggingData()
    evaluation = TaggingEvaluation()

    @override
    def check_objective(self, training: TrainingConfig) -> None:
        training.check_no_decoder("needs a decoder, and a sequence-tagger has none")
        message = f"is {training.label_smoothing:g}, but the tags of a sentence are not smoothed"
        hint = "set training.label_smoothing to 0"
        check(not training.label_smoothing, "training.label_smoothing", message, hint)
        super().check_objective(training)

    @override
    def build_objective(self, training: TrainingConfig) -> Objective:
        return TagLikelihood()

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> Tagger:
        def build(member: LoadedRun) -> Tagger:
            model, config = cast(SequenceTagger, member.model), member.config
            tagger = Tagger(model, member.tokenizers, scheme=config.model.scheme, device=device)
            if isinstance(train := config.data.train, ConllConfig):
                tagger.conll_columns = train.source_column, train.target_column
            return tagger

        return combine_labelers(members, SequenceTagger, build)


TASK = TaggingTask()
