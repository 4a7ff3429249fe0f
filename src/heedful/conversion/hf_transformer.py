"""Encoder-decoder Transformers of Hugging Face that share their tensor names: Marian and BART.

Tables and settings are written once, for import and export. Invariant: hidden states, attention
weights and log-probabilities are equal.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.conversion.hf_folder import CONFIG, HFFolder
from heedful.conversion.importing import has_run_files, read_exported_run
from heedful.conversion.interface import (
    ImportedRun,
    build_recipe,
    expected_weights,
    transformer_settings,
)
from heedful.conversion.tensor_names import (
    TensorRule,
    TensorTable,
    VocabularyOrder,
    affine,
    attention_rules,
    identity_order,
    layout_of_one,
    nested,
    tensor,
)
from heedful.errors import DataError, check
from heedful.layers.sublayers import Activation
from heedful.tokenization.tokenizer_pair import TokenizerPair

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "swish": "swish",
    "silu": "swish",
}
"""Their names of activations, the first of each for export."""
NORM_EPS = 1e-5  # of nn.LayerNorm, which has no setting there
SHARED, HEAD = "model.shared.weight", "lm_head.weight"
ENCODER_TABLE, DECODER_TABLE = (
    f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")
)
POSITIONS = r"model\.(en|de)coder\.embed_positions\.weight"

NUM_UNUSED_POSITIONS = 2
LEARNED_POSITIONS = layout_of_one(
    lambda native: torch.cat([native.new_zeros(NUM_UNUSED_POSITIONS, native.size(1)), native]),
    lambda foreign: foreign[NUM_UNUSED_POSITIONS:],
)
"""A position table of BART begins with two unused rows."""

# ----- tensor names


_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def _layer(*, is_decoder: bool) -> list[TensorRule]:
    cross = [
        *attention_rules("cross_attention.attention", "encoder_attn", _ATTENTION),
        *affine("cross_attention.residual.norm", "encoder_attn_layer_norm"),
    ]
    return [
        *attention_rules("self_attention.attention", "self_attn", _ATTENTION),
        *affine("self_attention_residual.norm", "self_attn_layer_norm"),
        *(cross if is_decoder else ()),
        *affine("feed_forward.input_projection", "fc1"),
        *affine("feed_forward.output_projection", "fc2"),
        *affine("feed_forward_residual.norm", "final_layer_norm"),
    ]


def tensor_table(source: VocabularyOrder, target: VocabularyOrder) -> TensorTable:
    """Return the names of all tensors."""
    rules = [
        tensor("decoder.output_head.projection.weight", HEAD, target.table_layout),
        tensor("decoder.output_head.projection.bias", "final_logits_bias", target.bias_layout),
    ]
    for side, order in (("encoder", source), ("decoder", target)):
        inner = [
            tensor("embedding.embedding.weight", "embed_tokens.weight", order.table_layout),
            tensor(
                "embedding.position_combiner.encoding.embedding.weight",
                "embed_positions.weight",
                LEARNED_POSITIONS,
            ),
            *affine("embedding.norm", "layernorm_embedding"),
            *nested("stack.layers.*.", "layers.*.", _layer(is_decoder=side == "decoder")),
        ]
        rules += nested(f"{side}.", f"model.{side}.", inner)
    return TensorTable(rules)


# ----- import


def read_reexported(folder: HFFolder, stored: Mapping[str, Tensor]) -> ImportedRun | None:
    """Return the run that a folder was exported from; None if it comes from elsewhere."""
    if not has_run_files(folder.path):
        return None
    tensors = with_all_tables(folder, stored)
    return read_exported_run(
        folder.path,
        tensors,
        lambda source, target: tensor_table(identity_order(source), identity_order(target)),
    )


class Vocabularies(NamedTuple):
    """The tokenizers of a folder and the order of their ids."""

    tokenizers: TokenizerPair
    settings: dict[str, Any]  # of `tokenizers` in a recipe
    source: VocabularyOrder
    target: VocabularyOrder


def special_token_ids(folder: HFFolder) -> dict[str, int]:
    """Return the ids of PAD, EOS and the token that decoders read first."""
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    pad, eos, start = (folder.setting(name, int) for name in names)
    return {"pad": pad, "eos": eos, "decoder_start": start}


def check_architecture(folder: HFFolder, allowed: tuple[str, ...]) -> None:
    """Raise DataError if the model is another than these, such as a classifier."""
    architectures = folder.config.get("architectures") or list(allowed[:1])
    name = str(architectures[0])
    message = f"the architecture is {name}, which cannot be imported"
    hint = f"these can be imported from this model_type: {', '.join(allowed)}"
    check(name in allowed, str(folder.path / CONFIG), message, hint, DataError)


def read_seq2seq(
    folder: HFFolder,
    stored: Mapping[str, Tensor],
    vocabularies: Vocabularies,
    *,
    encoder_and_decoder: Mapping[str, Any],
    summary: str,
) -> ImportedRun:
    """Return the run of stored tensors; settings of both sides are added to those that all have."""
    tensors = with_all_tables(folder, stored)
    recipe = build_recipe(
        {
            "info": {"name": folder.path.name, "summary": summary},
            "tokenizers": vocabularies.settings,
            "model": {
                **{
                    side: {**_side_settings(folder, side), **encoder_and_decoder}
                    for side in ("encoder", "decoder")
                },
                "embeddings": _embedding_sharing(tensors, vocabularies),
            },
            "decoding": decoding_settings(folder, vocabularies),
        },
        location=str(folder.path / CONFIG),
    )
    location = str(folder.path)
    expected = expected_weights(recipe, vocabularies.tokenizers, tensors, location=location)
    table = tensor_table(vocabularies.source, vocabularies.target)
    ignored = [SHARED, ENCODER_TABLE, DECODER_TABLE, HEAD]  # tied ones are read once
    ignored += [POSITIONS] if recipe.model.encoder.positional_encoding.type == "sinusoidal" else []
    weights = table.import_tensors(tensors, expected, location=location, ignored=ignored)
    return ImportedRun(recipe, vocabularies.tokenizers, weights)


def _normalized_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors named as in a model with an output layer."""
    has_prefix = any(name.startswith("model.") for name in tensors)
    bare = ("encoder.", "decoder.", "shared.")
    return {
        f"model.{name}" if not has_prefix and name.startswith(bare) else name: value
        for name, value in tensors.items()
    }


