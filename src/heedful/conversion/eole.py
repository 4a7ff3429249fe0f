"""Model folders of Eole 0.6, the successor of OpenNMT-py: config.json, vocab.json and safetensors.

It computes what OpenNMT-py computes, with other names and settings in sections: a setting of the
encoder or decoder wins over one of the model. A table that is shared is in the file only once.
"""

import re
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.conversion.checkpoint_rules import CheckpointSettings, Side, build_run
from heedful.conversion.hf_folder import CONFIG, HFFolder, read_safetensors
from heedful.conversion.interface import ImportedRun, transformer_settings
from heedful.conversion.opennmt import (
    ATTENTION_NAMES,
    DECODING,
    HEAD,
    HEAD_BIAS,
    embedding_sharing,
    read_dropout,
    read_side,
    read_transforms,
    recurrent_model,
    table_rules,
)
from heedful.conversion.tensor_names import TensorRule, affine, attention_rules, nested
from heedful.errors import DataError, check
from heedful.storage.json_files import read_json

_VOCAB, _WEIGHTS = "vocab.json", "model.00.safetensors"
_SOURCE_TABLE, _TARGET_TABLE = "src_emb.embeddings.weight", "tgt_emb.embeddings.weight"
_IGNORED = [
    *(_SOURCE_TABLE, _TARGET_TABLE, HEAD, r"(src|tgt)_emb\.pe\.pe"),
    r"decoder\.transformer_layers\.\d+\.layer_scalar",  # has an effect with ffn_layernorm only
]
_POSITIONS = "position_encoding_type"
_ACTIVATIONS = {  # and whether they are gated
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu-tanh": ("gelu-tanh", False),
    "silu": ("swish", False),
    "gated-gelu": ("gelu", True),
    "gated-gelu-tanh": ("gelu-tanh", True),
    "gated-silu": ("swish", True),
}
_UNSUPPORTED = {  # settings that must be off, by section
    "model": ("add_estimator",),
    "training": (
        *("lora_layers", "lora_embedding", "quant_layers"),
        *("freeze_encoder", "freeze_decoder"),  # their tensors are not in the file
    ),
    "side": (
        *("sliding_window", "relative_positions_buckets", "ffn_layernorm", "parallel_residual"),
        *("query_norm", "key_norm", "value_norm", "attn_scaling", "q_gating", "num_experts"),
        *("layer_types", "global_head_dim", "num_mtp_heads", "coverage_attn", "context_gate"),
    ),
}
_DECODER_OPTIONS = ("global_attention", "global_attention_function", "input_feed")
_SEARCH_NOTE = (
    "decoding has the defaults of eole predict (beam 5, length_penalty avg, max_length_ratio 2): "
    "set others with --set decoding"
)


def can_read(path: Path) -> bool:
    """Whether a folder has the weights or the settings of a model of Eole."""
    if (path / _WEIGHTS).is_file() and (path / CONFIG).is_file():
        return True
    try:
        config = read_json(path / CONFIG)
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and isinstance(config.get("model"), dict)


def read_run(path: Path) -> ImportedRun:
    """Return the run of a folder."""
    folder = HFFolder(path)
    config = CheckpointSettings(folder.config, str(path / CONFIG))
    model, training = config.section("model"), config.section("training", is_needed=False)
    model.require_one_of("architecture", ("transformer", "rnn", "custom"))
    model.require_one_of("generator_function", ("softmax",))
    model.require_off(*_UNSUPPORTED["model"])
    training.require_off(*_UNSUPPORTED["training"])
    notes = [_SEARCH_NOTE]
    tensors = _read_tensors(path, model)
    sides = _read_sides(folder, config, notes)
    decoder = _read_section(model, "decoder")
    decoder.require_one_of("decoder_type", ("transformer", "rnn"))
    is_recurrent = decoder.get("decoder_type", str) == "rnn"
    read_model = _recurrent_model if is_recurrent else _transformer_model
    settings, rules = read_model(model, training, tensors)
    settings["decoder"]["output_head"] = {"type": "softmax", "bias": HEAD_BIAS in tensors}
    summary = f"Eole, {'recurrent' if is_recurrent else 'Transformer'}"
    recipe = {
        "info": {"name": path.resolve().name, "summary": summary},
        "model": {**settings, "embeddings": embedding_sharing(model, notes), "source_eos": False},
        "decoding": {**DECODING, "max_length_ratio": 2.0},
    }
    rules += table_rules(sides, _SOURCE_TABLE, _TARGET_TABLE)
    return build_run(path, recipe, sides, rules, tensors, ignored=_IGNORED, notes=notes)


