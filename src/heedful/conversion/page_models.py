"""What a page needs of the models of each task: their graphs, their attention, and sample outputs.

Invariant: `outputs` in Python are what the page gives for the same inputs, in fp32 exactly; the
exporter compares them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import nn
from torch.export import ExportedProgram

from heedful.attention.edit_operators import editable_sites, with_edit_operators
from heedful.attention.edits import AttentionSite
from heedful.conversion import graphs
from heedful.errors import HeedfulError
from heedful.evaluation.base import MetricScore, compute_score
from heedful.inspection.attention_layers import AttentionLayer, without_words
from heedful.runs import Run
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.page_tokenizers import unsupported_tokenizer

_SCORE_TOLERANCE = 1e-3


class CapturedGraph(NamedTuple):
    """A graph, and how its inputs and outputs are called."""

    program: ExportedProgram
    inputs: list[str]
    outputs: list[str]


class CapturedModel(NamedTuple):
    """The graphs of a model by name, and what a program needs to know of them."""

    graphs: dict[str, CapturedGraph]
    info: dict[str, Any]


class PageOutput(NamedTuple):
    """An output as numbers: tokens, labels or tags, and scores where there is one for each."""

    tokens: list[int]
    scores: list[float] | None = None

    def differs(self, other: "PageOutput") -> bool:
        """Whether another output has other tokens, or clearly other scores."""
        if self.tokens != other.tokens or self.scores is None:
            return self.tokens != other.tokens
        pairs = zip(self.scores, other.scores or [], strict=True)
        return any(abs(np.exp(one) - np.exp(two)) > _SCORE_TOLERANCE for one, two in pairs)


class PageSamples(NamedTuple):
    """Inputs of a page as JSON values, the most tokens of each output, and true outputs."""

    inputs: list[Any]
    limits: list[int]
    references: list[Sequence[str]] | None = None

    @classmethod
    def of(
        cls, inputs: list[Any], limit: Callable[[Any], int] = len, references: Any = None
    ) -> "PageSamples":
        """Return samples whose limits depend on their inputs."""
        return cls(inputs, list(map(limit, inputs)), references)


class PageModel(ABC):
    """How a page runs the models of a task; its name is that of the task."""

    title: ClassVar[str]
    """Of a page whose run has no name."""

    def unsupported_reason(self, run: LoadedRun) -> str | None:
        """Return why a page cannot run this model; None if it can."""
        return graphs.unsupported_part(run) or unsupported_tokenizer(
            run.config.tokenizers, run.tokenizers
        )

    def capture(self, model: nn.Module, sizes: VocabSizes) -> CapturedModel:
        """Capture a model, whose attention has operators of edits."""
        return _capture_steps(with_edit_operators(model), sizes)

    def describe(self, run: LoadedRun) -> dict[str, Any]:
        """Return what the page needs to know beside graphs, attention and tokenizers."""
        return {}

    @abstractmethod
    def kind(self, site: AttentionSite) -> str:
        """Return the kind of an attention, as explanations name it."""

    @abstractmethod
    def mark_default(
        self, layers: Sequence[AttentionLayer], model: nn.Module
    ) -> list[AttentionLayer]:
        """Mark the layers that are shown first."""

    def describe_sites(self, model: nn.Module) -> dict[str, Any]:
        """Return what a page needs to know of each attention, by its path."""
        sites = [site for site in editable_sites(model) if site.role in ("cross", "self")]
        axis, nothing = without_words([]), np.zeros((0, 0, 0))
        layers = [
            AttentionLayer(self.kind(site), axis, axis, nothing, path=site.path) for site in sites
        ]
        return {
            site.path: {
                "type": layer.kind,
                "is_default": layer.is_default,
                "num_heads": site.num_heads,
                "attends_to_source": site.attends_to_source,
                "has_sentinel": site.has_sentinel,
            }
            for site, layer in zip(sites, self.mark_default(layers, model), strict=True)
        }

    @abstractmethod
    def samples(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> PageSamples:
        """Return the inputs of a comparison, from the ids of sample texts."""

    @abstractmethod
    def dev_samples(self, run: LoadedRun, examples: Sequence[Any]) -> PageSamples:
        """Return dev examples as inputs, with what they should give."""

    @abstractmethod
    def outputs(self, run: LoadedRun, samples: PageSamples) -> list[PageOutput]:
        """Return what the run gives for the inputs of samples."""

    def score(
        self, run: LoadedRun, outputs: Sequence[PageOutput], references: Sequence[Sequence[str]]
    ) -> MetricScore | None:
        """Return the main score of outputs; None if they have none."""
        names = run.config.task.evaluation.choose_metrics([*map(tuple, references)])
        metric = run.config.task.evaluation.test_metrics[names[0]]
        texts = [self.to_text(run, output.tokens) for output in outputs]
        return compute_score(metric, texts, references)

    def to_text(self, run: LoadedRun, tokens: Sequence[int]) -> str:
        """Return an output as the task writes it."""
        return run.tokenizers.target.decode(tokens)


def read_dev_examples(run: LoadedRun, count: int) -> list[Any]:
    """Return the first dev examples of a run; none if its data cannot be loaded here."""
    dev, data = run.config.data.dev, run.config.task.data
    with suppress(HeedfulError, OSError):
        if dev is not None:
            return list(islice(data.read_examples(dev), count))
        held_out = Run(run.folder).read_held_out()[:count]
        return [data.example_format.from_json(example) for example in held_out]
    return []


def _capture_steps(model: nn.Module, sizes: VocabSizes) -> CapturedModel:
    captured = graphs.capture_graphs(model, sizes)
    step = CapturedGraph(captured.step, captured.step_inputs, captured.step_outputs)
    info = graphs.model_info(captured)
    if captured.encoder is None:
        return CapturedModel({"language_model": step}, info)
    inputs = [graphs.SOURCE_TOKENS, graphs.SOURCE_LENGTHS]
    encoder = CapturedGraph(captured.encoder, inputs, captured.encoder_outputs)
    return CapturedModel({"encoder": encoder, "decoder_step": step}, info)


def count_equal_tokens(
    expected: Sequence[PageOutput], actual: Sequence[PageOutput]
) -> Iterator[tuple[int, int]]:
    """Yield, for each output, how many tokens are equal, and how many there are, with EOS."""
    for one, other in zip(expected, actual, strict=True):
        pairs = zip([*one.tokens, -1], [*other.tokens, -1], strict=False)
        longest = max(len(one.tokens), len(other.tokens)) + 1
        yield sum(left == right for left, right in pairs), longest
