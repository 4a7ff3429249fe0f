"""Language modeling: predict each token of a running text from those before it."""

from collections.abc import Sequence

import torch
from typing_extensions import override

from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.tasks.language_modeling.default_recipe import default_recipe
from heedful.tasks.language_modeling.evaluation import LanguageModelEvaluation
from heedful.tasks.language_modeling.generator import TextGenerator
from heedful.tasks.task import LoadedRun, RunLoader
from heedful.tasks.text_task import TextTask


class LanguageModelingTask(TextTask):
    """Language modeling."""

    name = "language-modeling"
    description = "is a language model: it continues a text"
    next_command = "generate {run}"
    default_recipe = staticmethod(default_recipe)
    model_configs = (LanguageModelConfig,)
    evaluation = LanguageModelEvaluation()

    @override
    def build_predictor(
        self, members: Sequence[LoadedRun], device: torch.device, load_run: RunLoader
    ) -> TextGenerator:
        _, config, tokenizers, model = self.single_run(members)
        assert isinstance(model, LanguageModel), type(model)
        return TextGenerator(model, tokenizers.target, config.data.lm_batching, device=device)


TASK = LanguageModelingTask()
