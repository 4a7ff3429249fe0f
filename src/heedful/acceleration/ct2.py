"""Search through CTranslate2, an inference library in C++, for standard Transformers on a CPU.

Token ids serve as tokens, so that it needs no tokenizer. Its search stops as soon as `beam_size`
hypotheses have finished, or without a length penalty once none can become better. Invariant: in
fp32 the best output is that of our own search where `is_exact` is true.
"""

import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from heedful.acceleration.cpu.packed_linear import PackedSoftmaxHead
from heedful.acceleration.transformer_step import (
    has_standard_layers,
    multi_head_and_temperature,
)
from heedful.attention.attention import Attention
from heedful.attention.scores import ScaledDotScore
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.sublayers import FeedForward, SublayerConnection
from heedful.layers.transformer import TransformerLayer, TransformerStack
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.output_heads import SoftmaxHead
from heedful.models.transformer import TransformerDecoder, TransformerEncoder
from heedful.search import LengthPenalty
from heedful.search.stopping import StoppingCriterion, heuristic_stopping, optimal_stopping
from heedful.tokenization.vocabulary import BOS, EOS, UNK

MAX_POSITIONS = 2048  # tabulated for sources and outputs; longer ones need our own search
_ACTIVATIONS = {nn.ReLU: "RELU", nn.SiLU: "SWISH"}


def is_installed() -> bool:
    """Whether the package can be imported."""
    return find_spec("ctranslate2") is not None


class BeamOptions(NamedTuple):
    """Options of a search by CTranslate2."""

    beam_size: int
    length_penalty: LengthPenalty
    stopping: StoppingCriterion

    @property
    def is_exact(self) -> bool:
        """Whether the best output is the same as in our own search."""
        has_bound = self.stopping in (heuristic_stopping, optimal_stopping)
        return self.beam_size == 1 or (self.length_penalty.alpha == 0 and has_bound)


class TokenStrings(NamedTuple):
    """Distinct strings for the tokens of source and target, by id."""

    source: Sequence[str]
    target: Sequence[str]


class CTranslate2Search:
    """A converted model."""

    def __init__(self, model: EncoderDecoderModel, *, compute_type: str = "float32") -> None:
        import ctranslate2

        with tempfile.TemporaryDirectory() as folder:
            convert(model, Path(folder))
            self._translator = ctranslate2.Translator(
                folder, compute_type=compute_type, intra_threads=torch.get_num_threads()
            )

    def find_best(
        self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int], options: BeamOptions
    ) -> list[list[int] | None]:
        """Return the best output of each source, both without EOS; None if a limit was reached.

        A greedy output is cut off there, as in our own search; of a beam all would be different.
        """
        beam_size, alpha = options.beam_size, options.length_penalty.alpha
        is_greedy, max_length = beam_size == 1, max(max_lengths)
        if max(max_length, *map(len, sources)) + 1 > MAX_POSITIONS:
            return [None] * len(sources)
        results = self._translator.translate_batch(
            [[*map(str, source), str(EOS)] for source in sources],
            beam_size=beam_size,
            # Without a penalty it ends when the best hypothesis has, with patience not before.
            patience=1 if alpha else 1000,
            num_hypotheses=beam_size if alpha else 1,
            length_penalty=0,
            return_scores=bool(alpha),
            max_input_length=0,
            max_decoding_length=max_length,
            min_decoding_length=0,
        )
        best: list[list[int] | None] = []
        for result, limit in zip(results, max_lengths, strict=True):
            outputs = [list(map(int, tokens)) for tokens in result.hypotheses]
            if alpha:
                scored = zip(result.scores, outputs, strict=True)
                score_of = options.length_penalty
                outputs = [max(scored, key=lambda pair: score_of(pair[0], len(pair[1]) + 1))[1]]
            is_complete = is_greedy or all(len(output) < limit for output in outputs)
            best.append(outputs[0][:limit] if is_complete else None)
        return best


def unsupported_reason(model: nn.Module) -> str | None:
    """Return why CTranslate2 cannot run a model; None if it can."""
    if not isinstance(model, EncoderDecoderModel):
        return "the model is no encoder-decoder"
    if not model.source_eos:
        return "sources must end with EOS"
    encoder, decoder = model.encoder, model.decoder
    if not isinstance(encoder, TransformerEncoder) or not isinstance(decoder, TransformerDecoder):
        return "encoder and decoder must be Transformers"
    if type(decoder.output_head) not in {SoftmaxHead, PackedSoftmaxHead}:
        return "the output head must be a softmax over the vocabulary"
    if not all(map(has_standard_layers, (encoder.stack, decoder.stack))):
        return "layers must have full multi-head softmax attention and one plain feed-forward layer"
    layers = [*encoder.stack.layers, *decoder.stack.layers]
    attentions = [attention for layer in layers for attention in _attentions_of(layer)]
    norms = [module for module in model.modules() if "Norm" in type(module).__name__]
    is_supported = {
        "scores must be scaled dot products": all(map(_is_scaled, attentions)),
        "the activation must be relu or swish": all(
            isinstance(layer.feed_forward, FeedForward)
            and type(layer.feed_forward.activation) in _ACTIVATIONS
            for layer in layers
        ),
        "norms must be layer norms with one epsilon": all(
            type(norm) is nn.LayerNorm for norm in norms
        )
        and len({norm.eps for norm in norms if isinstance(norm, nn.LayerNorm)}) == 1,
        "decoder layers must attend to the top layer of the encoder": not decoder.attends_by_layer,
        "positions must be added to embeddings": all(
            map(_is_plain_embedding, (encoder.embedding, decoder.embedding))
        ),
    }
    return next((reason for reason, is_true in is_supported.items() if not is_true), None)


