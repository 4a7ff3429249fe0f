"""Masked language modeling: predict the masked tokens of a text from both sides (BERT)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from typing_extensions import override

from heedful.config import check_types
from heedful.data.shuffling import DataCursor
from heedful.data.text.token_stream import (
    LMBatch,
    LMBatchingConfig,
    LMBatchStream,
    concatenate_lines,
    disjoint_windows,
    encode_prompt,
)
from heedful.errors import DataError, check
from heedful.evaluation.base import MetricScore
from heedful.evaluation.perplexity import compute_token_loss
from heedful.models.masked_language_model import (
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    MaskingConfig,
    mask_tokens,
    sample_sentence_pairs,
    select_targets,
)
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.tasks.prediction import LoadedRun, PredictedText, PredictionOptions
from heedful.tasks.task import DefaultRecipe
from heedful.tasks.task_data import ExperimentConfig
from heedful.tasks.text_task import (
    TextData,
    TextDataModule,
    TextEvaluation,
    TextPredictor,
    TextTask,
)
from heedful.tokenization.pretrained import PretrainedTokenizer
from heedful.tokenization.standalone import SPACE_MARK
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import EOS, UNK

MASK = "[MASK]"
"""A masked token in a text."""

_MASK_PLACEHOLDER = "\uf8ff"  # the last private-use character of the Basic Multilingual Plane


class MaskPrediction(NamedTuple):
    """A token for a mask, with its probability."""

    token: str
    probability: float


class MaskFiller(TextPredictor):
    """A trained masked language model with its tokenizer."""

    model: MaskedLanguageModel

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        lm_batching: LMBatchingConfig,
        masking: MaskingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, tokenizer, lm_batching, device=device)
        self.masking = masking

    @check_types
    @torch.no_grad()
    def fill_mask(self, text: str, *, top_k: int = 5) -> list[list[MaskPrediction]]:
        """Return the `top_k` most likely tokens for each "[MASK]" of a text.

        The mask token of an imported model, such as "<mask>", is understood, too.
        """
        ids = self._encode_masked(text)
        probs = self.model.predict(torch.tensor(ids, device=self.device)).exp()
        positions = [index for index, token in enumerate(ids) if token == self.model.mask_id]
        predictions = []
        for position in positions:
            best = probs[position].topk(min(top_k, probs.size(1)))
            labels = self.tokenizer.ids_to_tokens(best.indices.tolist())
            tokens = [token.removeprefix(SPACE_MARK) or " " for token in labels]
            predictions.append(list(map(MaskPrediction, tokens, best.values.tolist())))
        return predictions

    @override
    def example(self) -> str:
        return MASK

    @override
    def predict(
        self,
        requests: Iterable[str],
        options: PredictionOptions | None = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[PredictedText]:
        """Replace each "[MASK]" of the texts by its most probable token."""
        return map(self._read if need_layers else self._fill, requests)

    def _fill(self, text: str) -> PredictedText:
        filled = self._normalize_masks(text)
        for best, *_ in self.fill_mask(text, top_k=1):
            filled = filled.replace(MASK, best.token.strip(), 1)
        return PredictedText(filled, self.tokenizer.ids_to_tokens(self.tokenizer.encode(filled)))

    def _read(self, text: str) -> PredictedText:
        """Read a text, in which tokens may be masked, and return the attention of each layer."""
        is_masked = MASK in self._normalize_masks(text)
        encode = self._encode_masked if is_masked else self._encode_whole
        ids, mask_id = encode(text), self.model.mask_id
        axis = self._token_axis([UNK if token == mask_id else token for token in ids])
        labeled_ids = zip(ids, axis.tokens, strict=True)
        tokens = [MASK if token == mask_id else label for token, label in labeled_ids]
        axis = axis._replace(tokens=tokens)
        layers, _ = self._trace(ids, axis, axis)
        return PredictedText(text, tokens, attention_layers=layers, token_ids=ids)

    @override
    def evaluate(self, examples: Sequence[str]) -> list[MetricScore]:
        """Mask tokens of a text, always the same ones, and return how well they are predicted."""
        windows = disjoint_windows(concatenate_lines(examples, self.tokenizer), self.lm_batching)
        masking, vocab_size = self.masking, len(self.tokenizer)
        batches = (
            mask_tokens(window.inputs, masking, vocab_size=vocab_size, seed=f"measure {index}")
            for index, window in enumerate(windows)
        )
        selected = map(select_targets, batches)
        token_loss = compute_token_loss(self.model, selected, device=self.device)
        return token_loss.token_scores(
            f"context:{self.lm_batching.context_length}|chosen:{masking.mlm_probability:g}"
            f"|hidden:{masking.mask_replace_prob:g}|replaced:{masking.random_replace_prob:g}"
        )

    def _normalize_masks(self, text: str) -> str:
        """Return a text in which the mask token of an imported model is `MASK`."""
        if not isinstance(self.tokenizer, PretrainedTokenizer):
            return text
        return text.replace(self.tokenizer.config.mask_token, MASK)

    def _encode_whole(self, text: str) -> list[int]:
        if self.model.prepend_bos:
            return [*self.tokenizer.encode(text), EOS]
        return [*encode_prompt(text, self.tokenizer), EOS]

    def _encode_masked(self, text: str) -> list[int]:
        """Return token ids with mask ids; a placeholder shows where the masks are."""
        text = self._normalize_masks(text)
        check(MASK in text, "text", f"contains no {MASK}", f"add {MASK} to the text", DataError)
        if isinstance(self.tokenizer, PretrainedTokenizer):
            return self._encode_around_masks(text, self.tokenizer)
        # The placeholder may be tokenized with or without a space before it.
        placeholder, mask_id = self.tokenizer.encode(_MASK_PLACEHOLDER), self.model.mask_id
        ids = encode_prompt(text.replace(MASK, _MASK_PLACEHOLDER), self.tokenizer)
        ids = _replace_subsequence(ids, placeholder, mask_id)
        ids = [*_replace_subsequence(ids, placeholder[1:], mask_id), EOS]
        message = f"some words are not in the vocabulary and cannot be told from {MASK}"
        hint = "use words of the training data"
        check(ids.count(mask_id) == text.count(MASK), "text", message, hint, DataError)
        return ids

    def _encode_around_masks(self, text: str, tokenizer: PretrainedTokenizer) -> list[int]:
        """Encode the text between masks; a mask may also replace the space before it."""
        *parts, last = text.split(MASK)
        if tokenizer.config.mask_lstrip:
            parts = [part.rstrip() for part in parts]
        encoded = tokenizer.encode_batch([*parts, last])
        ids = [token for part in encoded for token in (*part, self.model.mask_id)][:-1]
        return [*ids, EOS] if self.model.prepend_bos else [EOS, *ids, EOS]


def _replace_subsequence(ids: list[int], subsequence: list[int], token: int) -> list[int]:
    """Replace each occurrence of a subsequence by one token."""
    result: list[int] = []
    index = 0
    while index < len(ids):
        is_match = bool(subsequence) and ids[index : index + len(subsequence)] == subsequence
        result.append(token if is_match else ids[index])
        index += len(subsequence) if is_match else 1
    return result


class MaskedTextDataModule(TextDataModule):
    """Running text with masked tokens; the mask depends only on seed and batch position."""

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
        model, vocab_size = self.recipe.model, len(self.tokenizers.target)
        if model.next_sentence_prediction:
            batch = sample_sentence_pairs(batch.inputs, seed=seed)
        masked = mask_tokens(batch.inputs, model.masking, vocab_size=vocab_size, seed=seed)
        return select_targets(batch._replace(inputs=masked.inputs, targets=masked.targets))


class MaskedTextData(TextData):
    """Running text of which some tokens are masked."""

    data_module = MaskedTextDataModule


class MaskedLanguageModelEvaluation(TextEvaluation):
    """The evaluation of masked language models."""

    comparison_hint = "compare runs with equal `tokenizers`, `data.lm_batching` and `model.masking`"

    @override
    def comparison_key(self, predictor: MaskFiller, examples: Sequence[str]) -> object:
        """Return all that the choice of masked tokens depends on."""
        tokens = concatenate_lines(examples, predictor.tokenizer).tobytes()
        return predictor.masking, predictor.lm_batching, len(predictor.tokenizer), tokens


class MaskedLanguageModelingTask(TextTask):
    """Masked language modeling."""

    name = "masked-language-modeling"
    description = "is a masked language model: it fills masks"
    next_command = "evaluate {run} FILE"
    model_configs = (MaskedLanguageModelConfig,)
    data = MaskedTextData()
    evaluation = MaskedLanguageModelEvaluation()

    @override
    def default_recipe(self, device: torch.device, train: Any) -> DefaultRecipe:
        return DefaultRecipe("bert-small")  # text without a recipe trains a language model

    @override
    def check_config(self, config: ExperimentConfig) -> None:
        sampling, model = config.training.scheduled_sampling, config.model.type
        no_effect = f"so '{sampling.type}' has no effect"
        message = f"a {model} predicts no token from its own outputs, {no_effect}"
        is_valid, location = isinstance(sampling, TeacherForcingConfig), "scheduled_sampling"
        check(is_valid, f"training.{location}.type", message, f"remove training.{location}")
        super().check_config(config)

    @override
    def build_predictor(self, run: LoadedRun, device: torch.device) -> MaskFiller:
        model, batching = cast(MaskedLanguageModel, run.model), run.config.data.lm_batching
        tokenizer, masking = run.tokenizers.target, run.config.model.masking
        return MaskFiller(model, tokenizer, batching, masking, device=device)


TASK = MaskedLanguageModelingTask()
