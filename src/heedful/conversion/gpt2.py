"""GPT-2 of Hugging Face as a language model.

Texts begin with <|endoftext|>, which is BOS and EOS there and EOS here. Invariant: the
log-probabilities of all tokens equal those of the library.
"""

from collections.abc import Mapping
from typing import Any

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
    NO_ROW,
    TRANSPOSED,
    TensorLayout,
    TensorRule,
    TensorTable,
    VocabularyOrder,
    affine,
    concatenated,
    nested,
    tensor,
)
from heedful.errors import DataError, RunError, check
from heedful.recipes import Recipe
from heedful.tokenization.tokenizer_pair import TokenizerPair

_PREFIX = "transformer."  # of all tensors but the output layer
_HEAD, _BIAS = "lm_head.weight", "lm_head.bias"
_TABLE = "wte.weight"
_IGNORED = (r"h\.\d+\.attn\.(masked_)?bias",)
_SUPPORTED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
_PROJECTIONS = ("query", "key", "value")
_QUERY_KEY_VALUE = TensorLayout(
    lambda native: torch.cat(list(native)).T.contiguous(), lambda foreign: foreign.T.chunk(3)
)


def tensor_table(order: VocabularyOrder) -> TensorTable:
    """Return the names of all tensors."""
    attention = "self_attention.attention"
    projections = [f"{attention}.{name}_projection" for name in _PROJECTIONS]
    layer = [
        *affine("self_attention_residual.norm", "ln_1"),
        TensorRule(
            tuple(f"{name}.weight" for name in projections), "attn.c_attn.weight", _QUERY_KEY_VALUE
        ),
        TensorRule(
            tuple(f"{name}.bias" for name in projections), "attn.c_attn.bias", concatenated(3)
        ),
        *affine(f"{attention}.output_projection", "attn.c_proj", TRANSPOSED),
        *affine("feed_forward_residual.norm", "ln_2"),
        *affine("feed_forward.input_projection", "mlp.c_fc", TRANSPOSED),
        *affine("feed_forward.output_projection", "mlp.c_proj", TRANSPOSED),
    ]
    return TensorTable(
        [
            tensor("embedding.embedding.weight", _TABLE, order.table_layout),
            tensor("embedding.position_combiner.encoding.embedding.weight", "wpe.weight"),
            *nested("backbone.stack.layers.*.", "h.*.", layer),
            *affine("backbone.stack.norm", "ln_f"),
            tensor("lm_head.weight", _HEAD, order.table_layout),
            tensor("lm_head.bias", _BIAS, order.bias_layout),
        ]
    )


def read_run(folder: HFFolder) -> ImportedRun:
    """Read a language model; raise DataError if it is not understood."""
    for name, value in _SUPPORTED.items():
        actual = folder.config.get(name, value)
        message = f"{name} is {actual!r}, which the language model here does not have"
        hint = "use a model without it; nothing was written"
        check(actual == value, str(folder.path / CONFIG), message, hint, DataError)
    tokenizer, order = _read_vocabulary(folder)
    shared = tokenizer.build(order.tokens(tokenizer.tokens))
    tokenizers = TokenizerPair(shared, shared)
    tensors = _with_head(folder, folder.read_tensors())
    is_tied = tensors[_HEAD] is tensors[_TABLE]
    recipe = _recipe(folder, tokenizer.config.model_dump(mode="json"), is_tied=is_tied)
    expected = expected_weights(recipe, tokenizers, tensors, location=str(folder.path))
    ignored = [*_IGNORED, _HEAD]
    weights = tensor_table(order).import_tensors(
        tensors, expected, location=str(folder.path), ignored=ignored
    )
    return ImportedRun(recipe, tokenizers, weights, original_files=folder.small_files)


def _read_vocabulary(folder: HFFolder) -> tuple[HFTokenizer, VocabularyOrder]:
    tokenizer = read_hf_tokenizer(folder, vocab_size=folder.setting("vocab_size", int))
    require_special_tokens(tokenizer, folder, ["eos_token"])
    eos, size = tokenizer.special_ids["eos_token"], len(tokenizer.tokens)
    others = [row for row in range(size) if row != eos]
    return tokenizer, VocabularyOrder((NO_ROW, NO_ROW, eos, eos, *others), size)


def read_order(folder: HFFolder) -> VocabularyOrder:
    """Return the row of each of our ids."""
    return _read_vocabulary(folder)[1]


def export_tensors(folder: HFFolder, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of GPT2LMHeadModel for the weights of a run imported from `folder`."""
    tensors = tensor_table(read_order(folder)).export_tensors(weights)
    message = "training has changed the bias of the output layer, and GPT-2 has none"
    hint = "train with `model.lm_head_bias: fixed`, or export it with --to safetensors"
    check(not tensors.pop(_BIAS).any(), str(folder.path), message, hint, RunError)
    return {name if name == _HEAD else _PREFIX + name: value for name, value in tensors.items()}


def _with_head(folder: HFFolder, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors without the prefix of the backbone, with an output layer and bias."""
    tensors = {name.removeprefix(_PREFIX): value for name, value in stored.items()}
    hint = "download or write the folder again; nothing was written"
    message = f"the tensor {_TABLE} is missing"
    check(_TABLE in tensors, str(folder.path), message, hint, DataError)
    is_tied = folder.setting("tie_word_embeddings", bool, True)
    message = f"the tensor {_HEAD} is missing"
    check(is_tied or _HEAD in tensors, str(folder.path), message, hint, DataError)
    if is_tied:
        tensors[_HEAD] = tensors[_TABLE]
    return {**tensors, _BIAS: torch.zeros(1, len(tensors[_HEAD]))}


def _recipe(folder: HFFolder, tokenizer: dict[str, Any], *, is_tied: bool) -> Recipe:
    activation = read_activation(folder, "activation_function", "gelu_new")
    size, positions = (folder.setting(name, int) for name in ("n_embd", "n_positions"))
    backbone = transformer_settings(
        {
            "hidden_size": size,
            "num_layers": folder.setting("n_layer", int),
            "norm_order": "pre",
            "norm_eps": folder.config.get("layer_norm_epsilon", 1e-5),
            "dropout": folder.config.get("resid_pdrop", 0.1),
        },
        heads={"num_heads": folder.setting("n_head", int)},
        attention_dropout=folder.config.get("attn_pdrop", 0.1),
        feed_forward={
            "intermediate_size": folder.setting("n_inner", int, 4 * size),
            "activation": activation,
        },
    )
    return build_recipe(
        {
            "info": {"name": folder.path.name, "summary": f"GPT-2 of {folder.path.name}"},
            "tokenizers": {"type": "shared", "tokenizer": tokenizer},
            "data": {"lm_batching": {"context_length": positions}},
            "model": {
                "type": "language-model",
                "embedding_size": size,
                "positional_encoding": {"type": "learned", "max_positions": positions},
                "tie_embeddings": is_tied,
                "lm_head_bias": "fixed",
                "dropout": folder.config.get("embd_pdrop", 0.1),
                "output_dropout": 0.0,
                "backbone": backbone,
            },
        },
        location=str(folder.path / CONFIG),
    )
