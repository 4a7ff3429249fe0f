"""Rating of texts as a task: a text in, a number out."""

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.data.text.example_formats import LabeledTextFormat
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.decoding.translation import EOS_LABEL
from heedful.errors import DataError
from heedful.evaluation.base import SentenceMetric
from heedful.evaluation.registry import LOSS, MetricSpec
from heedful.inspection.attention_layers import collect_layers, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_trace import trace_attention
from heedful.layers.pooling import AttentionPoolingConfig
from heedful.models.base import ModelOutput
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import PredictedText, TokenizedTextPredictor
from heedful.tasks.task import DefaultRecipe, Task
from heedful.tasks.task_data import BatchShape, TaskData, random_sources
from heedful.training.objectives import LossTerms, Objective

# ----- the model


class RatedBatch(NamedTuple):
    sources: SourceBatch
    ratings: Tensor

    num_targets = property(lambda self: len(self.ratings))
    num_tokens = property(lambda self: int(self.sources.lengths.sum()))
    num_positions = property(lambda self: self.sources.tokens.numel())


class Regressor(nn.Module):
    """rating = w . pool(h_1 .. h_S) + b."""

    def __init__(self, encoder: nn.Module, pooling: nn.Module) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.output_projection = nn.Linear(encoder.output_size, 1)

    def forward(self, batch: RatedBatch) -> ModelOutput:
        encoded = self.encoder(*batch.sources)
        pooled = self.pooling(encoded.states, encoded.mask.squeeze(1))
        ratings = self.output_projection(pooled).squeeze(-1)
        return ModelOutput(ratings, None, dict(encoded.auxiliary_losses))


class RegressorConfig(BaseConfig):
    """A number for a text."""

    type: Literal["regressor"] = "regressor"
    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig(embedding_size=16, hidden_size=16)

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> Regressor:
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        return Regressor(encoder, AttentionPoolingConfig().build(size=encoder.output_size))


class SquaredError(Objective):
    def __call__(self, model, batch, step, unwrapped_model):
        return LossTerms((model(batch).log_probs - batch.ratings).square().sum(), {})


# ----- its data


class RatedTextFormat(LabeledTextFormat):
    name = description = "rated texts"
    has_tokens = False

    def tokenizer_texts(self, examples):
        return [pair.source for pair in examples], []


@dataclass
class RatedTexts:
    """Token ids of texts, with their ratings."""

    rows: list[tuple[list[int], float]]

    def __len__(self):
        return len(self.rows)

    def fingerprint(self):
        return blake2b(repr(self).encode(), digest_size=16).hexdigest()

    def collate(self, rows):
        ids, ratings = zip(*(self.rows[row] for row in rows), strict=True)
        return RatedBatch(collate_sources(ids), torch.tensor(ratings))


class RatingData(TaskData):
    example_format = RatedTextFormat()
    source_configs = PAIR_SOURCES

    def build_dataset(self, config, tokenizers, data, split):
        ids = tokenizers.source.encode_batch([pair.source for pair in data.examples])
        ratings = [parse(pair.target, data.locate(row)) for row, pair in enumerate(data.examples)]
        return RatedTexts(list(zip(ids, ratings, strict=True))), [f"{len(ids)} rated texts"]

    def worst_case_shapes(self, data_module):
        return [BatchShape(0, 1 + max(len(ids) for ids, _ in data_module.train.rows))]

    def dummy_batch(self, model, sizes, shape, rows):
        sources = random_sources(sizes.source, rows, shape.target_length)
        return RatedBatch(sources, torch.rand(rows))


def parse(rating: str, location: str) -> float:
    try:
        return float(rating)
    except ValueError:
        message = f"the rating {rating!r} is no number"
        raise DataError(location, message, "write a number before the tab") from None


# ----- its use


class CloseRatings(SentenceMetric):
    """Percentage of ratings that differ by less than 1."""

    name, direction = "close", "higher"

    def sentence_counts(self, output, references, line):
        return abs(float(output) - float(references[0])) < 1, 1


class RatingEvaluation(Evaluation):
    metrics: ClassVar = {"loss": LOSS, "close": MetricSpec.from_metric(CloseRatings())}
    test_metrics: ClassVar = {"close": CloseRatings()}
    shown_metrics = ("close",)

    def batch_sums(self, model, batch):
        errors = (model(batch).log_probs.double() - batch.ratings).square()
        return torch.stack([errors.sum(), errors.new_tensor(len(errors))]).cpu()


class Rater(TokenizedTextPredictor[str, PredictedText]):
    """A trained model that rates texts."""

    batch_size = 1

    @torch.inference_mode()
    def predict_batch(self, requests, options, *, need_layers):
        (ids,), sources = self.encode(requests)
        with trace_attention(self.model, device="cpu") as records:
            rating = self.model(RatedBatch(sources, None)).log_probs.item()
        tokens, text = [*self.tokenizers.source.ids_to_tokens(ids), EOS_LABEL], f"{rating:.6g}"
        axes = "pooling", without_words([text]), without_words(tokens)
        layers = collect_layers(records, lambda record: axes, default="pooling")
        attention_map = AttentionMap(tokens, [text], layers[0].weights.mean(axis=0))  # over heads
        yield PredictedText(text, [text], attention_map, layers, source_tokens=tokens)

    def default_metrics(self, references):
        return [CloseRatings()]


class RatingTask(Task):
    name, description = "rating", "rates texts"
    next_command = "rate {run} FILE"
    model_configs = (RegressorConfig,)
    data, evaluation = RatingData(), RatingEvaluation()
    objective = SquaredError
    no_decoder = "needs a decoder, and a regressor has none"

    def default_recipe(self, device, train):
        return DefaultRecipe(str(Path(__file__).parent / "rater.yaml"))

    def build_predictor(self, run, device):
        return Rater(run.model, run.tokenizers, device=device)


TASK = RatingTask()
