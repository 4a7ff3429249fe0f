"""Language modeling: predict each token of a running text from those before it."""

from math import sqrt
from typing import Any, cast

import numpy as np
import torch
from typing_extensions import override

from heedful.models.language_model import BoundedContextModel, LanguageModel, LanguageModelConfig
from heedful.search.sampling import sample
from heedful.tasks.language_modeling.generator import GenerationOptions, TextGenerator, stream_text
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task import choose_vocab_size
from heedful.tasks.text_task import NoDevPredictions, TextEvaluation, TextTask, display_tokens
from heedful.tokenization.vocabulary import EOS
from heedful.training.callbacks import LoggedSample

_PROMPT_TOKENS = 20
_NEW_TOKENS = 40


class ContinuationSampler(NoDevPredictions):
    """Continues the dev text greedily from a few line starts; it has no metrics of its own."""

    @override
    def sample_predictions(self, count: int) -> list[LoggedSample]:
        with self.eval_mode():
            bounded = BoundedContextModel(self.model, self.config.data.lm_batching.context_length)
            line_starts = np.flatnonzero(np.asarray(self.data_module.dev[:-1]) == EOS).tolist()
            count = min(count, len(line_starts))
            # They divide the dev text about evenly, its beginning first.
            starts = [line_starts[index * len(line_starts) // count] for index in range(count)]
            return [self._continue_text(bounded, start) for start in starts]

    def _continue_text(self, bounded: BoundedContextModel, start: int) -> LoggedSample:
        tokenizer, dev = self.data_module.tokenizers.target, self.data_module.dev
        prompt, reference = (
            np.asarray(dev[begin : begin + length]).tolist()
            for begin, length in ((start, _PROMPT_TOKENS), (start + _PROMPT_TOKENS, _NEW_TOKENS))
        )
        prompt_ids = torch.tensor([prompt], device=self.device)
        (tokens,) = sample(
            bounded,
            bounded.encode_prompt(prompt_ids[:, :-1]),
            bos=prompt_ids[:, -1],
            eos=None,
            max_lengths=prompt_ids.new_tensor([_NEW_TOKENS]),
            options=GenerationOptions(temperature=0).build(),
        )
        return LoggedSample(
            source=display_tokens(prompt, tokenizer),
            reference="".join(stream_text(tokenizer, prompt, reference)),
            output=display_tokens(tokens, tokenizer),
            text="".join(stream_text(tokenizer, prompt, tokens)),
            attention=(),
            source_text="".join(stream_text(tokenizer, prompt[:1], prompt[1:])),
        )


class LanguageModelEvaluation(TextEvaluation):
    """The evaluation of language models."""

    dev_evaluator = ContinuationSampler


_VOCAB_FACTOR = 2  # times the square root of the number of characters
_MAX_VOCAB_SIZE = 16_000  # besides bytes
_MAX_MEASURED = 10_000_000  # characters among which different ones are counted


class LanguageModelingTask(TextTask):
    """Language modeling."""

    name = "language-modeling"
    description = "is a language model: it continues a text"
    next_command = "generate {run}"
    model_configs = (LanguageModelConfig,)
    evaluation = LanguageModelEvaluation()

    default_recipes = ("default-language-model", "gpt-small")
    examples_per_minute = 2_000_000  # characters

    @override
    def measure(self, train: Any, *, is_cpu: bool) -> tuple[int, dict[str, Any]]:
        """Take 2 sqrt(n) subwords for n characters; on a GPU, characters are tokens."""
        count = 0
        characters: set[str] = set()
        for line in train.stream():
            count += len(line) + 1
            if count <= _MAX_MEASURED:
                characters.update(line)
        size = choose_vocab_size(_VOCAB_FACTOR * sqrt(count), len(characters), _MAX_VOCAB_SIZE)
        return count, {"tokenizers.tokenizer.vocab_size": size} if is_cpu else {}

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> TextGenerator:
        model, batching = cast(LanguageModel, run.model), run.config.data.lm_batching
        return TextGenerator(model, run.tokenizers.target, batching, device=device)


TASK = LanguageModelingTask()