def _attentions_of(layer: TransformerLayer) -> list[Attention]:
    cross = [] if layer.cross_attention is None else [layer.cross_attention.attention]
    return [layer.self_attention.attention, *cross]


def _is_scaled(attention: Attention) -> bool:
    heads, temperature = multi_head_and_temperature(attention)
    return type(heads.score) is ScaledDotScore and temperature == 1


def _is_plain_embedding(embedding: TokenEmbedding) -> bool:
    combiner = embedding.position_combiner
    has_more = embedding.segment_embedding is not None or embedding.character_encoder is not None
    return combiner is not None and combiner.combine == "add" and not has_more


# ----- conversion


def convert(
    model: EncoderDecoderModel, folder: Path, vocabularies: TokenStrings | None = None
) -> None:
    """Write a model that `unsupported_reason` accepts in CTranslate2's format.

    With vocabularies EOS is appended to sources; without them ids serve as tokens, EOS included.
    """
    from ctranslate2.specs import common_spec, transformer_spec

    encoder: Any = model.encoder
    decoder: Any = model.decoder
    layers = encoder.stack.layers, decoder.stack.layers
    first = layers[1][0]
    spec = transformer_spec.TransformerSpec.from_config(
        tuple(map(len, layers)),
        multi_head_and_temperature(first.self_attention.attention)[0].num_heads,
        pre_norm=first.feed_forward_residual.norm_order == "pre",
        no_final_norm=decoder.stack.norm is None,
        activation=getattr(
            common_spec.Activation, _ACTIVATIONS[type(first.feed_forward.activation)]
        ),
        layernorm_embedding=decoder.embedding.norm is not None,
    )
    embeddings_spec = spec.encoder.embeddings
    _set_stack(spec.encoder, embeddings_spec[0], encoder.embedding, encoder.stack)
    _set_stack(spec.decoder, spec.decoder.embeddings, decoder.embedding, decoder.stack)
    _set_linear(spec.decoder.projection, decoder.output_head.projection)
    spec.config.add_source_eos = vocabularies is not None
    spec.config.layer_norm_epsilon = first.feed_forward_residual.norm.eps
    embeddings = encoder.embedding, decoder.embedding
    source, target = vocabularies or (
        [str(token) for token in range(embedding.embedding.num_embeddings)]
        for embedding in embeddings
    )
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.unk_token, spec.config.eos_token = target[UNK], target[EOS]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def _set_stack(
    spec: Any, embeddings_spec: Any, embedding: TokenEmbedding, stack: TransformerStack
) -> None:
    assert embedding.position_combiner is not None
    embeddings_spec.weight = embedding.embedding.weight.detach()
    spec.scale_embeddings = embedding.scale != 1.0
    positions = torch.arange(MAX_POSITIONS)
    spec.position_encodings.encodings = embedding.position_combiner.encoding(positions).detach()
    if embedding.norm is not None:
        _set_norm(spec.layernorm_embedding, embedding.norm)
    if stack.norm is not None:
        _set_norm(spec.layer_norm, stack.norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        attention, residual = layer.self_attention.attention, layer.self_attention_residual
        _set_attention(layer_spec.self_attention, attention, residual, is_self_attention=True)
        if layer.cross_attention is not None:
            attention, residual = layer.cross_attention.attention, layer.cross_attention.residual
            _set_attention(layer_spec.attention, attention, residual, is_self_attention=False)
        feed_forward: Any = layer.feed_forward
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
        _set_linear(layer_spec.ffn.linear_0, feed_forward.input_projection)
        _set_linear(layer_spec.ffn.linear_1, feed_forward.output_projection)


def _set_attention(
    spec: Any, attention: Attention, residual: SublayerConnection, *, is_self_attention: bool
) -> None:
    heads, _ = multi_head_and_temperature(attention)
    query, key, value = heads.query_projection, heads.key_projection, heads.value_projection
    groups = [[query, key, value]] if is_self_attention else [[query], [key, value]]
    for linear_spec, linears in zip(spec.linear, [*groups, [heads.output_projection]], strict=True):
        _set_linear(linear_spec, *linears)
    _set_norm(spec.layer_norm, residual.norm)


def _set_linear(spec: Any, *linears: nn.Linear) -> None:
    """Join linear maps of the same inputs."""
    spec.weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    if biases:
        spec.bias = torch.cat(biases)


def _set_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = (getattr(norm, name).detach() for name in ("weight", "bias"))
