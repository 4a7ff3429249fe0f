"""The models of pages, by task: translators, captioners, language models, classifiers, taggers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from typing_extensions import override

from heedful.attention.edit_operators import with_edit_operators
from heedful.attention.edits import AttentionSite
from heedful.conversion import graphs
from heedful.conversion.page_models import (
    CapturedGraph,
    CapturedModel,
    PageModel,
    PageOutput,
    PageSamples,
)
from heedful.data.images.batching import collate_images
from heedful.data.text.batching import SourceBatch, collate_sources
from heedful.decoding.config import DecodingConfig
from heedful.evaluation.base import MetricScore
from heedful.inspection.attention_layers import AttentionLayer, mark_default, mark_output_layers
from heedful.layers.crf import SoftmaxTagHead, Transitions
from heedful.models.text_encoders import HierarchicalEncoder
from heedful.search import LengthPenalty
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.tagging.predictor import Tagger, transition_penalties
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.special_texts import MAX_CHARACTERS

_NUM_GENERATED = 12
_NUM_SHOWN = 40  # tokens that a language model adds to a prompt
_MAX_CAPTION = 30
_PROMPT = 8  # tokens of dev texts that are continued
_KEPT = ("max_source_length", "max_length_ratio", "max_length_offset", "max_length")
_DECODING = {*_KEPT, "beam_size", "length_penalty", "stopping", "backend", "max_batch_tokens"}
"""Settings of decoding that a page has, or that do not change its outputs."""

# ----- models that search for an output


class _SearchPage(PageModel):
    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return super().unsupported_reason(run) or _unsupported_decoding(run.config.decoding)

    @override
    def describe(self, run: LoadedRun) -> dict[str, Any]:
        config = run.config.decoding
        return {
            "decoding": {
                **{name: getattr(config, name) for name in _KEPT},
                "beam_size": config.beam_size,
                "length_penalty": config.length_penalty.build()._asdict(),
                "stopping": config.stopping.model_dump(mode="json"),
            }
        }

    @override
    def kind(self, site: AttentionSite) -> str:
        if site.role == "cross":
            return "cross"
        return "encoder-self" if site.attends_to_source else "decoder-self"

    @override
    def mark_default(
        self, layers: Sequence[AttentionLayer], model: nn.Module
    ) -> list[AttentionLayer]:
        return mark_output_layers(layers, getattr(model, "decoder", None))

    @override
    def outputs(self, run: LoadedRun, samples: PageSamples) -> list[PageOutput]:
        model: Any = run.model
        hypotheses = model.search(
            self.collate(run, samples.inputs),
            beam_size=1,
            max_lengths=torch.tensor(samples.limits),
            length_penalty=LengthPenalty(0.0),
        )
        return [PageOutput(list(best.tokens)) for best, *_ in hypotheses]

    @abstractmethod
    def collate(self, run: LoadedRun, inputs: Sequence[Any]) -> SourceBatch:
        """Return inputs as a batch."""


class TranslationPage(_SearchPage):
    """A translator."""

    title = "Translator"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return graphs.why_no_graphs(run) or super().unsupported_reason(run)

    @override
    def samples(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> PageSamples:
        return PageSamples.of([list(ids) for ids in sources], _translation_limit)

    @override
    def dev_samples(self, run: LoadedRun, examples: Sequence[Any]) -> PageSamples:
        ids = run.tokenizers.source.encode_batch([example.source for example in examples])
        references = [example.references for example in examples]
        return PageSamples.of(ids, _translation_limit, references)

    @override
    def collate(self, run: LoadedRun, inputs: Sequence[Any]) -> SourceBatch:
        return collate_sources(inputs)


def _translation_limit(source: Sequence[int]) -> int:
    return 2 * len(source) + 10


class CaptioningPage(_SearchPage):
    """A captioner of images that are dropped onto the page."""

    title = "Captions"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        encoder: Any = run.model.encoder
        if not encoder.image_shape.has_pixels:
            return "it reads stored features of images, not the images"
        return super().unsupported_reason(run)

    @override
    def describe(self, run: LoadedRun) -> dict[str, Any]:
        encoder: Any = run.model.encoder
        channels, height, width, fit = encoder.image_shape
        image = {"channels": channels, "height": height, "width": width, "fit": fit}
        return {**super().describe(run), "image": {**image, "grid": list(encoder.grid)}}

    @override
    def samples(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> PageSamples:
        encoder: Any = run.model.encoder
        channels, height, width, _ = encoder.image_shape
        generator = np.random.default_rng(0)
        cells = generator.integers(0, 256, (len(sources), channels, *encoder.grid), np.uint8)
        rows, columns = (
            -(-size // cell) for size, cell in zip((height, width), encoder.grid, strict=True)
        )
        images = cells.repeat(rows, axis=2).repeat(columns, axis=3)[:, :, :height, :width]
        return PageSamples.of([image.reshape(-1).tolist() for image in images], _caption_limit)

    @override
    def dev_samples(self, run: LoadedRun, examples: Sequence[Any]) -> PageSamples:
        captioner: Any = run.config.task.build_predictor(run, torch.device("cpu"))
        images = [captioner.loader.load(example.source).inputs for example in examples]
        references = [example.references for example in examples]
        inputs = [image.reshape(-1).tolist() for image in images]
        return PageSamples.of(inputs, _caption_limit, references)

    @override
    def collate(self, run: LoadedRun, inputs: Sequence[Any]) -> SourceBatch:
        encoder: Any = run.model.encoder
        channels, height, width, _ = encoder.image_shape
        images = np.array(inputs, dtype=np.uint8).reshape(-1, channels, height, width)
        return collate_images(images, int(np.prod(encoder.grid)))


def _caption_limit(image: Any) -> int:
    return _MAX_CAPTION


def _unsupported_decoding(config: DecodingConfig) -> str | None:
    """Return the first setting that a page would need to obey and does not have."""
    default = DecodingConfig()
    for name in DecodingConfig.model_fields:
        if name not in _DECODING and getattr(config, name) != getattr(default, name):
            return f"decoding.{name} is set, and pages have only beam search with a length penalty"
    return None


# ----- models that read a text


class LanguageModelPage(PageModel):
    """A language model that continues a prompt."""

    title = "Language model"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return graphs.why_no_graphs(run) or super().unsupported_reason(run)

    @override
    def describe(self, run: LoadedRun) -> dict[str, Any]:
        context_length = run.config.data.lm_batching.context_length
        return {"context_length": context_length, "max_new_tokens": _NUM_SHOWN}

    @override
    def kind(self, site: AttentionSite) -> str:
        return site.role

    @override
    def mark_default(
        self, layers: Sequence[AttentionLayer], model: nn.Module
    ) -> list[AttentionLayer]:
        return mark_default(layers, "self")

    @override
    def samples(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> PageSamples:
        return PageSamples.of([list(ids) for ids in sources], lambda _: _NUM_GENERATED)

    @override
    def dev_samples(self, run: LoadedRun, examples: Sequence[Any]) -> PageSamples:
        ids = run.tokenizers.target.encode_batch([line for line in examples if line.strip()])
        return PageSamples.of([row[:_PROMPT] for row in ids if row], lambda _: _NUM_GENERATED)

    @override
    def outputs(self, run: LoadedRun, samples: PageSamples) -> list[PageOutput]:
        model: Any = run.model
        return list(map(PageOutput, graphs.continue_prompts(model, samples.inputs, _NUM_GENERATED)))

    @override
    def score(
        self, run: LoadedRun, outputs: Sequence[PageOutput], references: Sequence[Sequence[str]]
    ) -> MetricScore | None:
        return None


class _LabelPage(PageModel):
    """Inputs are texts, since a text has one label, or one for each word."""

    graph: ClassVar[type[graphs.ClassifierGraph | graphs.TaggerGraph]]
    graph_name: ClassVar[str]
    output: ClassVar[str]

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        encoder: Any = run.model.encoder
        if isinstance(encoder, HierarchicalEncoder):
            return "its encoder reads sentence by sentence, which a graph cannot count"
        if getattr(run.model, "splits_words", False):
            return "its encoder reads pieces of words, of which the first have the tags"
        return super().unsupported_reason(run)

    @override
    def capture(self, model: nn.Module, sizes: VocabSizes) -> CapturedModel:
        graph = self.graph(with_edit_operators(model))
        program = graphs.capture_labels(graph, sizes, _row_size(model))
        inputs = [graphs.SOURCE_TOKENS, graphs.SOURCE_LENGTHS]
        captured = CapturedGraph(program, inputs, [self.output])
        return CapturedModel({self.graph_name: captured}, {**graphs.SPECIAL_IDS, "state": []})

    @override
    def describe(self, run: LoadedRun) -> dict[str, Any]:
        return {"classes": self.predictor(run).labels}

    @override
    def kind(self, site: AttentionSite) -> str:
        return "pooling" if site.path.startswith("pooling.") else f"encoder-{site.role}"

    @override
    def mark_default(
        self, layers: Sequence[AttentionLayer], model: nn.Module
    ) -> list[AttentionLayer]:
        kinds = {layer.kind for layer in layers}
        return mark_default(layers, "pooling" if "pooling" in kinds else "encoder-self")

    @override
    def samples(self, run: LoadedRun, sources: Sequence[Sequence[int]]) -> PageSamples:
        return PageSamples.of([run.tokenizers.source.decode(ids) for ids in sources])

    @override
    def dev_samples(self, run: LoadedRun, examples: Sequence[Any]) -> PageSamples:
        references = [example.references for example in examples]
        return PageSamples.of([example.source for example in examples], len, references)

    def predictor(self, run: LoadedRun) -> Any:
        """Return the predictor of a run."""
        return run.config.task.build_predictor(run, torch.device("cpu"))

    @override
    def to_text(self, run: LoadedRun, tokens: Sequence[int]) -> str:
        labels = self.predictor(run).labels
        return " ".join(labels[index] for index in tokens)


class ClassificationPage(_LabelPage):
    """A classifier of texts."""

    title = "Classifier"
    graph, graph_name = graphs.ClassifierGraph, "classifier"
    output = graphs.LOG_PROBS

    @override
    def outputs(self, run: LoadedRun, samples: PageSamples) -> list[PageOutput]:
        predictor = self.predictor(run)
        return [
            PageOutput(
                [predictor.labels.index(result.text)],
                [float(np.log(result.probabilities[label])) for label in predictor.labels],
            )
            for result in predictor.predict(samples.inputs)
        ]


class TaggingPage(_LabelPage):
    """A tagger of words, whose chain of tags is decoded by the page."""

    title = "Tagger"
    graph, graph_name = graphs.TaggerGraph, "tagger"
    output = "emissions"

    @override
    def describe(self, run: LoadedRun) -> dict[str, Any]:
        model: Any = run.model
        tagger, scheme = self.predictor(run), run.config.model.scheme
        chain: Transitions | None = None
        if not isinstance(model.head, SoftmaxTagHead) or scheme:
            with torch.no_grad():
                chain = model.head.transition_scores(torch.zeros(1, 1, len(tagger.labels)))
        described: dict[str, Any] = {"transitions": None, "decoding_transitions": None}
        described["row_size"] = _row_size(model)
        if chain is not None:
            is_chain = not isinstance(model.head, SoftmaxTagHead)
            described["transitions"] = _to_lists(chain) if is_chain else None
        if chain is not None and scheme:
            penalties = transition_penalties(tagger.labels, scheme)
            sums = (one + other for one, other in zip(chain, penalties, strict=True))
            described["decoding_transitions"] = _to_lists(Transitions(*sums))
        return {**super().describe(run), **described}

    @override
    def outputs(self, run: LoadedRun, samples: PageSamples) -> list[PageOutput]:
        tagger: Tagger = self.predictor(run)
        return [
            PageOutput(
                [tagger.labels.index(tag) for tag in result.tags],
                np.log(np.maximum(result.probabilities, 1e-30)).reshape(-1).tolist(),
            )
            for result in tagger.predict(samples.inputs)
        ]


def _row_size(model: Any) -> int | None:
    """Return how many ids a word has, with those of its characters; None without characters."""
    return 1 + MAX_CHARACTERS if getattr(model, "has_characters", False) else None


def _to_lists(chain: Transitions) -> dict[str, Any]:
    return {name: part.tolist() for name, part in chain._asdict().items()}


PAGE_MODELS: Mapping[str, PageModel] = {
    "translation": TranslationPage(),
    "captioning": CaptioningPage(),
    "language-modeling": LanguageModelPage(),
    "classification": ClassificationPage(),
    "tagging": TaggingPage(),
}


def find_page_model(run: LoadedRun) -> PageModel | None:
    """Return how a page runs the models of a task; None if it does not."""
    return PAGE_MODELS.get(run.config.task.name)
