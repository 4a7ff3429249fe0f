"""Random model folders with the tensor names and settings of Eole 0.6.4.

The forward passes are those of OpenNMT-py in `tests/nmt_checkpoints.py`: Eole renames its tensors,
and its norms have another epsilon. docs/from-nmt-toolkits.md says how the importer was compared
with Eole itself.
"""

import json
import re

import torch
from safetensors.torch import save_file

from tests import nmt_checkpoints as onmt

RENAMED = (
    (r"^encoder\.transformer\.", "encoder.transformer_layers."),
    (r"\.feed_forward\.layer_norm\.", ".post_attention_layernorm."),
    (r"(encoder.*\d)\.layer_norm\.|(decoder.*)\.layer_norm_1\.", r"\1\2.input_layernorm."),
    (r"\.layer_norm_2\.", ".precontext_layernorm."),
    (r"\.feed_forward\.w_1\.", ".mlp.gate_up_proj."),
    (r"\.feed_forward\.w_2\.", ".mlp.down_proj."),
    (r"\.feed_forward\.w_3\.", ".mlp.up_proj."),
    (r"^encoder\.embeddings\.make_embedding\.emb_luts\.0\.", "src_emb.embeddings."),
    (r"^decoder\.embeddings\.make_embedding\.emb_luts\.0\.", "tgt_emb.embeddings."),
)
GATED = {"gated-silu": "silu", "gated-gelu": "gated-gelu"}
SIZES = {"hidden_size": 8, "layers": 2}
POSITIONS = {"position_encoding_type": "SinusoidalInterleaved"}


def rename(name):
    for pattern, new in RENAMED:
        name = re.sub(pattern, new, name)
    return name


def draw_tensors(shapes, sizes, model):
    count = len(onmt.ONMT_TOKENS)
    tables = dict(zip(onmt.ONMT_TABLES, ((count, size) for size in sizes), strict=True))
    bias = {"generator.bias": (count,)} if model.get("generator_bias", True) else {}
    tensors = onmt.draw_named(shapes | tables | {"generator.weight": (count, 8)} | bias)
    tensors.eps = model.get("norm_eps", 1e-5)
    if model.get("share_embeddings"):
        tensors[onmt.ONMT_TABLES[1]] = tensors[onmt.ONMT_TABLES[0]]
    if model.get("share_decoder_embeddings"):
        tensors["generator.weight"] = tensors[onmt.ONMT_TABLES[1]]
    return tensors


def write_eole(folder, tensors, model, **changes):
    """Write a folder as `eole train` does; shared tables are left out of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {rename(name): value.float().contiguous() for name, value in tensors.items()}
    if model.get("share_embeddings"):
        del weights["tgt_emb.embeddings.weight"]
    if model.get("share_decoder_embeddings"):
        del weights["generator.weight"]
    if model["embeddings"]["position_encoding_type"]:
        weights |= {f"{side}_emb.pe.pe": torch.ones(30, 1, 8) for side in ("src", "tgt")}
        weights |= {"decoder.transformer_layers.1.layer_scalar": torch.ones(1)}
    save_file(weights, folder / "model.00.safetensors")
    config = {"model": model, "training": {"dropout": [0.1]}, "transforms": [], "data": {}}
    (folder / "config.json").write_text(json.dumps(config | changes))
    specials = {"unk_token": "<unk>", "pad_token": "<blank>", "bos_token": "<s>"}
    vocab = {"src": onmt.ONMT_TOKENS, "tgt": onmt.ONMT_TOKENS, "decoder_start_token": "<s>"}
    vocab["specials"] = specials | {"eos_token": "</s>"}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    return folder


def transformer_settings(case):
    sections = {"encoder": {"encoder_type": "transformer"}, "decoder": {"layers": 2}}
    sections["decoder"] |= {"decoder_type": "transformer", "with_cross_attn": True}
    model = {"architecture": "transformer", **SIZES, "heads": 2, "transformer_ff": 12, **case}
    return {**model, **sections, "embeddings": {"word_vec_size": 8, **POSITIONS}}


def eole_transformer(folder, case):
    model = transformer_settings(case)
    activation = case.get("mlp_activation_fn", "relu")
    options = {
        "pos_ffn_activation_fn": GATED.get(activation, activation),
        "add_qkvbias": case.get("add_qkvbias", False),
        "layer_norm": case.get("layer_norm", "standard"),
        "num_kv": case.get("heads_kv", 0),
    }
    shapes = onmt.onmt_transformer_shapes(options)
    dropped = r".*w_3\..*" if activation == "silu" else r"encoder.*final_linear\.bias"
    shapes = {name: shape for name, shape in shapes.items() if not re.fullmatch(dropped, name)}
    tensors = draw_tensors(shapes, (8, 8), model)
    path = write_eole(folder, tensors, model)
    return path, lambda *ids: onmt.onmt_transformer(tensors, options, *ids)


def eole_recurrent(folder, case):
    names = ("encoder_type", "rnn_type", "global_attention", "input_feed", "bridge")
    options = dict(zip(names, case, strict=True))
    common = {name: options[name] for name in ("rnn_type", "bridge")}
    attention = {"global_attention": options["global_attention"]}
    model = {
        **{"architecture": "custom", **SIZES, "input_feed": options["input_feed"]},
        "encoder": {"encoder_type": options["encoder_type"], **common},
        "decoder": {"decoder_type": "rnn", **common, **attention},
        "embeddings": {"src_word_vec_size": 5, "tgt_word_vec_size": 6},
    }
    model["embeddings"]["position_encoding_type"] = None
    tensors = draw_tensors(onmt.onmt_recurrent_shapes(options), (5, 6), model)
    path = write_eole(folder, tensors, model)
    return path, lambda *ids: onmt.onmt_recurrent(tensors, options, *ids)


EOLE_TRANSFORMERS = [
    {"share_embeddings": True, "share_decoder_embeddings": True},
    {"add_qkvbias": True, "add_ffnbias": True, "mlp_activation_fn": "gelu", "norm_eps": 0.01},
    {"mlp_activation_fn": "gated-silu", "layer_norm": "rms", "heads_kv": 1},
    {"mlp_activation_fn": "silu", "share_decoder_embeddings": True, "generator_bias": False},
]
EOLE_RECURRENT = [("brnn", "LSTM", "general", 1, False), ("rnn", "GRU", "mlp", 0, True)]
