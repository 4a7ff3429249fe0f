"""Rating of texts as a task: a text in, a number out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from heedful.acceleration.registry import accelerate_for_inference
from heedful.config import BaseConfig
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.data.text.example_formats import LabeledTextFormat
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.decoding.translation import EOS_LABEL
from heedful.errors import DataError
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import LOSS, MetricSpec
from heedful.inspection.attention_layers import collect_layers, mark_default, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_trace import trace_attention
from heedful.layers.pooling import AttentionPoolingConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.pytree import map_tensors
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.prediction import BatchPredictor
from heedful.tasks.task import DefaultRecipe, Task
from heedful.tasks.task_data import BatchShape, TaskData, random_tokens
from heedful.tokenization.tokenizer import Tokenizer
from heedful.training.objectives import LossTerms, Objective

# ----- the model


class RatedBatch(NamedTuple):
    sources: SourceBatch
    ratings: Tensor

    num_targets = property(lambda self: len(self.ratings))
    num_tokens = property(lambda self: int(self.sources.lengths.sum()))
    num_positions = property(lambda self: self.sources.tokens.numel())


class RatingOutput(NamedTuple):
    log_probs: Tensor  # the ratings
    auxiliary_losses: dict[str, Tensor]


class Regressor(nn.Module):
    """rating = w . pool(h_1 .. h_S) + b."""

    def __init__(self, encoder: nn.Module, pooling: nn.Module) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.output_projection = nn.Linear(encoder.output_size, 1)

    def forward(self, batch: RatedBatch) -> RatingOutput:
        encoded = self.encoder(*batch.sources)
        pooled = self.pooling(encoded.states, encoded.mask.squeeze(1))
        return RatingOutput(self.output_projection(pooled).squeeze(-1), encoded.auxiliary_losses)


class RegressorConfig(BaseConfig):
    """A number for a text."""

    type: Literal["regressor"] = "regressor"
    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig(embedding_size=16, hidden_size=16)

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> Regressor:
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        return Regressor(encoder, AttentionPoolingConfig().build(size=encoder.output_size))


class SquaredError(Objective):
    def normalizer(self, batch):
        return len(batch.ratings)

    def __call__(self, model, batch, step, unwrapped_model):
        return LossTerms((model(batch).log_probs - batch.ratings).square().sum(), {})


# ----- its data


class RatedTextFormat(LabeledTextFormat):
    name = "rated texts"
    description = "rated texts"
    has_tokens = False

    def tokenizer_texts(self, examples):
        return [pair.source for pair in examples], []


@dataclass
class RatedTexts:
    """Texts as token ids, with their ratings."""

    ids: list[list[int]]
    ratings: list[float]

    @classmethod
    def encode(cls, tokenizer, source):
        return cls(
            tokenizer.encode_batch([pair.source for pair in source.examples]),
            [_parse(pair.target, source.locate(row)) for row, pair in enumerate(source.examples)],
        )

    def __len__(self):
        return len(self.ids)

    def fingerprint(self):
        return blake2b(repr(self).encode(), digest_size=16).hexdigest()

    def collate(self, rows):
        ratings = torch.tensor([self.ratings[row] for row in rows])
        return RatedBatch(collate_sources([self.ids[row] for row in rows]), ratings)


def _parse(rating: str, location: str) -> float:
    try:
        return float(rating)
    except ValueError:
        message = f"the rating {rating!r} is no number"
        raise DataError(location, message, "write a number before the tab") from None


# ----- its use


class Pearson(Metric):
    """The correlation of outputs and ratings."""

    name, direction = "Pearson", "higher"

    def sentence_statistics(self, outputs, references):
        x, y = np.array(outputs, float), np.array([choices[0] for choices in references], float)
        return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)

    def compute(self, sums):
        n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
        variances = (n * xx - x * x) * (n * yy - y * y)
        return 100 * (n * xy - x * y) / np.sqrt(np.maximum(variances, 1e-12))

    def signature(self, references):
        return f"texts:{len(references)}"


class Rating(NamedTuple):
    source: str
    value: float
    attention_map: AttentionMap
    attention_layers: Sequence[Any] = ()

    source_tokens = property(lambda self: self.attention_map.source)
    text = property(lambda self: f"{self.value:.6g}")
    tokens = property(lambda self: [self.text])

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "rating": self.value}


class Rater(BatchPredictor[str, Rating]):
    """A trained model that rates texts."""

    batch_size = 1

    def __init__(self, model: Regressor, tokenizer: Tokenizer, device: torch.device) -> None:
        self.model, self.device = accelerate_for_inference(model, device), device
        self.tokenizer = tokenizer

    @torch.inference_mode()
    def predict_batch(self, requests, options, *, need_layers) -> Iterator[Rating]:
        (text,) = requests
        ids = self.tokenizer.encode(text)
        batch = RatedBatch(collate_sources([ids]), torch.zeros(1))
        with trace_attention(self.model, device="cpu") as records:
            output = self.model(map_tensors(lambda part: part.to(self.device), batch))
        value = output.log_probs.item()
        tokens, shown = [*self.tokenizer.ids_to_tokens(ids), EOS_LABEL], [f"{value:.6g}"]
        axes = "pooling", without_words(shown), without_words(tokens)
        layers = mark_default(collect_layers(records, lambda record: axes), "pooling")
        weights = layers[0].weights.mean(axis=0)  # over heads
        yield Rating(text, value, AttentionMap(tokens, shown, weights, title=text), layers)

    def default_metrics(self, references):
        return [Pearson()]


# ----- the task


class RatingData(TaskData):
    example_format = RatedTextFormat()
    source_configs = PAIR_SOURCES
    batch_size_setting, batch_size_unit = "training.batching.max_tokens", "tokens"

    def build_dataset(self, config, tokenizers, data, split):
        dataset = RatedTexts.encode(tokenizers.source, data)
        return dataset, [f"{len(dataset)} rated texts"]

    def row_size(self, shape):
        return shape.target_length

    def worst_case_shapes(self, data_module):
        return [BatchShape(0, 1 + max(map(len, data_module.train.ids)))]

    def dummy_batch(self, model, sizes, shape, rows):
        tokens = random_tokens(sizes.source, rows, shape.target_length)
        lengths = torch.full((rows,), shape.target_length)
        return RatedBatch(SourceBatch(tokens, lengths), torch.rand(rows))


class RatingEvaluation(Evaluation):
    metrics: ClassVar = {"loss": LOSS, "pearson": MetricSpec.from_metric(Pearson())}
    test_metrics: ClassVar = {"pearson": Pearson()}
    shown_metrics = default_metrics = ("pearson",)

    def batch_sums(self, model, batch):
        errors = (model(batch).log_probs.double() - batch.ratings).square()
        return torch.stack([errors.sum(), errors.new_tensor(len(errors))]).cpu()


class RatingTask(Task):
    name, description = "rating", "rates texts"
    next_command = "rate {run} FILE"
    model_configs = (RegressorConfig,)
    data, evaluation = RatingData(), RatingEvaluation()
    no_decoder = "needs a decoder, and a regressor has none"

    def default_recipe(self, device, train):
        return DefaultRecipe(str(Path(__file__).parent / "rater.yaml"))

    def build_objective(self, training):
        return SquaredError()

    def build_predictor(self, run, device):
        return Rater(run.model, run.tokenizers.source, device)


TASK = RatingTask()
