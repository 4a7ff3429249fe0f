"""The runs of a worker process, and how it answers calls.

Invariants: every item gets one result or error, in order; the result of an item does not depend on
the other items, also where one of them raises. Of explanations that are too large to be sent, the
last few are held, and a bounded number of bytes of their maps.
"""

import json
import re
import time
import traceback
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from heedful.attention.alignments import FixedAlignmentConfig, SoftmaxAlignmentConfig
from heedful.attention.edits import AttentionEdit, find_attention
from heedful.decoding.requests import RequestControl
from heedful.errors import ArgumentError, ConfigError, DataError, RunError, check
from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.attention_selection import AttentionSelection
from heedful.inspection.explanation import Explanation
from heedful.inspection.figures import render_html, render_svg
from heedful.inspection.large_maps import MapPyramid, count_tiles, deferring_weights
from heedful.models.ensembles import ensemble_members
from heedful.parallel import cancelled
from heedful.runs import Run, load
from heedful.serving.protocol import (
    Call,
    ExplainCall,
    Item,
    ItemError,
    ModelInfo,
    PredictCall,
    Result,
    ServedRun,
    StreamCall,
    StreamPart,
    TraceCall,
)
from heedful.tasks.prediction import Predictor
from heedful.tasks.registry import task_routes

_CANCELLED = ItemError(499, "cancelled")
_INCOMPLETE_CHARACTERS = "\ufffd\ue000"  # the next token may complete them
_PART_SECONDS = 0.02  # between parts of a stream: each costs the front process as much as a request
_MAX_EXAMPLE_LENGTH = 2_000  # characters of JSON
_EFFECT_SECONDS = 3.0  # of an explanation, for each layer
_MAX_STORED_WEIGHTS = 2**22  # of a call of attention
_MAX_SENT_WEIGHTS = 2**20  # of an explanation: 9 MB of JSON
_MAX_FIGURE_CELLS = 2**18
MAX_TRACES = 3  # what is shown, what is compared with, and one before
_MAX_PYRAMID_BYTES = 2**27
_ALIGNMENTS = (SoftmaxAlignmentConfig(), FixedAlignmentConfig())


class _MapKey(NamedTuple):
    trace: str
    layer: int
    head: int
    is_faint: bool


