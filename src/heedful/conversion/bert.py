"""BERT, RoBERTa and DistilBERT of Hugging Face: masked language models, or only their encoders.

MiniLM and many sentence encoders are also BERT. The encoder is heedful's: post-norm layers, learned
positions, segments (token types) and a norm of the embeddings. Invariant: hidden states, attention
weights and logits equal those of the library.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.conversion.hf_folder import CONFIG, HFFolder
from heedful.conversion.hf_tokenizers import HFTokenizer, read_hf_tokenizer, require_special_tokens
from heedful.conversion.hf_transformer import read_activation
from heedful.conversion.interface import (
    ImportedRun,
    build_recipe,
    expected_weights,
    transformer_settings,
)
from heedful.conversion.tensor_names import (
    TensorLayout,
    TensorRule,
    TensorTable,
    VocabularyOrder,
    affine,
    layout_of_one,
    nested,
    tensor,
)
from heedful.errors import DataError, check
from heedful.recipes import Recipe
from heedful.tokenization.tokenizer_pair import TokenizerPair

_SPECIAL_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_REMEDY = "use a model without it; nothing was written"
_OTHER_HEADS = (r"pooler\..*", r"cls\.seq_relationship\..*", r"classifier\..*", r"qa_outputs\..*")
_IGNORED = (*_OTHER_HEADS, r"pre_classifier\..*", r"embeddings\.position_ids")
_SUPPORTED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


class _Architecture(NamedTuple):
    """Differences of the three model types: settings of config.json, and tensor names."""

    title: str
    settings: Mapping[str, str]
    """Their names of sizes."""
    layers: str
    layer_names: Mapping[str, str]
    """Names of the parts of a layer in the library, by their names here."""
    head: tuple[str, str, str]
    """Their names of the dense layer, the norm and the bias of the masked-LM head."""
    tied_weights: tuple[str, ...]
    """Copies of the embedding table and the bias that a file may also have."""
    counts_positions_from_padding: bool = False
    """Whether the first position follows the id of padding, so that rows before it are unused."""

    def num_unused_positions(self, folder: HFFolder) -> int:
        """Return the number of rows before that of the first position."""
        is_shifted = self.counts_positions_from_padding
        return folder.setting("pad_token_id", int, 1) + 1 if is_shifted else 0


def _bert_layer(attention: str) -> dict[str, str]:
    inner = {name: f"{attention}.self.{name}" for name in ("query", "key", "value")}
    return {
        **{f"self_attention.attention.{native}_projection": name for native, name in inner.items()},
        "self_attention.attention.output_projection": f"{attention}.output.dense",
        "self_attention_residual.norm": f"{attention}.output.LayerNorm",
        "feed_forward.input_projection": "intermediate.dense",
        "feed_forward.output_projection": "output.dense",
        "feed_forward_residual.norm": "output.LayerNorm",
    }


_BERT_SETTINGS = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
_DISTILBERT_SETTINGS = {
    "hidden_size": "dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
_ROBERTA_HEAD = ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
_BERT_TRANSFORM = "cls.predictions.transform"
_ARCHITECTURES = {
    "bert": _Architecture(
        "BERT",
        _BERT_SETTINGS,
        "encoder.layer.",
        _bert_layer("attention"),
        (f"{_BERT_TRANSFORM}.dense", f"{_BERT_TRANSFORM}.LayerNorm", "cls.predictions.bias"),
        ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
    ),
    "roberta": _Architecture(
        "RoBERTa",
        _BERT_SETTINGS,
        "encoder.layer.",
        _bert_layer("attention"),
        _ROBERTA_HEAD,
        ("lm_head.decoder.weight", "lm_head.decoder.bias"),
        counts_positions_from_padding=True,
    ),
    "distilbert": _Architecture(
        "DistilBERT",
        _DISTILBERT_SETTINGS,
        "transformer.layer.",
        {
            **{
                f"self_attention.attention.{native}_projection": f"attention.{foreign}_lin"
                for native, foreign in {
                    "query": "q",
                    "key": "k",
                    "value": "v",
                    "output": "out",
                }.items()
            },
            "self_attention_residual.norm": "sa_layer_norm",
            "feed_forward.input_projection": "ffn.lin1",
            "feed_forward.output_projection": "ffn.lin2",
            "feed_forward_residual.norm": "output_layer_norm",
        },
        ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        ("vocab_projector.weight",),
    ),
}


def tensor_table(
    architecture: _Architecture, order: VocabularyOrder, num_unused_positions: int = 0
) -> TensorTable:
    """Return the names of all tensors of a masked language model."""
    dense, norm, bias = architecture.head
    embeddings = [
        tensor("embedding.weight", "word_embeddings.weight", order.table_layout),
        tensor(
            "position_combiner.encoding.embedding.weight",
            "position_embeddings.weight",
            _without_first_rows(num_unused_positions),
        ),
        tensor("segment_embedding.weight", "token_type_embeddings.weight"),
        *affine("norm", "LayerNorm"),
    ]
    layer: list[TensorRule] = []
    for native, foreign in architecture.layer_names.items():
        layer += affine(native, foreign)
    return TensorTable(
        [
            *nested("encoder.embedding.", "embeddings.", embeddings),
            *nested("encoder.stack.layers.*.", f"{architecture.layers}*.", layer),
            *affine("head.0", dense),
            *affine("head.2", norm),
            tensor("projection.bias", bias, order.table_layout),
        ]
    )


def _without_first_rows(count: int) -> TensorLayout:
    def pack(native: Tensor) -> Tensor:
        return torch.cat([native.new_zeros(count, *native.shape[1:]), native]) if count else native

    return layout_of_one(pack, lambda foreign: foreign[count:])


def read_run(folder: HFFolder) -> ImportedRun:
    """Read a masked language model; raise DataError for an encoder without its output layer."""
    imported = read_encoder(folder)
    architecture = _ARCHITECTURES[folder.model_type]
    dense = f"{architecture.head[0]}.weight"
    message = f"has no masked-LM head: the tensor {dense} is missing"
    hint = f"use it as an encoder: `encoder: {{type: pretrained, path: {folder.path}}}`"
    has_head = any(name.startswith("head.") for name in imported.weights)
    check(has_head, str(folder.path), message, hint, DataError)
    activation = folder.setting(architecture.settings["activation"], str, "gelu")
    message = f"{architecture.settings['activation']} is {activation!r}; the head here has GELU"
    is_gelu = activation == "gelu" or architecture.title == "RoBERTa"
    check(is_gelu, str(folder.path / CONFIG), message, hint, DataError)
    return imported


def read_encoder(folder: HFFolder) -> ImportedRun:
    """Read the run of a masked language model, whose output layer may be missing."""
    architecture = _ARCHITECTURES[folder.model_type]
    for name, value in _SUPPORTED.items():
        actual = folder.config.get(name, value)
        message = f"{name} is {actual!r}, which the encoder here does not have"
        check(actual in (value, None), str(folder.path / CONFIG), message, _REMEDY, DataError)
    tokenizer, order = _read_vocabulary(folder)
    masking = {"mask_token": tokenizer.tokens[order.rows[-1]], "mask_lstrip": tokenizer.mask_lstrip}
    tokenizer = tokenizer._replace(config=tokenizer.config.model_copy(update=masking))
    shared = tokenizer.build(order.tokens(tokenizer.tokens)[:-1])
    recipe = _recipe(folder, architecture, tokenizer.config.model_dump(mode="json"))
    tokenizers = TokenizerPair(shared, shared)
    tensors = _normalized_names(folder.read_tensors(), folder.model_type)
    has_head = f"{architecture.head[0]}.weight" in tensors
    expected = expected_weights(recipe, tokenizers, tensors, location=str(folder.path))
    if not has_head:
        expected = {name: t for name, t in expected.items() if name.startswith("encoder.")}
    table = tensor_table(architecture, order, architecture.num_unused_positions(folder))
    weights = table.import_tensors(
        tensors,
        expected,
        location=str(folder.path),
        ignored=[*_IGNORED, *architecture.tied_weights],
    )
    return ImportedRun(recipe, tokenizers, weights, original_files=folder.small_files)


def _read_vocabulary(folder: HFFolder) -> tuple[HFTokenizer, VocabularyOrder]:
    """Return the tokenizer and the row of each of our ids, of which the last is the mask."""
    tokenizer = read_hf_tokenizer(folder, vocab_size=folder.setting("vocab_size", int))
    require_special_tokens(tokenizer, folder, _SPECIAL_TOKENS)
    pad, unk, cls, sep, mask = (tokenizer.special_ids[name] for name in _SPECIAL_TOKENS)
    special, size = {pad, unk, cls, sep, mask}, len(tokenizer.tokens)
    others = [row for row in range(size) if row not in special]
    return tokenizer, VocabularyOrder((pad, unk, cls, sep, *others, mask), size)


def read_order(folder: HFFolder) -> VocabularyOrder:
    """Return the row of each of our ids."""
    return _read_vocabulary(folder)[1]


def export_tensors(folder: HFFolder, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of their masked language model for the weights of a run.

    Rows before the first position, which no token has, are zero.
    """
    architecture = _ARCHITECTURES[folder.model_type]
    num_unused = architecture.num_unused_positions(folder)
    tensors = tensor_table(architecture, read_order(folder), num_unused).export_tensors(weights)
    prefix = f"{folder.model_type}."
    is_head = {name: name.startswith(architecture.head) for name in tensors}
    return {name if is_head[name] else prefix + name: value for name, value in tensors.items()}


