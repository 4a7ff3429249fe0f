"""The predictor interface.

Commands, `evaluate`, `show`, `compare` and Python use a trained model through `Predictor` alone: it
reads requests, predicts, streams and writes JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import TypeVar, override

from heedful.config import BaseConfig, validate_settings
from heedful.data.text_files import read_lines
from heedful.errors import DataError, check
from heedful.evaluation.base import Metric, MetricScore, compute_score
from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.attention_map import AttentionMap
from heedful.tokenization.tokenizer_pair import TokenizerPair

_MAX_NUMBER = 1e30


class LoadedRun(NamedTuple):
    """Contents of a run folder."""

    folder: Path | str
    config: Any  # a recipe
    tokenizers: TokenizerPair
    model: nn.Module


RunLoader = Callable[[Path | str], LoadedRun]


class Prediction(Protocol):
    """The output of a model for one request."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def attention_map(self) -> AttentionMap | None: ...
    @property
    def attention_layers(self) -> Sequence[AttentionLayer]: ...
    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        ...


RequestT = TypeVar("RequestT", default=Any)
ResultT = TypeVar("ResultT", bound=Prediction, default=Any)


class NoOptions(BaseConfig):
    """The options of a predictor that has none."""


class Predictor(ABC, Generic[RequestT, ResultT]):
    """A trained model, or an ensemble, with all that it needs to predict.

    Invariant: the result of a request does not depend on the other requests; with sampling it
    depends on its index.
    """

    model: Any
    device: torch.device | str
    request_name: ClassVar[str] = "text"
    """Names a request in errors: "text:3"."""
    reads_files: ClassVar[bool] = False
    """Whether `show` gets names of files, whose requests are those of `read_file`."""
    supports_control: ClassVar[bool] = False
    """Whether `predict` has an argument `control`, a `RequestControl`; without it, results do not
    depend on the index of their request."""
    options_class: ClassVar[type[BaseConfig]] = NoOptions
    """Settings of one call, such as the beam size."""
    ensemble_with: Sequence[Any] = ()
    """The other members of an ensemble whose predictions are averaged."""

    def parse_line(self, line: str) -> RequestT:
        """Return the request that a line of text is: by default the line."""
        return line  # type: ignore[return-value]

    def parse_json(self, value: Any) -> RequestT:
        """Return the request that a JSON value is: by default a string, as a line is."""
        return self.parse_line(check_json(value, str, "a text", '"a text"'))

    def parse_options(self, values: Mapping[str, Any]) -> BaseConfig:
        """Return options by name; raise ConfigError for an unknown one."""
        return validate_settings(self.options_class, dict(values), location="options")

    def example(self) -> Any:
        """Return a JSON value that is a request."""
        return "an example"

    def to_json(self, result: ResultT, *, need_weights: bool = False) -> dict[str, Any]:
        """Return a result as JSON values, as the command of the task writes them by default."""
        return result.to_json()

    def read_file(self, path: str) -> Iterable[RequestT]:
        """Return the requests of a file: by default one per line."""
        return map(self.parse_line, read_lines(path))

    @abstractmethod
    def predict(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[ResultT]:
        """Predict in order, a bounded number of requests at a time.

        `options` are an instance of `options_class`. Errors name a request by location and index,
        which counts from `start_index`. With `need_layers` the results have the attention weights
        of each layer; models of running text then read the texts as they are.
        """

    def predict_texts(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        control: Any = None,
    ) -> Iterator[str]:
        """Yield only the texts of predictions, in a faster way if there is one."""
        keywords: Any = {"control": control} if self.supports_control else {}
        keywords |= {"location": location, "start_index": start_index}
        return (result.text for result in self.predict(requests, options, **keywords))

    def stream(self, request: RequestT, options: Any = None) -> Iterator[ResultT]:
        """Yield results as they grow; the last, by default the only one, is that of `predict`."""
        yield from self.predict([request], options)

    def evaluate(self, examples: Sequence[Any]) -> list[MetricScore]:
        """Return the scores that `evaluate` shows by default: by default, against references."""
        outputs = [result.text for result in self.predict(example.source for example in examples)]
        references = [example.references for example in examples]
        metrics = self.default_metrics(references)
        return [compute_score(metric, outputs, references) for metric in metrics]

    def default_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[Metric]:
        """Return the metrics that `evaluate` computes for these references."""
        raise NotImplementedError

    def count_tokens(self, examples: Sequence[Any]) -> int:
        """Return the number of tokens, or other targets, that `evaluate` predicts."""
        return len(examples)


class BatchPredictor(Predictor[RequestT, ResultT]):
    """A predictor of which only the prediction of a batch must be written."""

    batch_size: ClassVar[int] = 64

    @abstractmethod
    def predict_batch(
        self, requests: Sequence[RequestT], options: Any, *, need_layers: bool
    ) -> Iterable[ResultT]:
        """Return the result of each request."""

    def check_request(self, request: RequestT, location: str) -> None:
        """Raise DataError for a request that cannot be predicted."""

    @override
    def predict(
        self,
        requests: Iterable[RequestT],
        options: Any = None,
        *,
        location: str = "",
        start_index: int = 1,
        need_layers: bool = False,
    ) -> Iterator[ResultT]:
        stream, options = iter(requests), options or self.options_class()
        while batch := list(islice(stream, 1 if need_layers else self.batch_size)):
            for index, request in enumerate(batch, start_index):
                self.check_request(request, f"{location or self.request_name}:{index}")
            yield from self.predict_batch(batch, options, need_layers=need_layers)
            start_index += len(batch)


def check_json(value: Any, types: Any, noun: str, example: str) -> Any:
    """Return a JSON value; raise DataError if it is of another type."""
    is_valid = isinstance(value, types)
    message = f"must be {noun}, but is {short_repr(value)}"
    check(is_valid, "request", message, f"write {example}", DataError)
    return value


def parse_numbers(value: Any, *, is_byte: bool, noun: str, example: str) -> NDArray[Any]:
    """Return nested lists of numbers, or of bytes, as an array; raise DataError for others."""
    try:
        array = np.array(value)
    except ValueError:  # lists of unequal lengths
        array = np.empty(0)
    kinds, dtype, limit = ("iu", np.uint8, 255) if is_byte else ("iuf", np.float32, _MAX_NUMBER)
    lowest = 0 if is_byte else -limit
    is_valid = array.dtype.kind in kinds and array.size > 0
    is_valid = is_valid and lowest <= array.min() <= array.max() <= limit
    check_json(value if is_valid else None, list, noun, example)
    return array.astype(dtype)


def format_predictor(predictor: Any, *details: str) -> str:
    """Return the repr of a predictor, in one line."""
    name, model, parts = type(predictor).__name__, predictor.model, list(details)
    if isinstance(model, nn.Module):
        count = sum(parameter.numel() for parameter in model.parameters())
        parts.insert(0, f"{count:,} parameters")
    return f"<{name}: {', '.join([*parts, f'on {predictor.device}'])}>"
