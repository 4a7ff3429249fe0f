"""Judging: what does a model make of texts that it has not learned from?

The loss of a validation is told the truth word by word; a judge lets the model write by itself.
Laws: the same held-out texts are asked about every time, and asking leaves no trace: weights,
training mode and random numbers are as if nobody had asked, so a run that is judged learns what
it would have learned otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.pair_dataset import Pair
from heedful.decoding.translation import Translation
from heedful.errors import ConfigError, DataError
from heedful.evaluation.base import Direction, Metric, compute_score
from heedful.evaluation.registry import METRICS
from heedful.models.base import Seq2SeqModel
from heedful.models.language_model import BoundedContextModel, LanguageModel
from heedful.pytree import map_tensors
from heedful.recipes import Recipe
from heedful.search.hypotheses import NaNLogProbsError
from heedful.search.sampling import sample
from heedful.tasks.language_modeling.generator import build_sampling_options, stream_text
from heedful.tasks.pair_task import PairDataModule
from heedful.tasks.task import DataModule
from heedful.tasks.text_task import TextDataModule
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import EOS
from heedful.training import count_correct, negative_log_likelihood
from heedful.training.callbacks import LoggedSample, ValidationResult
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext
from heedful.training.trainer import Trainer

_OUTPUT_METRICS: Mapping[str, Metric] = {
    # Links are not what a model writes.
    name: measure
    for name, measure in METRICS.items()
    if name != "aer"
}
METRIC_DIRECTIONS: Mapping[str, Direction] = {
    "loss": "lower",
    "accuracy": "higher",
    **{name: measure.direction for name, measure in _OUTPUT_METRICS.items()},
}
"""What a validation can be judged by, and which scores are the better ones."""

_PROMPT_TOKENS = 20  # tokens of a text that a language model is shown
_NEW_TOKENS = 40  # tokens that it goes on for
_DIGITS = 4  # of a weight
_LINE_END = "\u21b5"  # how it is shown


def to_minimize(name: str, value: float) -> float:
    """Turn a score into a number of which the smaller is the better."""
    return value if METRIC_DIRECTIONS[name] == "lower" else -value


class OutputEvaluator:
    """Asks a model about held-out texts."""

    def __init__(
        self, model: nn.Module, data_module: DataModule, recipe: Recipe, device: torch.device
    ) -> None:
        self.model = model
        self.data_module = data_module
        self.recipe = recipe
        self.device = device
        self._pairs = (
            _select_pairs(data_module, recipe) if isinstance(data_module, PairDataModule) else []
        )
        self._check_metric()

    def compute_scores(self, names: Sequence[str]) -> dict[str, float]:
        """Measure what the model writes; what is not a metric of outputs is left out."""
        wanted = [name for name in names if name in _OUTPUT_METRICS]
        if not wanted:
            return {}
        found = self._translate(self._pairs)
        outputs = [result.text for result in found] or [""] * len(self._pairs)
        references = [pair.target for pair in self._pairs]
        return {
            name: compute_score(_OUTPUT_METRICS[name], outputs, references).value for name in wanted
        }

    def sample_outputs(self, count: int) -> list[LoggedSample]:
        """Show what the model writes about a few texts; nothing where a model cannot write."""
        if isinstance(self.model, LanguageModel) and isinstance(self.data_module, TextDataModule):
            return self._sample_continuations(self.data_module, self.model, count)
        pairs = self._pairs[:count]
        found = self._translate(pairs)
        return [
            _make_sample(result, pair.target)
            for result, pair in zip(found, pairs, strict=bool(found))
        ]

    def _translate(self, pairs: Sequence[Pair]) -> list[Translation]:
        """Translate; where weights have overflowed there is nothing to tell, and training goes on.

        What is wrong with them is for the engine to say.
        """
        if not pairs:
            return []
        assert isinstance(self.model, Seq2SeqModel), type(self.model)
        with _isolated_eval(self.model, self.device):
            translator = Translator(
                self.model,
                self.data_module.tokenizers,
                self.recipe.decoding.greedy(),
                device=self.device,
            )
            try:
                return translator.translate([pair.source for pair in pairs])
            except NaNLogProbsError:
                return []

    def _sample_continuations(
        self, data_module: TextDataModule, model: LanguageModel, count: int
    ) -> list[LoggedSample]:
        with _isolated_eval(model, self.device):
            bounded = BoundedContextModel(model, self.recipe.data.lm_batching.context_length)
            return [
                self._continue_text(data_module, bounded, start)
                for start in _line_starts(data_module, count)
            ]

    def _continue_text(
        self, data_module: TextDataModule, bounded: BoundedContextModel, start: int
    ) -> LoggedSample:
        tokenizer, dev = data_module.tokenizers.target, data_module.dev
        prompt, follows = (
            np.asarray(dev[begin : begin + length]).tolist()
            for begin, length in ((start, _PROMPT_TOKENS), (start + _PROMPT_TOKENS, _NEW_TOKENS))
        )
        read = torch.tensor([prompt], device=self.device)
        (written,) = sample(
            bounded,
            bounded.encode_prompt(read[:, :-1]),
            bos=read[:, -1],
            eos=None,
            max_lengths=read.new_tensor([_NEW_TOKENS]),
            options=build_sampling_options(temperature=0, top_k=None, top_p=1),
        )
        return LoggedSample(
            source=_display_tokens(prompt, tokenizer),
            reference="".join(stream_text(tokenizer, prompt, follows)),
            output=_display_tokens(written, tokenizer),
            text="".join(stream_text(tokenizer, prompt, written)),
            attention=(),
        )

    def _check_metric(self) -> None:
        metric = self.recipe.training.metric_for_best_model
        if metric not in _OUTPUT_METRICS:
            return
        if self._pairs:
            _check_references_parse(metric, [pair.target for pair in self._pairs])
            return
        if isinstance(self.data_module, PairDataModule):
            raise ConfigError(
                "training.metric_for_best_model",
                f"{metric} needs outputs, and no held-out text is short enough to be decoded",
                "raise decoding.max_source_length, or set training.metric_for_best_model to loss or accuracy",
            )
        raise ConfigError(
            "training.metric_for_best_model",
            f"{metric} compares outputs with references, and running text has none",
            "set training.metric_for_best_model to loss or accuracy",
        )


def _check_references_parse(metric: str, references: Sequence[str]) -> None:
    """Refuse references that a metric cannot read, such as words where it wants tags."""
    try:
        compute_score(_OUTPUT_METRICS[metric], references, references)
    except DataError as unreadable:
        raise ConfigError(
            "training.metric_for_best_model",
            f"{metric} cannot read the held-out texts: {unreadable.message}",
            "set training.metric_for_best_model to one that measures text, such as bleu or exact-match",
        ) from unreadable


def _select_pairs(data_module: PairDataModule, recipe: Recipe) -> list[Pair]:
    """The first pairs, up to as many as are judged, that the model would be let translate."""
    longest = min(recipe.decoding.max_source_length, recipe.data.filtering.max_length)
    found = list[Pair]()
    for pair in data_module.dev_pairs:
        is_full = bool(pair.source.strip() and pair.target.strip())
        if is_full and len(data_module.tokenizers.source.encode(pair.source)) <= longest:
            found.append(pair)
        if len(found) == recipe.training.max_eval_samples:
            break
    return found


def _line_starts(data_module: TextDataModule, count: int) -> list[int]:
    """Line starts that part the held-out text about evenly; the first is its beginning."""
    line_starts = np.flatnonzero(np.asarray(data_module.dev[:-1]) == EOS)
    count = min(count, len(line_starts))
    return [int(line_starts[number * len(line_starts) // count]) for number in range(count)]


def _display_tokens(tokens: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    pieces = zip(tokens, tokenizer.ids_to_tokens(tokens), strict=True)
    return [_LINE_END if token == EOS else piece for token, piece in pieces]


def _make_sample(result: Translation, reference: str) -> LoggedSample:
    weights = [[round(float(share), _DIGITS) for share in row] for row in result.weights]
    has_attention = any(map(any, weights))  # a model without attention gives zeros
    return LoggedSample(
        source=result.source_tokens,
        reference=reference,
        output=result.tokens,
        text=result.text,
        attention=weights if has_attention else (),
    )


@contextmanager
def _isolated_eval(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let a model be asked; put back the modes of all its parts and the random numbers."""
    modes = [(module, module.training) for module in model.modules()]
    devices = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        try:
            model.eval()
            yield
        finally:
            for module, mode in modes:
                module.training = mode