def with_all_tables(folder: HFFolder, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add tensors that are stored once: both embedding tables, the output layer, and its bias."""
    tensors = _normalized_names(stored)
    for name in (ENCODER_TABLE, DECODER_TABLE):
        if name not in tensors and SHARED in tensors:
            tensors[name] = tensors[SHARED]
    is_tied = folder.setting("tie_word_embeddings", bool, True)
    if DECODER_TABLE in tensors and (is_tied or HEAD not in tensors):
        check(is_tied, str(folder.path), f"the tensor {HEAD} is missing", _MISSING_HINT, DataError)
        tensors[HEAD] = tensors[DECODER_TABLE]
    if HEAD in tensors:
        tensors.setdefault("final_logits_bias", torch.zeros(1, len(tensors[HEAD])))
    return tensors


_MISSING_HINT = "download or write the folder again; nothing was written"


def _embedding_sharing(tensors: Mapping[str, Tensor], vocabularies: Vocabularies) -> str:
    source, target, head = (tensors.get(name) for name in (ENCODER_TABLE, DECODER_TABLE, HEAD))
    if head is None or head is not target:
        return "separate"
    has_one_order = vocabularies.source == vocabularies.target
    return "shared" if source is target and has_one_order else "tied"


def read_activation(folder: HFFolder, name: str, default: str = "gelu") -> Activation:
    """Return the activation that a setting names."""
    activation = folder.setting(name, str, default)
    message = f"{name} is {activation!r}, which is not known here"
    hint = f"these are: {', '.join(ACTIVATIONS)}"
    check(activation in ACTIVATIONS, str(folder.path / CONFIG), message, hint, DataError)
    return ACTIVATIONS[activation]


def _side_settings(folder: HFFolder, side: str) -> dict[str, Any]:
    activation = read_activation(folder, "activation_function")
    return transformer_settings(
        {
            "hidden_size": folder.setting("d_model", int),
            "num_layers": folder.setting(f"{side}_layers", int),
            "norm_eps": NORM_EPS,
            "dropout": folder.setting("dropout", float, 0.1),
            "scale_embeddings": folder.setting("scale_embedding", bool, False),
        },
        heads={"num_heads": folder.setting(f"{side}_attention_heads", int)},
        attention_dropout=folder.setting("attention_dropout", float, 0.0),
        feed_forward={
            "intermediate_size": folder.setting(f"{side}_ffn_dim", int),
            "activation": activation,
            "dropout": folder.setting("activation_dropout", float, 0.0),
        },
    )


# ----- decoding

_UNSUPPORTED = {  # settings of generation that must be at their defaults
    "do_sample": False,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "num_beam_groups": 1,
    "force_words_ids": None,
    "begin_suppress_tokens": None,
    "encoder_no_repeat_ngram_size": 0,
}
_STOPPING = {False: "heuristic", True: "first-finished", "never": "optimal"}
_DEFAULT_MAX_LENGTH = 20  # of generation there


def decoding_settings(folder: HFFolder, vocabularies: Vocabularies) -> dict[str, Any]:
    """Return the settings of a search that gives the outputs of `generate`."""
    generation = folder.generation_config
    location = str(folder.path / "generation_config.json")
    for name, default in _UNSUPPORTED.items():
        value = generation.get(name)
        message = f"{name} is {value!r}, which searches here do not have"
        hint = "remove it, and set it when decoding"
        check(value in (None, default), location, message, hint, DataError)
    vocab_ids = vocabularies.target.vocab_ids()
    words = [list(word) for word in generation.get("bad_words_ids") or []]
    message = "bad_words_ids has a word of several tokens"
    hint = "remove it, and forbid it with --set decoding.forbidden_phrases"
    check(all(len(word) == 1 for word in words), location, message, hint, DataError)
    suppressed = [*(word[0] for word in words), *(generation.get("suppress_tokens") or [])]
    forced_bos = generation.get("forced_bos_token_id")
    positions = folder.setting("max_position_embeddings", int, 1024)
    max_length = generation.get("max_length") or _DEFAULT_MAX_LENGTH
    return {
        "beam_size": generation.get("num_beams") or 1,
        "length_penalty": {"type": "power", "alpha": generation.get("length_penalty", 1.0)},
        "stopping": _STOPPING[generation.get("early_stopping") or False],
        # Theirs counts the first token and EOS.
        "max_length": max(1, min(max_length, positions) - 2),
        "max_length_ratio": 1000,
        "min_length": max(0, (generation.get("min_length") or 0) - 1),
        "max_source_length": positions - 1,
        "no_repeat_ngram_size": generation.get("no_repeat_ngram_size") or 0,
        "suppress_tokens": sorted(vocab_ids[token] for token in set(suppressed)),
        "forced_bos_token_id": None if forced_bos is None else vocab_ids[forced_bos],
    }