def _normalized_names(tensors: Mapping[str, Tensor], model_type: str) -> dict[str, Tensor]:
    """Return tensors without the prefix of the encoder and with torch's names of norms."""

    def rename(name: str) -> str:
        inner = name.removeprefix(f"{model_type}.")
        return inner.replace(".gamma", ".weight").replace(".beta", ".bias")

    return {rename(name): value for name, value in tensors.items()}


def _recipe(folder: HFFolder, architecture: _Architecture, tokenizer: dict[str, Any]) -> Recipe:
    def setting(name: str) -> int:
        return folder.setting(architecture.settings[name], int)

    activation = read_activation(folder, architecture.settings["activation"])
    positions = folder.setting("max_position_embeddings", int)
    positions -= architecture.num_unused_positions(folder)
    has_segments = architecture.title != "DistilBERT"
    encoder = transformer_settings(
        {
            "hidden_size": setting("hidden_size"),
            "num_layers": setting("num_layers"),
            "norm_eps": folder.config.get("layer_norm_eps", 1e-12) if has_segments else 1e-12,
            "dropout": folder.config.get(architecture.settings["dropout"], 0.1),
            "positional_encoding": {"type": "learned", "max_positions": positions},
            "scale_embeddings": False,
            "embedding_norm": True,
            "num_segments": folder.setting("type_vocab_size", int, 2) if has_segments else 0,
        },
        heads={"num_heads": setting("num_heads")},
        attention_dropout=folder.config.get(architecture.settings["attention_dropout"], 0.1),
        feed_forward={"intermediate_size": setting("intermediate_size"), "activation": activation},
    )
    return build_recipe(
        {
            "info": {
                "name": folder.path.name,
                "summary": f"{architecture.title} of {folder.path.name}",
            },
            "tokenizers": {"type": "shared", "tokenizer": tokenizer},
            "data": {"lm_batching": {"context_length": max(2, positions - 1)}},
            "model": {"type": "masked-language-model", "prepend_bos": True, "encoder": encoder},
        },
        location=str(folder.path / CONFIG),
    )