# Validation: how well does the model do on what it has not seen?


class ValidationMetrics(NamedTuple):
    """How a model did on held-out targets that it was told word by word."""

    loss: float  # -log p per real target token, without smoothing
    accuracy: float  # share of real target tokens held the likeliest


@torch.no_grad()
def validate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    to_device: Callable[[Any], Any] = lambda batch: batch,
    dist_context: DistributedContext = SINGLE_PROCESS,
) -> ValidationMetrics:
    """Measure a model on held-out batches, each of which is first put in its place."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    for batch in batches:
        rows, weight = dist_context.shard_batch(batch)
        rows = to_device(rows)
        log_probs = model(rows).log_probs
        numbers = (
            negative_log_likelihood(log_probs, rows.targets).item(),
            count_correct(log_probs, rows.targets).item(),
            rows.num_targets,
        )
        sums += weight * torch.tensor(numbers, dtype=torch.float64)
    loss, correct, num_targets = dist_context.all_reduce(sums).tolist()
    return ValidationMetrics(loss / num_targets, correct / num_targets)


# Validating: how good is the model now, in every score that is asked for?


class Validator:
    """Measures a learner's model on held-out data; on several ranks, all must do so."""

    def __init__(
        self, trainer: Trainer, data_module: DataModule, recipe: Recipe, device: torch.device
    ) -> None:
        self.trainer = trainer
        self.data_module = data_module
        self.metric = recipe.training.metric_for_best_model
        self.num_samples = recipe.training.num_logged_samples
        self.device = device
        self.model = trainer.dist_context.inference_model(trainer.model)
        self.output_evaluator = OutputEvaluator(self.model, data_module, recipe, device)

    def compute_scores(self) -> dict[str, float]:
        """Loss and accuracy, and the metric that counts if it is neither."""
        with self.trainer.precision.autocast():
            validated = validate(
                accelerate_for_inference(self.model, self.device),
                self.data_module.validation_batches(),
                to_device=lambda batch: map_tensors(lambda each: each.to(self.device), batch),
                dist_context=self.trainer.dist_context,
            )
        scores = validated._asdict()
        return scores if self.metric in scores else {**scores, self.metric: self._output_score()}

    def objective_value(self, scores: dict[str, float]) -> float:
        """What counts of these scores, as a number of which the smaller is the better."""
        return to_minimize(self.metric, scores[self.metric])

    def sample_outputs(self) -> list[LoggedSample]:
        """What the model makes of a few held-out texts; the first rank looks at them."""
        return (
            self.output_evaluator.sample_outputs(self.num_samples)
            if self.trainer.dist_context.is_main_process
            else []
        )

    def _output_score(self) -> float:
        ranks = self.trainer.dist_context
        mine = (
            self.output_evaluator.compute_scores([self.metric])[self.metric]
            if ranks.is_main_process
            else 0.0
        )
        return ranks.all_reduce(torch.tensor(mine, dtype=torch.float64)).item()


def format_validation(validation: ValidationResult, *, metric: str, best: float) -> str:
    """Say how a validation went, in one line."""
    scores = dict(validation.scores)
    loss, accuracy = scores.pop("loss"), scores.pop("accuracy")
    others = "".join(f", {name} {score:.2f}" for name, score in scores.items())
    # Costs of metrics of which more is better are their negatives.
    mark = "" if validation.is_best else f"  (best {metric} so far: {abs(best):.4f})"
    return (
        f"step {validation.step}: validation loss {loss:.4f}, "
        f"perplexity {math.exp(min(loss, 50)):.2f}, {100 * accuracy:.1f} % of tokens right"
        f"{others}{mark}"
    )
