"""The captioner: a trained model, or an ensemble, that captions images; and its captions.

Invariants: `tokens` and `weights` of a caption have one entry per token, `log_probs` one more for
EOS; a row of weights has one entry per cell, row by row.
"""

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Unpack, override

from heedful.config import check_types
from heedful.data.images.batching import collate_images
from heedful.data.images.image_files import decode_base64_image, read_all
from heedful.data.text.batching import SourceBatch
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest, Request, RequestEncoder
from heedful.decoding.strategies import DecodingOutput
from heedful.decoding.translation import (
    TokenTextMapper,
    display_outputs,
    output_to_json,
    token_axis,
    tree_to_json,
    with_text,
)
from heedful.evaluation.base import Metric
from heedful.evaluation.registry import CAPTION_METRICS, get_metrics
from heedful.inspection.attention_layers import AttentionLayer, TokenAxis, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_selection import AttentionSelection
from heedful.inspection.figures import CaptionAttention, to_caption_attention
from heedful.models.base import DecodableModel
from heedful.models.ensembles import ensemble_members
from heedful.models.image_encoders import FeatureEncoder, ImageEncoder
from heedful.plotting.raster import encode_png
from heedful.search import Hypothesis, Node
from heedful.tasks.captioning.images import ImageLoader, ImageRequest, LoadedImage
from heedful.tasks.prediction import format_predictor, parse_numbers
from heedful.tasks.search_predictor import (
    CopyProbs,
    RequestWindow,
    SearchInputs,
    SearchKeywords,
    SearchOptions,
    SearchPredictor,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import PAD

_DIGITS = 6  # of numbers in JSON


class Caption(NamedTuple):
    """A caption with its score and the attention weights of its tokens."""

    image: str  # its name
    text: str
    score: float  # log-probability after penalties, or expected utility with MBR
    log_prob: float  # model log-probability of all tokens and EOS
    tokens: list[str]
    log_probs: NDArray[np.float64]  # (tokens + 1,), the last of EOS
    weights: NDArray[np.float32]  # (tokens, cells); zeros without attention
    grid: tuple[int, int]
    pixels: NDArray[np.uint8] | None = None  # (H, W, C) as the model sees it
    alternatives: tuple["Caption", ...] = ()  # the next best captions, or further samples
    tree: list[Node[str]] | None = None  # the whole search, if it was requested
    attention_layers: Sequence[AttentionLayer] = ()  # all of the model, if they were requested
    token_ids: Sequence[int] = ()  # for `Request.prefix_tokens`

    @property
    def source(self) -> str:
        """The name of the image."""
        return self.image

    @property
    def source_tokens(self) -> list[str]:
        """The names of the cells."""
        return cell_labels(self.grid)

    @property
    def attention_map(self) -> AttentionMap:
        """The attention weights, ready to be drawn; a column for each cell."""
        return AttentionMap(
            self.source_tokens,
            self.tokens,
            self.weights,
            title=str(self.image),
            output=self.text,
            grid=self.grid,
            image=self.pixels,
        )

    @property
    def attention(self) -> CaptionAttention:
        """Where each word attended, ready to be drawn on the image; with gates if requested."""
        maps = [self.attention_map]
        if any(layer.is_default for layer in self.attention_layers):
            maps = AttentionSelection(joins_words=True).select(self.attention_layers, *maps)
        attention = to_caption_attention(maps[0])
        return replace(attention, caption=self.text, label="")

    @property
    def has_attention(self) -> bool:
        """Whether the model attended to the image."""
        return bool(self.weights.any())

    def to_json(self, *, weights: bool = True, tree: bool = False) -> dict[str, Any]:
        """Return plain values for JSON; docs/captions.md describes each field."""
        fields: dict[str, Any] = {
            "image": str(self.image),
            **self._output_to_json(weights=weights),
            "grid": list(self.grid),
            "alternatives": [
                output._output_to_json(weights=weights) for output in self.alternatives
            ],
        }
        if tree and self.tree is not None:
            fields["tree"] = tree_to_json(self.tree)
        return fields

    def _output_to_json(self, *, weights: bool) -> dict[str, Any]:
        fields = output_to_json(self)
        if weights:
            grids = self.weights.reshape(-1, *self.grid).astype("float64")
            fields["weights"] = grids.round(_DIGITS).tolist()
        return fields


def cell_labels(grid: tuple[int, int]) -> list[str]:
    """Return the names of the cells, row and column counted from 1."""
    rows, columns = grid
    return [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]


class ImageRequestEncoder(RequestEncoder):
    """Encodes requests for images; the source of one is a placeholder for each cell."""

    def __init__(self, tokenizers: TokenizerPair, config: DecodingConfig, num_cells: int) -> None:
        super().__init__(tokenizers, config)
        self.num_cells = num_cells

    @override
    def encode_sources(self, requests: Sequence[Request]) -> list[list[int]]:
        return [[PAD] * max(1, self.num_cells - 1) for _ in requests]  # one more is EOS


@dataclass
class ImageInputs(SearchInputs[Caption]):
    """Images to caption."""

    requests: Sequence[EncodedRequest]
    images: Mapping[int, LoadedImage]  # by index of the request
    grid: tuple[int, int]
    token_texts: TokenTextMapper

    @override
    def collate(self, batch: Sequence[EncodedRequest]) -> SourceBatch:
        inputs = [self.images[request.request_index].inputs for request in batch]
        return collate_images(np.stack(inputs), math.prod(self.grid))

    @override
    def axes(self, request: EncodedRequest, tokens: Sequence[int]) -> tuple[TokenAxis, TokenAxis]:
        cells = without_words(cell_labels(self.grid))._replace(grid=self.grid)
        names = self.token_texts.tokenizer.ids_to_tokens(tokens)
        return cells, token_axis(names, self.token_texts.token_texts(tokens))

    @override
    def build(
        self,
        request: EncodedRequest,
        output: DecodingOutput,
        copy_probs: CopyProbs | None,
        layers: Sequence[AttentionLayer],
    ) -> Caption:
        """Return the first hypothesis with the others as its alternatives."""
        best, *others = (
            self._build_caption(request, hypothesis) for hypothesis in output.hypotheses
        )
        tokenizer, tree = self.token_texts.tokenizer, output.tree
        nodes = None if tree is None else [with_text(node, tokenizer) for node in tree]
        return best._replace(alternatives=tuple(others), tree=nodes, attention_layers=layers)

    def _build_caption(self, request: EncodedRequest, output: Hypothesis) -> Caption:
        text, target = "".join(self.token_texts.token_texts(output.tokens)), request.request.target
        return Caption(
            image=request.request.text,
            text=text if target is None else target,
            score=output.score,
            log_prob=output.log_prob,
            tokens=self.token_texts.tokenizer.ids_to_tokens(output.tokens),
            log_probs=output.log_probs,
            weights=output.weights[:, : math.prod(self.grid)],
            grid=self.grid,
            pixels=self.images[request.request_index].pixels,
            token_ids=output.tokens,
        )


class Captioner(SearchPredictor[ImageRequest | Request, Caption]):
    """A trained model with its tokenizer and decoding settings."""

    request_name = "image"
    reads_files = True
    window_size = 256  # images in memory at once
    input_schema: ClassVar[Mapping[str, Any]] = {
        "type": ["string", "array"],
        "contentEncoding": "base64",
    }

    def __init__(
        self,
        model: DecodableModel,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, tokenizers, config, device=device)
        encoder = image_encoder_of(self.model)
        self.grid = encoder.grid
        self.loader = ImageLoader(encoder.image_shape, _feature_scale(encoder))
        num_cells = math.prod(encoder.grid)
        self._request_encoder = ImageRequestEncoder(tokenizers, config, num_cells)
        self._token_texts = TokenTextMapper(tokenizers.target)

    def __repr__(self) -> str:
        shape, size = self.loader.shape.describe(), len(self.tokenizers.target)
        return format_predictor(
            self, shape, f"vocabulary {size}", f"beam size {self.decoding.beam_size}"
        )

    @property
    def notes(self) -> list[str]:
        """What is unusual about the images that were read."""
        notes = [self.loader.shape.describe_fit(), *self.loader.notes]
        return [note for note in dict.fromkeys(notes) if note]

    @override
    def parse_json(self, value: Any) -> ImageRequest:
        """Return the array of an image in base64, or of lists of pixels or features."""
        shape = self.loader.shape
        if shape.has_pixels and isinstance(value, str):
            return decode_base64_image(value, shape.mode)
        noun = (
            "an image in base64, or lists of its pixels"
            if shape.has_pixels
            else "lists of features"
        )
        return parse_numbers(
            value, is_byte=shape.has_pixels, noun=noun, example=f"for {shape.describe()}"
        )

    @override
    def example(self) -> Any:
        num_channels, height, width, _ = self.loader.shape
        if self.loader.shape.has_pixels:
            return b64encode(encode_png(np.zeros((height, width, 3), np.uint8))).decode()
        return np.zeros((height * width, num_channels)).tolist()

    @override
    def read_file(self, path: str) -> Iterable[ImageRequest]:
        """Return the images of a folder, a feature file or a sheet, or the image."""
        return self.loader.expand([path])

    @overload
    def caption(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self, images: ImageRequest | Request, **options: Unpack[SearchKeywords]
    ) -> Caption: ...
    @overload
    def caption(
        self, images: Iterable[ImageRequest | Request], **options: Unpack[SearchKeywords]
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
        options = SearchOptions(beam_size=beam_size, n_best=n_best, need_tree=need_tree)
        results = self.predict(requests, options)
        return next(results) if is_one else list(results)

    @override
    def token_names(self, request: ImageRequest | Request, ids: Sequence[int]) -> list[str]:
        return display_outputs(ids, self.tokenizers.target)

    @override
    def encode(self, window: RequestWindow[ImageRequest | Request]) -> ImageInputs:
        requests, _, location, start_index, _ = window
        images = read_all(requests, self._load)
        named = [_to_request(*pair) for pair in zip(requests, images, strict=True)]
        encoded = self._request_encoder.encode(named, location=location, start_index=start_index)
        loaded = dict(enumerate(images, start_index))
        return ImageInputs(encoded, loaded, self.grid, self._token_texts)

    @override
    def default_metrics(self, references: Sequence[Sequence[str]]) -> Sequence[Metric]:
        return get_metrics(CAPTION_METRICS)

    def _load(self, request: ImageRequest | Request) -> LoadedImage:
        return self.loader.load(request.text if isinstance(request, Request) else request)


def image_encoder_of(model: Any) -> ImageEncoder:
    """Return the image encoder of a model, or of the first member of an ensemble."""
    first: Any = ensemble_members(model)[0]
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