class TraceCache:
    """Layers by the id of their explanation, and the pyramids of maps that were drawn."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, Sequence[AttentionLayer]] = OrderedDict()
        self._pyramids: OrderedDict[_MapKey, MapPyramid] = OrderedDict()

    def add(self, layers: Sequence[AttentionLayer]) -> str:
        """Hold the layers of an explanation and return its id; the oldest ones are dropped."""
        trace = token_hex(8)
        self._traces[trace] = layers
        while len(self._traces) > MAX_TRACES:
            self._drop(next(iter(self._traces)))
        return trace

    def _drop(self, trace: str) -> None:
        del self._traces[trace]
        for key in [key for key in self._pyramids if key.trace == trace]:
            del self._pyramids[key]

    def read(self, call: TraceCall) -> Result:
        """Return bytes: a row as float32, little-endian, or a tile as one byte for each weight."""
        if call.trace not in self._traces:
            return ItemError(404, "this explanation is not held any more", "explain again", "trace")
        layers = self._traces[call.trace]
        if call.layer >= len(layers):
            return _beyond("layer", len(layers))
        num_heads, num_rows, _ = layers[call.layer].weights.shape
        if call.head >= num_heads:
            return _beyond("head", num_heads)
        if call.tile is not None:
            return self._read_tile(layers[call.layer], call)
        if call.query >= num_rows:
            return _beyond("query", num_rows)
        row = layers[call.layer].read_rows(call.head, call.query, call.query + 1)
        return {"content": np.ascontiguousarray(row, "<f4").tobytes()}

    def _read_tile(self, layer: AttentionLayer, call: TraceCall) -> Result:
        assert call.tile is not None
        level, x, y = call.tile
        counts = count_tiles(*layer.weights.shape[1:])
        if level >= len(counts):
            return _beyond("level", len(counts))
        num_down, num_across = counts[level]
        if x >= num_across:
            return _beyond("x", num_across)
        if y >= num_down:
            return _beyond("y", num_down)
        return {"content": self._pyramid(layer, call).tile(level, x, y)}

    def _pyramid(self, layer: AttentionLayer, call: TraceCall) -> MapPyramid:
        key = _MapKey(call.trace, call.layer, call.head, call.is_faint)
        if key not in self._pyramids:
            # Before the new one is built: both together would need twice as much.
            used = sum(pyramid.num_bytes for pyramid in self._pyramids.values())
            while self._pyramids and used + 2 * layer.weights[0].size > _MAX_PYRAMID_BYTES:
                _, dropped = self._pyramids.popitem(last=False)
                used -= dropped.num_bytes
            self._pyramids[key] = MapPyramid.build(
                lambda start, stop: layer.read_rows(call.head, start, stop),
                *layer.weights.shape[1:],
                is_faint=call.is_faint,
            )
        self._pyramids.move_to_end(key)
        return self._pyramids[key]


def _beyond(field: str, count: int) -> ItemError:
    return ItemError(422, f"{field} is at most {count - 1}", "lower it", field)


class ServedModel:
    """A loaded run."""

    def __init__(self, run: ServedRun, options: Mapping[str, Any]) -> None:
        first, *others = run.folders
        self.run, self.num_steps = run, 0
        self.predictor: Predictor = load(first, ensemble_with=others, **options)
        self.example = self.predictor.example()
        self._options = options
        self._checkpoint: tuple[int, Predictor] | None = None  # the last one that was explained

    def info(self) -> ModelInfo:
        """Return the public description of the run."""
        first = Run.open(self.run.folders[0])
        task, predictor = first.read_recipe().task.name, self.predictor
        modules = [part for part in _models(predictor) if isinstance(part, nn.Module)]
        is_short = len(json.dumps(self.example)) <= _MAX_EXAMPLE_LENGTH
        mechanisms = list_attention(modules[0])
        capabilities = {
            "attention": mechanisms,
            "tree": _searches(predictor),
            "stream": predictor.streams_by_token,
            "cancel": predictor.supports_control and torch.device(predictor.device).type == "cpu",
        }
        return ModelInfo(
            self.run.name,
            task,
            task_routes()[task],
            first.verify().get("step"),
            sum(parameter.numel() for module in modules for parameter in module.parameters()),
            mechanisms,
            [name for name, has_it in capabilities.items() if has_it],
            predictor.options_class.model_json_schema(),
            self.example if is_short else None,
            self.run.languages,
            predictor.input_schema,
        )

    def predict(self, call: PredictCall) -> list[Result]:
        """Return a result or an error for each item."""
        try:
            options = self.predictor.parse_options(call.options)
        except Exception as error:
            return [to_item_error(error, "options")] * len(call.items)
        results: dict[int, Result] = {}
        parsed: list[tuple[Item, Any]] = []
        for item in call.items:
            if item.id in cancelled:
                results[item.id] = _CANCELLED
                continue
            try:
                parsed.append((item, self.predictor.parse_json(item.input)))
            except Exception as error:
                results[item.id] = to_item_error(error, "input")
        if parsed:
            results |= self._predict_group(parsed, options, call)
        return [results[item.id] for item in call.items]

    def _predict_group(
        self, group: list[tuple[Item, Any]], options: Any, call: PredictCall
    ) -> dict[int, Result]:
        """Predict; halve a group that raises, until the item that raises is alone."""
        items, requests = zip(*group, strict=True)
        try:
            values = self._predict(items, requests, options, call)
        except Exception as error:
            if len(items) == 1:
                return {items[0].id: to_item_error(error, "input")}
            halves = group[: len(group) // 2], group[len(group) // 2 :]
            return {
                item_id: result
                for half in halves
                for item_id, result in self._predict_group(half, options, call).items()
            }
        return {
            item.id: _CANCELLED if item.id in cancelled else value
            for item, value in zip(items, values, strict=True)
        }

    def _predict(
        self, items: Sequence[Item], requests: Sequence[Any], options: Any, call: PredictCall
    ) -> list[dict[str, Any]]:
        predictor, need_layers = self.predictor, call.need_layers
        control = self._control(items)
        if call.text_only:
            texts = predictor.predict_texts(requests, options, control=control)
            return [{"text": text} for text in texts]
        keywords: Any = {"control": control} if predictor.supports_control else {}
        results = predictor.predict(requests, options, need_layers=need_layers, **keywords)
        return [self._to_json(result, need_layers=need_layers) for result in results]

    def _control(self, items: Sequence[Item]) -> RequestControl:
        """Return what is cancelled and what seeds samples, by index of the item from 1."""
        return RequestControl(
            lambda index: items[index - 1].id in cancelled,
            lambda index: items[index - 1].seed,
            self._count_steps,
        )

    def _count_steps(self, num_hypotheses: int) -> None:
        self.num_steps += num_hypotheses

    def _to_json(self, result: Any, *, need_layers: bool) -> dict[str, Any]:
        fields = self.predictor.to_json(result, need_weights=need_layers)
        if need_layers:
            fields["layers"] = [layer.to_json() for layer in result.attention_layers]
        return fields

    def stream(self, call: StreamCall) -> Generator[StreamPart | ItemError | None, None, None]:
        """Yield the text of a result as it grows, None between parts, and at last the result."""
        predictor, sent, result, next_time = self.predictor, "", None, 0.0
        try:
            options = predictor.parse_options(call.options)
            for result in predictor.stream(predictor.parse_json(call.item.input), options):
                if call.item.id in cancelled:
                    yield _CANCELLED
                    return
                self._count_steps(1)
                text = result.text.rstrip(_INCOMPLETE_CHARACTERS)
                if len(text) > len(sent) and time.monotonic() >= next_time:
                    yield StreamPart(text[len(sent) :])
                    sent, next_time = text, time.monotonic() + _PART_SECONDS
                else:
                    yield None
            assert result is not None
            yield StreamPart(result.text[len(sent) :], self._to_json(result, need_layers=False))
        except Exception as error:
            yield to_item_error(error, "input")

    def _predictor_of(self, checkpoint: int | None) -> Predictor:
        if checkpoint is None:
            return self.predictor
        if self._checkpoint is None or self._checkpoint[0] != checkpoint:
            loaded = load(self.run.folders[0], checkpoint=checkpoint, **self._options)
            self._checkpoint = (checkpoint, loaded)
        return self._checkpoint[1]

    def explain(self, call: ExplainCall, traces: TraceCache) -> list[Result]:
        """Return a prediction with layers, the best tokens of each step and checks.

        What is too large to be sent is added to the traces.
        """
        try:
            with deferring_weights(_MAX_STORED_WEIGHTS):
                return [self._explain(call, traces)]
        except Exception as error:
            return [to_item_error(error, "input")]

    def _explain(self, call: ExplainCall, traces: TraceCache) -> dict[str, Any]:
        predictor = self._predictor_of(call.checkpoint)
        options = predictor.parse_options(call.options)
        edits = [
            AttentionEdit.from_json(edit, location=f"edits[{index}]")
            for index, edit in enumerate(call.edits)
        ]
        explained = predictor.explain(
            predictor.parse_json(call.item.input),
            options,
            edits=edits,
            need_effects=call.figure is None,
            effect_seconds=_EFFECT_SECONDS,
        )
        if call.figure is not None:
            return {"text": render_figure(explained, **call.figure)}
        result = predictor.to_json(explained.result)
        fields = explained.to_json(result, max_weights=_MAX_SENT_WEIGHTS)
        if any(layer["weights"] is None for layer in fields["layers"]):
            fields["trace"] = traces.add(explained.layers)
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return {"content": text.encode()}  # the front process, which others wait for, only sends it


class ServedModels:
    """All runs of a worker; each has made a prediction."""

    def __init__(self, runs: Sequence[ServedRun], options: Mapping[str, Any]) -> None:
        """`options` are those of `runs.load`."""
        self.models = {run.name: ServedModel(run, options) for run in runs}
        self._traces = TraceCache()
        for model in self.models.values():
            list(model.predictor.predict([model.predictor.parse_json(model.example)]))

    def answer(self, call: Call | None) -> Any:
        """Return the answer to a call; that to None are all models."""
        if call is None:
            return [model.info() for model in self.models.values()]
        if isinstance(call, TraceCall):
            return [self._traces.read(call)]
        model = self.models[call.model]
        if isinstance(call, ExplainCall):
            return model.explain(call, self._traces)
        return model.stream(call) if isinstance(call, StreamCall) else model.predict(call)

    def take_steps(self) -> int:
        """Return how many decoding steps hypotheses have made since the last call."""
        num_steps = sum(model.num_steps for model in self.models.values())
        for model in self.models.values():
            model.num_steps = 0
        return num_steps


def to_item_error(error: Exception, field: str) -> ItemError:
    """Return the public part of an exception: 422 where its input is the cause."""
    if isinstance(error, DataError | ConfigError | ArgumentError | RunError):
        if isinstance(error, ConfigError):  # "options: beam_size" or "decoding.beam_size"
            name = re.split("[ .]", error.location)[-1]
            is_named = error.location.startswith(("edits", "checkpoint"))
            field = error.location if is_named else f"options.{name}"
        return ItemError(422, error.message, error.hint, field)
    traceback.print_exception(error)
    return ItemError(500, "the model failed on this input", "the log of the server says why")


def render_figure(explained: Explanation, *, format: str, kind: str, layer: int, head: int) -> str:
    """Return a map of a prediction as an SVG document, or a page of all of them."""
    result = explained.result
    num_cells = max((one.weights[0].size for one in explained.layers), default=0)
    message = f"the map has {num_cells:,} weights, a figure at most {_MAX_FIGURE_CELLS:,}"
    hint = "shorten the text, or save what is visible as PNG"
    check(num_cells <= _MAX_FIGURE_CELLS, "figure", message, hint, ArgumentError)
    if format == "svg":
        selection = AttentionSelection([kind], [str(layer)], [str(head)])
        return render_svg(selection.select_of(result, "model"))
    return render_html(
        AttentionSelection(["all"], ["all"], ["all"]).select_of(result, "model"), title="Attention"
    )


def list_attention(model: nn.Module) -> list[dict[str, Any]]:
    """Return path, type, layer and heads of each attention module; not of those inside others.

    `refuses`: why its alignment cannot be another one, by type.
    """
    mechanisms: list[dict[str, Any]] = []
    for site in find_attention(model):
        numbers = [int(part) for part in site.path.split(".") if part.isdecimal()]
        layer = numbers[0] if numbers else 0
        reasons = {one.type: site.why_not(AttentionEdit(alignment=one)) for one in _ALIGNMENTS}
        refuses = {name: reason for name, reason in reasons.items() if reason}
        mechanism = {"path": site.path, "type": site.role, "layer": layer, "heads": site.num_heads}
        mechanisms.append({**mechanism, "refuses": refuses})
    return mechanisms


def _searches(predictor: Predictor) -> bool:
    """Return whether a predictor has search trees: it searches, and the run does not sample."""
    has_option = "need_tree" in predictor.options_class.model_fields
    return has_option and predictor.decoding.sampling_setting is None  # type: ignore[attr-defined]


def _models(predictor: Predictor) -> list[Any]:
    members = [predictor, *predictor.ensemble_with]
    return [model for member in members for model in ensemble_members(member.model)]
