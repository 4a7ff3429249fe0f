"""Rating of texts as a task: a text in, a number out."""

from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.data.text.example_formats import LabeledTextFormat
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.errors import DataError
from heedful.evaluation.base import SentenceMetric
from heedful.evaluation.registry import LOSS, MetricSpec
from heedful.inspection.attention_map import AttentionMap
from heedful.models.base import ModelOutput
from heedful.models.pooled_text import PooledTextConfigBase, PooledTextModel
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.pooled_text import read_pooled
from heedful.tasks.prediction import PredictedText, TokenizedTextPredictor
from heedful.tasks.task import DefaultRecipe, Task
from heedful.tasks.task_data import BatchShape, RowDataset, TaskData, random_sources
from heedful.training.objectives import LossTerms, Objective


class RatedBatch(NamedTuple):
    sources: SourceBatch
    ratings: Tensor

    num_targets = property(lambda self: len(self.ratings))
    num_tokens = property(lambda self: int(self.sources.lengths.sum()))
    num_positions = property(lambda self: self.sources.tokens.numel())


class Regressor(PooledTextModel):
    def forward(self, batch: RatedBatch) -> ModelOutput:
        ratings, auxiliary_losses = self.project(batch.sources)
        return ModelOutput(ratings.squeeze(-1), None, auxiliary_losses)


class RegressorConfig(PooledTextConfigBase):
    """A number for a text."""

    type: Literal["regressor"] = "regressor"

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> Regressor:
        return self.build_model(Regressor, source_vocab_size, 1)


class SquaredError(Objective):
    def __call__(self, model, batch, step, unwrapped_model):
        return LossTerms((model(batch).log_probs - batch.ratings).square().sum(), {})


class RatedTextFormat(LabeledTextFormat):
    name = description = "rated texts"
    has_tokens = False

    def tokenizer_texts(self, examples):
        return [pair.source for pair in examples], []


def parse(rating: str, location: str) -> float:
    try:
        return float(rating)
    except ValueError:
        message = f"the rating {rating!r} is no number"
        raise DataError(location, message, "write a number before the tab") from None


def collate(rows):
    ids, ratings = zip(*rows, strict=True)
    return RatedBatch(collate_sources(ids), torch.tensor(ratings))


class RatingData(TaskData):
    example_format = RatedTextFormat()
    source_configs = PAIR_SOURCES

    def build_dataset(self, config, tokenizers, data, split):
        ids = tokenizers.source.encode_batch([pair.source for pair in data.examples])
        ratings = [parse(pair.target, data.locate(row)) for row, pair in enumerate(data.examples)]
        rows = list(zip(ids, ratings, strict=True))
        return RowDataset(rows, collate), [f"{len(rows)} rated texts"]

    def worst_case_shapes(self, data_module):
        return [BatchShape(0, 1 + max(len(ids) for ids, _ in data_module.train.rows))]

    def dummy_batch(self, model, sizes, shape, rows):
        sources = random_sources(sizes.source, rows, shape.target_length)
        return RatedBatch(sources, torch.rand(rows))


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

    @torch.inference_mode()
    def predict_batch(self, requests, options, *, need_layers):
        output, source = read_pooled(self, requests), self.tokenizers.source
        for row, request in enumerate(requests):
            rating, tokens = f"{output.values[row].item():.6g}", output.tokens[row]
            drawn = AttentionMap(tokens, [rating], output.weights[row][None])
            layers = output.collect_layers(row, request, rating, source) if need_layers else ()
            yield PredictedText(rating, [rating], drawn, layers, source_tokens=tokens)


class RatingTask(Task):
    name, description = "rating", "rates texts"
    next_command = "rate {run} FILE"
    model_configs = (RegressorConfig,)
    data, evaluation, predictor = RatingData(), RatingEvaluation(), Rater
    objective = SquaredError
    no_decoder = "needs a decoder, and a regressor has none"

    def default_recipe(self, device, train):
        return DefaultRecipe(str(Path(__file__).parent / "rater.yaml"))


TASK = RatingTask()