def _read_section(model: CheckpointSettings, name: str) -> CheckpointSettings:
    """Return the settings of the encoder or decoder, with those of the model beneath them."""
    section = model.section(name)
    return CheckpointSettings({**model.values, **section.values}, section.location, section.prefix)


def _read_tensors(path: Path, model: CheckpointSettings) -> dict[str, Tensor]:
    """Return the tensors of all files; shared tables under each of their names."""
    files = sorted(path.glob("model.[0-9][0-9].safetensors"))
    check(files, str(path), f"has no {_WEIGHTS}", "copy the whole folder of the model", DataError)
    tensors = {name: value for file in files for name, value in read_safetensors(file).items()}
    for option, name, shared in (
        ("share_embeddings", _TARGET_TABLE, _SOURCE_TABLE),
        ("share_decoder_embeddings", HEAD, _TARGET_TABLE),
    ):
        if model.get(option, bool, False) and shared in tensors:
            tensors[name] = tensors[shared]
    if HEAD_BIAS in tensors:
        tensors[HEAD_BIAS] = tensors[HEAD_BIAS].unsqueeze(0)
    return tensors


def _read_sides(
    folder: HFFolder, config: CheckpointSettings, notes: list[str]
) -> tuple[Side, Side]:
    transforms = read_transforms(config, notes)
    name = next((name for name in ("sentencepiece", "bpe") if name in transforms), "")
    details = config.section("transforms_configs", is_needed=False)
    subwords = details.section(name, is_needed=False)
    if config.get("share_vocab", bool, False):
        shared = {"tgt_subword_model": subwords.values.get("src_subword_model")}
        subwords = CheckpointSettings(
            {**subwords.values, **shared}, subwords.location, subwords.prefix
        )
    vocab, path = folder.read_json(_VOCAB), folder.path / _VOCAB
    source, target = (
        read_side(path, vocab, side, subwords, transforms=transforms, notes=notes)
        for side in ("src", "tgt")
    )
    return source, target


def _require_positions(model: CheckpointSettings, allowed: str) -> None:
    """Check the type of positions; it has a default, which null is not."""
    embeddings = model.section("embeddings", is_needed=False)
    embeddings.require_off("normalize")
    embeddings.require_one_of("embedding_type", ("standard",))
    value = embeddings.values.get(_POSITIONS, "SinusoidalInterleaved")
    settings = {_POSITIONS: "null" if value is None else value}
    CheckpointSettings(settings, model.location, embeddings.prefix).require_one_of(
        _POSITIONS, (allowed,)
    )


# ----- models


def _transformer_model(
    model: CheckpointSettings, training: CheckpointSettings, tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], list[TensorRule]]:
    _require_positions(model, "SinusoidalInterleaved")
    settings, rules = {}, []
    for name in ("encoder", "decoder"):
        section = _read_section(model, name)
        section.require_one_of(f"{name}_type", ("transformer",))
        has_bias = _complete_biases(tensors, name)
        settings[name] = _transformer_settings(section, training, has_bias=has_bias)
        layers = _layer_rules(is_decoder=name == "decoder")
        layers = nested("stack.layers.*.", "transformer_layers.*.", layers)
        rules += nested(f"{name}.", f"{name}.", [*layers, *affine("stack.norm", "layer_norm")])
    return settings, rules


def _complete_biases(tensors: dict[str, Tensor], side: str) -> bool:
    """Return whether attention has biases; where some projections have none, add zeros.

    `add_qkvbias` alone gives the decoder a bias after attention, but not the encoder.
    """
    pattern = re.compile(rf"{side}\..*_attn\.\w+\.(weight|bias)")
    names = [name for name in tensors if pattern.fullmatch(name)]
    has_bias = any(name.endswith(".bias") for name in names)
    for name in names if has_bias else ():
        bias = tensors[name].new_zeros(len(tensors[name]))
        tensors.setdefault(f"{name.rpartition('.')[0]}.bias", bias)
    return has_bias


