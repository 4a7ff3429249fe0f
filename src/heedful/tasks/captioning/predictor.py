"""The captioner: a trained model, or an ensemble, that writes captions for images.

Invariant: the caption of an image does not depend on the other images; with sampling it depends on
the seed and its index.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, overload

import numpy as np
import torch
from torch import nn
from typing_extensions import override

from heedful.acceleration.registry import accelerate_for_inference
from heedful.config import check_types
from heedful.data.images.batching import collate_images
from heedful.data.images.captions import CaptionedImage
from heedful.data.images.image_files import read_all
from heedful.data.text.batching import SourceBatch
from heedful.decoding.config import DecodingConfig, check_search_tree
from heedful.decoding.requests import EncodedRequest, Request, RequestEncoder, batch_requests
from heedful.decoding.strategies import DecodingOutput, DecodingStrategy
from heedful.decoding.translation import BOS_LABEL
from heedful.evaluation.base import MetricScore
from heedful.evaluation.registry import CAPTION_METRICS, compute_metrics
from heedful.inspection.attention_layers import (
    AttentionLayer,
    Axes,
    collect_layers,
    mark_output_layers,
)
from heedful.inspection.attention_trace import TraceRecord, trace_output
from heedful.models.base import DecodableModel, Seq2SeqModel
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.models.image_encoders import FeatureEncoder, ImageEncoder
from heedful.tasks.captioning.caption import Caption, CaptionBuilder
from heedful.tasks.captioning.images import ImageLoader, ImageRequest, LoadedImage
from heedful.tasks.prediction import format_predictor
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import PAD

_WINDOW = 256  # images in memory at once


class ImageRequestEncoder(RequestEncoder):
    """Encodes requests for images; the source of one is a placeholder for each cell."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig, num_cells: int) -> None:
        super().__init__(tokenizers, config)
        self.num_cells = num_cells

    @override
    def encode_sources(self, requests: Sequence[Request]) -> list[list[int]]:
        return [[PAD] * max(1, self.num_cells - 1) for _ in requests]  # one more is EOS


