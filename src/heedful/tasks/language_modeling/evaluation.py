"""The evaluation of language models."""

import numpy as np
import torch
from typing_extensions import override

from heedful.models.language_model import BoundedContextModel
from heedful.search.sampling import sample
from heedful.tasks.language_modeling.generator import (
    GenerationOptions,
    stream_text,
)
from heedful.tasks.prediction import DevEvaluator
from heedful.tasks.text_task import TextEvaluation, display_tokens
from heedful.tokenization.vocabulary import EOS
from heedful.training.callbacks import LoggedSample

_PROMPT_TOKENS = 20
_NEW_TOKENS = 40


class ContinuationSampler(DevEvaluator):
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
