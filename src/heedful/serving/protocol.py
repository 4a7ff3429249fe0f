"""Messages between the front process and its workers; imports no torch.

Inputs, options and results are JSON values: each predictor parses and writes them itself
(`Predictor.parse_json`, `parse_options`, `Prediction.to_json`), so that nothing here depends on the
task. Invariant: every item of a call gets exactly one result or error, in the order of the items.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ServedRun(NamedTuple):
    """A run to serve, or an ensemble."""

    name: str
    """By which requests choose it: by default the name of the run folder."""
    folders: Sequence[str]
    languages: tuple[str, str] | None = None
    """Codes of source and target language, such as ("de", "en")."""


class ModelInfo(NamedTuple):
    """The public description of a run; never where it is stored."""

    name: str
    task: str
    """Its name in the registry."""
    route: str
    """The last part of its path, /v1/translate: the first command of the task."""
    step: int | None
    parameters: int
    mechanisms: Sequence[Mapping[str, Any]]
    """Attention layers: path, type, layer, heads, and which alignments each refuses, and why."""
    capabilities: Sequence[str]
    """Among "attention", "tree", "stream" and "cancel"."""
    options: Mapping[str, Any]
    """JSON schema of the options of a call."""
    example: Any
    """An input of the right form; the worker was warmed up with it."""
    languages: tuple[str, str] | None = None
    input: Mapping[str, Any] = {"type": "string"}
    """JSON schema of an input."""


class Item(NamedTuple):
    """One input of a request."""

    id: int
    """Unique in the front process; `Cancel` names it."""
    input: Any
    seed: int = 1
    """Seeds its samples, unless the options have a seed: by default its position, from 1."""


class PredictCall(NamedTuple):
    """Items of one or more requests that have the same model and options."""

    model: str
    items: Sequence[Item]
    options: Mapping[str, Any]
    need_layers: bool = False
    """Return the attention of each layer, too."""
    text_only: bool = False
    """Return {"text": ...} alone, from the fastest backend."""


class StreamCall(NamedTuple):
    """One input whose result is sent while it grows."""

    model: str
    item: Item
    options: Mapping[str, Any]


class ExplainCall(NamedTuple):
    """One input whose prediction is explained, under edits of attention."""

    model: str
    item: Item
    options: Mapping[str, Any]
    edits: Sequence[Mapping[str, Any]] = ()
    figure: Mapping[str, Any] | None = None
    """Return {"text": ...}, this figure of the explanation, instead: `format` is "svg" or "html";
    `kind`, `layer` and `head`, counted from 1, select a map as the options of `heedful show` do."""
    checkpoint: int | None = None
    """Step of a checkpoint of the training, which predicts instead of the saved parameters."""


class TraceCall(NamedTuple):
    """Weights of an explanation that was too large to be sent, as {"content": bytes}.

    Layers, heads and queries are indices from 0. Without a tile, a row.
    """

    trace: str
    """`trace` of the explanation."""
    layer: int
    head: int
    query: int = 0
    tile: tuple[int, int, int] | None = None
    """Level, column and row of a tile."""
    is_faint: bool = False
    """A byte is 255 w^(1/4) instead of 255 w."""


class ItemError(NamedTuple):
    """Why there is no result for an item; `status` is that of HTTP."""

    status: int
    message: str
    hint: str = ""
    field: str = ""
    """Where in the item, such as "options.beam_size"."""


class StreamPart(NamedTuple):
    """New text of a stream: text that is final, and with the last part the whole result."""

    text: str
    result: Mapping[str, Any] | None = None


Result = Mapping[str, Any] | ItemError
Call = PredictCall | StreamCall | ExplainCall | TraceCall