class Captioner:
    """A trained model with its tokenizer and decoding settings."""

    reads_files: ClassVar = True  # requests may be names of files

    def __init__(
        self,
        model: DecodableModel,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        if isinstance(model, nn.Module):  # the members of an ensemble are accelerated already
            model = accelerate_for_inference(model, device)
        self.model = model
        self.tokenizers = tokenizers
        self.decoding = config
        self.device = device
        encoder = image_encoder_of(model)
        self.grid = encoder.grid
        self.num_cells = encoder.grid[0] * encoder.grid[1]
        self.loader = ImageLoader(encoder.image_shape, _feature_scale(encoder))
        self._request_encoder = ImageRequestEncoder(tokenizers, config, self.num_cells)
        self._builder = CaptionBuilder(tokenizers.target, self.grid)

    def __repr__(self) -> str:
        shape, size = self.loader.shape.describe(), len(self.tokenizers.target)
        return format_predictor(
            self, shape, f"vocabulary {size}", f"beam size {self.decoding.beam_size}"
        )

    @overload
    def caption(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self,
        images: ImageRequest | Request,
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> Caption: ...
    @overload
    def caption(
        self,
        images: Iterable[ImageRequest | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> list[Caption]: ...
    @check_types
    def caption(
        self,
        images: ImageRequest | Request | Iterable[ImageRequest | Request],
        *,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
    ) -> Caption | list[Caption]:
        """Caption an image, or images: files, `FILE#ROW`, or arrays."""
        is_one = isinstance(images, str | Request | np.ndarray) or hasattr(images, "__fspath__")
        requests: Any = [images] if is_one else images
        results = self.predict(requests, beam_size=beam_size, n_best=n_best, need_tree=need_tree)
        return next(results) if is_one else list(results)

    @check_types
    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Caption]:
        """Score given captions, as if a search had found them."""
        return list(self.predict(Request(image, target=target) for image, target in pairs))

    def predict(
        self,
        requests: Iterable[ImageRequest | Request],
        *,
        location: str = "image",
        start_index: int = 1,
        beam_size: int | None = None,
        n_best: int | None = None,
        need_tree: bool = False,
        need_layers: bool = False,
    ) -> Iterator[Caption]:
        """Caption images as they arrive, in order, a bounded number at a time.

        Images are numbered from `start_index`: the samples of one depend on its index.
        """
        config = self.decoding.with_beam_size(beam_size=beam_size, n_best=n_best)
        if need_tree:
            check_search_tree(config, "need_tree")
        stream = iter(requests)
        while window := list(islice(stream, _WINDOW)):
            images = read_all(window, self._load)
            named = [_to_request(*pair) for pair in zip(window, images, strict=True)]
            encoded = self._request_encoder.encode(
                named, location=location, start_index=start_index
            )
            indices = (request.request_index for request in encoded)
            yield from self._caption(
                encoded,
                dict(zip(indices, images, strict=True)),
                config,
                need_tree=need_tree,
                need_layers=need_layers,
            )
            start_index += len(window)

    def predict_with_attention(
        self, requests: Iterable[ImageRequest | Request]
    ) -> Iterator[Caption]:
        """Caption images; the results have the attention weights of each layer."""
        return self.predict(requests, need_layers=True)

    def evaluate(self, examples: Sequence[Any]) -> list[MetricScore]:
        """Caption the images and compute the default metrics against all references."""
        outputs = [result.text for result in self.predict(item.source for item in examples)]
        references = [item.references for item in examples]
        return compute_metrics(outputs, references, CAPTION_METRICS)

    def count_tokens(self, examples: Sequence[CaptionedImage]) -> int:
        """Return the number of caption tokens, EOS included."""
        captions = [caption for example in examples for caption in example.captions]
        return sum(len(ids) + 1 for ids in self.tokenizers.target.encode_batch(captions))

    def _load(self, request: ImageRequest | Request) -> LoadedImage:
        return self.loader.load(request.text if isinstance(request, Request) else request)

    def _caption(
        self,
        requests: list[EncodedRequest],
        images: dict[int, LoadedImage],
        config: DecodingConfig,
        *,
        need_tree: bool,
        need_layers: bool,
    ) -> Iterator[Caption]:
        def collate(batch: Sequence[EncodedRequest]) -> SourceBatch:
            inputs = [images[request.request_index].inputs for request in batch]
            return collate_images(np.stack(inputs), self.num_cells)

        strategy = DecodingStrategy(
            self.model, config, tokenizers=self.tokenizers, device=self.device, collate=collate
        )
        outputs: dict[int, DecodingOutput] = {}
        for batch in batch_requests(requests, config):
            decoded = strategy.decode(batch, need_tree=need_tree)
            outputs |= zip((item.request_index for item in batch), decoded, strict=True)
        for request in requests:
            output = outputs[request.request_index]
            pixels = images[request.request_index].pixels
            caption = self._builder.build(request, output, pixels)
            if need_layers:
                layers = self._trace(collate([request]), output.hypotheses[0].tokens)
                caption = caption._replace(attention_layers=layers)
            yield caption

    @torch.inference_mode()
    def _trace(self, sources: SourceBatch, tokens: list[int]) -> Sequence[AttentionLayer]:
        """Return the attention of each layer while it decodes a caption."""
        if not tokens or not isinstance(self.model, Seq2SeqModel):  # empty, or an ensemble
            return ()
        records = trace_output(self.model, sources, tokens, self.device)
        target, cells = self._builder.token_axis(tokens), self._builder.cell_axis()
        target_inputs = target.shift_right(BOS_LABEL)

        def axes_of(record: TraceRecord) -> Axes | None:
            if record.role == "cross":
                return record.role, target, cells
            part = record.module_path.partition(".")[0]
            if part == "encoder":
                return f"encoder-{record.role}", cells, cells
            return f"decoder-{record.role}", target, target_inputs

        layers = collect_layers(records, axes_of)
        return mark_output_layers(layers, getattr(self.model, "decoder", None))


def image_encoder_of(model: Any) -> ImageEncoder:
    """Return the image encoder of a model, or of the first member of an ensemble."""
    alone = model.model if isinstance(model, ShallowFusion) else model
    first: Any = alone.members[0] if isinstance(alone, Ensemble) else alone
    encoder = first.encoder
    assert isinstance(encoder, ImageEncoder), type(encoder)
    return encoder


def _feature_scale(encoder: ImageEncoder) -> Any:
    """Return step and offset of the codes that an encoder was trained with; None if of none."""
    for module in encoder.modules():
        if isinstance(module, FeatureEncoder):
            if (module.step == 1).all() and (module.offset == 0).all():
                return None  # trained on numbers
            return module.step.float().cpu().numpy(), module.offset.float().cpu().numpy()
    return None


def _to_request(request: ImageRequest | Request, image: LoadedImage) -> Request:
    if isinstance(request, Request):
        return request._replace(text=image.name)
    return Request(image.name)