def _transformer_settings(
    section: CheckpointSettings, training: CheckpointSettings, *, has_bias: bool
) -> dict[str, Any]:
    hidden_size = section.get("hidden_size", int, 512)
    num_heads = section.get("heads", int, 8)
    _check_transformer(section, head_size=hidden_size // max(num_heads, 1))
    activation, is_gated = _ACTIVATIONS[section.get("mlp_activation_fn", str, "relu")]
    dropout = read_dropout(training, default=0.3)
    return transformer_settings(
        {
            "hidden_size": hidden_size,
            "num_layers": section.get("layers", int, 2),
            "norm": "rms" if section.get("layer_norm", str, "standard") == "rms" else "layer",
            "norm_order": "pre",
            "norm_eps": section.get("norm_eps", (float, int), 1e-5),
            "dropout": dropout,
            "scale_embeddings": True,
        },
        heads={
            "num_heads": num_heads,
            "num_kv_heads": section.get("heads_kv", int, 0) or None,
            "bias": has_bias,
        },
        attention_dropout=read_dropout(training, "attention_dropout", 0.1),
        feed_forward={
            "intermediate_size": section.get("transformer_ff", int, 2048),
            "activation": activation,
            "gated": is_gated,
            "dropout": dropout,
            "bias": section.get("add_ffnbias", bool, False),
        },
    )


def _check_transformer(section: CheckpointSettings, *, head_size: int) -> None:
    section.require_off(*_UNSUPPORTED["side"])
    for name, allowed in (
        ("mlp_activation_fn", tuple(_ACTIVATIONS)),
        ("layer_norm", ("standard", "standardFP32", "rms")),
        ("head_dim", (head_size,)),
        ("encoder_layer_style", ("standard",)),
        ("final_encoder_layer_norm", (True,)),
        ("LM_type", ("causal",)),
    ):
        section.require_one_of(name, allowed)


def _layer_rules(*, is_decoder: bool) -> list[TensorRule]:
    rules = [
        *attention_rules("self_attention.attention", "self_attn", ATTENTION_NAMES),
        *affine("self_attention_residual.norm", "input_layernorm"),
        *affine("feed_forward.input_projection", "mlp.gate_up_proj"),
        *affine("feed_forward.output_projection", "mlp.down_proj"),
        *affine("feed_forward.gate", "mlp.up_proj"),
        *affine("feed_forward_residual.norm", "post_attention_layernorm"),
    ]
    if is_decoder:
        rules += attention_rules("cross_attention.attention", "context_attn", ATTENTION_NAMES)
        rules += affine("cross_attention.residual.norm", "precontext_layernorm")
    return rules


def _recurrent_model(
    model: CheckpointSettings, training: CheckpointSettings, tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], list[TensorRule]]:
    """Return a model from the options that OpenNMT-py has for it."""
    _require_positions(model, "null")
    encoder, decoder = (_read_section(model, name) for name in ("encoder", "decoder"))
    decoder.require_off(*_UNSUPPORTED["side"])
    cell = encoder.get("rnn_type", str, "LSTM")
    embeddings = model.section("embeddings", is_needed=False)
    common_size = embeddings.get("word_vec_size", int, -1)
    default_size = common_size if common_size > 0 else 512
    options = {
        **{name: decoder.values.get(name) for name in _DECODER_OPTIONS},
        **{name: encoder.values.get(name) for name in ("encoder_type", "bridge")},
        "rnn_type": cell,
        "dropout": read_dropout(training, default=0.3),
    }
    for side, section, text in (("enc", encoder, "src"), ("dec", decoder, "tgt")):
        section.require_one_of("rnn_type", (cell,))
        vector_size = embeddings.get(f"{text}_word_vec_size", int, default_size)
        options[f"{text}_word_vec_size"] = vector_size
        options[f"{side}_layers"] = section.get("layers", int, 2)
        options[f"{side}_hid_size"] = section.get("hidden_size", int, 512)
    return recurrent_model(CheckpointSettings(options, model.location, "model."), tensors)
