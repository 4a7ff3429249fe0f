"""Checkpoints of OpenNMT-py 3: a .pt file with options, vocabularies and perhaps the tensors.

Where it differs: sources have no EOS; embeddings are scaled where positions are added; Transformers
are pre-norm; "general" attention projects the query, not the key; with "mlp" attention the query
has the bias, and the attentional layer no tanh; the states of all encoder layers start the decoder.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.conversion.checkpoint_rules import (
    CheckpointSettings,
    Side,
    build_run,
    build_side,
    encoder_rnn_rules,
    find_file,
    order_vocabulary,
    rnn_rules,
)
from heedful.conversion.hf_folder import read_safetensors
from heedful.conversion.interface import ImportedRun, transformer_settings
from heedful.conversion.tensor_names import (
    TRANSPOSED,
    TensorRule,
    affine,
    attention_rules,
    nested,
    tensor,
)
from heedful.errors import DataError, check
from heedful.tokenization.imported import SentencePieceTokenizerConfig, SubwordNMTTokenizerConfig
from heedful.tokenization.special_texts import WhitespaceTokenizerConfig

_TABLE = "{}.embeddings.make_embedding.emb_luts.0.weight"
_SOURCE_TABLE, _TARGET_TABLE = _TABLE.format("encoder"), _TABLE.format("decoder")
HEAD, HEAD_BIAS = "generator.weight", "generator.bias"
ATTENTION_NAMES = {
    "query": "linear_query",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "final_linear",
}
_ACTIVATIONS = {  # and whether they are gated
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("swish", True),
    "gated-gelu": ("gelu", True),
}
_UNSUPPORTED = (  # options that must be off
    *("copy_attn", "coverage_attn", "context_gate", "parallel_residual", "lora_layers"),
    *("quant_layers", "num_experts", "sliding_window", "n_src_feats", "max_relative_positions"),
    *("relative_positions_buckets", "full_context_alignment"),
)
DECODING = {  # the defaults of onmt_translate; its length counts one token more
    "beam_size": 5,
    "length_penalty": {"type": "mean"},
    "max_length_ratio": 1.25,
    "max_length_offset": 5,
    "max_length": 250,
}
_SEARCH_NOTE = (
    "decoding has the defaults of onmt_translate (beam 5, length_penalty avg, max_length_ratio "
    "1.25); a checkpoint does not contain others: set them with --set decoding"
)
_SPECIAL_TOKENS = {"pad_token": "<blank>", "unk_token": "<unk>", "eos_token": "</s>"}
_WITHOUT_EFFECT = {  # transforms that change training data alone
    *(
        "filtertoolong",
        "filtertooshort",
        "clean",
        "switchout",
        "tokendrop",
        "tokenmask",
        "bart",
        "fuzzymatch",
    )
}


def read_run(path: Path, checkpoint: Mapping[str, Any]) -> ImportedRun:
    """Return the run of a checkpoint."""
    options = CheckpointSettings(checkpoint["opt"], str(path), "opt.")
    options.require_one_of("model_task", ("seq2seq",))
    options.require_one_of("model_type", ("text",))
    options.require_one_of("generator_function", ("softmax",))
    options.require_off(*_UNSUPPORTED)
    tensors = _read_tensors(path, checkpoint)
    notes = [_SEARCH_NOTE]
    transforms, vocab = read_transforms(options, notes), checkpoint["vocab"]
    vocab = vocab if isinstance(vocab, dict) else {}
    source, target = (
        read_side(path, vocab, name, options, transforms=transforms, notes=notes)
        for name in ("src", "tgt")
    )
    options.require_one_of("decoder_type", ("rnn", "transformer"))
    is_recurrent = options.get("decoder_type", str) == "rnn"
    read_model = recurrent_model if is_recurrent else _transformer_model
    settings, rules = read_model(options, tensors)
    summary = f"OpenNMT-py, {'recurrent' if is_recurrent else 'Transformer'}"
    recipe = {
        "info": {"name": path.stem, "summary": summary},
        "model": {**settings, "embeddings": embedding_sharing(options, notes), "source_eos": False},
        "decoding": DECODING,
    }
    rules += table_rules((source, target), _SOURCE_TABLE, _TARGET_TABLE)
    ignored = [_SOURCE_TABLE, _TARGET_TABLE, HEAD, r".*\.make_embedding\.pe\.pe"]
    return build_run(path, recipe, (source, target), rules, tensors, ignored=ignored, notes=notes)


def _read_tensors(path: Path, checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return all tensors; those of the generator under a name of their own."""
    if "model" not in checkpoint:
        other = path.with_suffix(".safetensors")
        message = f"has no tensors, and there is no {other.name} beside it"
        check(other.is_file(), str(path), message, "copy both files", DataError)
        tensors = read_safetensors(other)
    else:
        generator = {
            f"generator.{name.removeprefix('0.')}": value  # version 2 had a sequence
            for name, value in (checkpoint.get("generator") or {}).items()
        }
        tensors = {**checkpoint["model"], **generator}
    if HEAD_BIAS in tensors:
        tensors[HEAD_BIAS] = tensors[HEAD_BIAS].unsqueeze(0)
    return tensors


def embedding_sharing(options: CheckpointSettings, notes: list[str]) -> str:
    """Return which tables are one; both programs have the same two options."""
    is_shared = options.get("share_embeddings", bool, False)
    if options.get("share_decoder_embeddings", bool, False):
        return "shared" if is_shared else "tied"
    if is_shared:
        notes.append("source and target embeddings are equal now, but trained separately from here")
    return "separate"


def table_rules(sides: tuple[Side, Side], source_table: str, target_table: str) -> list[TensorRule]:
    """Return the rules of the embeddings, whose names are given, and of the output layer."""
    source, target = (side.order for side in sides)
    return [
        tensor("encoder.embedding.embedding.weight", source_table, source.table_layout),
        tensor("decoder.embedding.embedding.weight", target_table, target.table_layout),
        tensor("decoder.output_head.projection.weight", HEAD, target.table_layout),
        tensor("decoder.output_head.projection.bias", HEAD_BIAS, target.bias_layout),
    ]


def read_dropout(options: CheckpointSettings, name: str = "dropout", default: float = 0.0) -> float:
    """Return the first of the dropout rates, which may change with the step."""
    value = options.get(name, (float, int, list), default)
    return float(value[0] if isinstance(value, list) else value)


def _size(options: CheckpointSettings, side: str, name: str, common: str) -> int:
    """Return a size of a side; an option for both sides wins."""
    size = options.get(common, int, -1)
    return size if size > 0 else options.get(f"{side}_{name}", int)


# ----- models


def _transformer_model(
    options: CheckpointSettings, tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], list[TensorRule]]:
    options.require_one_of("encoder_type", ("transformer",))
    options.require_one_of("position_encoding", (True,))
    options.require_one_of("position_encoding_type", ("SinusoidalInterleaved",))
    options.require_one_of("self_attn_type", ("scaled-dot", "scaled-dot-flash"))
    options.require_one_of("layer_norm", ("standard", "rms"))
    for name in list(tensors):  # norms of old versions
        for old, new in ((".a_2", ".weight"), (".b_2", ".bias")):
            if name.endswith(old):
                tensors[name.removesuffix(old) + new] = tensors.pop(name)
    settings: dict[str, Any] = {
        side: _transformer_side(options, short, tensors)
        for side, short in (("encoder", "enc"), ("decoder", "dec"))
    }
    encoder_rules = nested("stack.layers.*.", "transformer.*.", _layer_rules(is_decoder=False))
    decoder_rules = nested(
        "stack.layers.*.", "transformer_layers.*.", _layer_rules(is_decoder=True)
    )
    rules = [
        *nested("encoder.", "encoder.", [*encoder_rules, *affine("stack.norm", "layer_norm")]),
        *nested("decoder.", "decoder.", [*decoder_rules, *affine("stack.norm", "layer_norm")]),
    ]
    return settings, rules


def _transformer_side(
    options: CheckpointSettings, side: str, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    options.require_one_of("pos_ffn_activation_fn", tuple(_ACTIVATIONS))
    activation, is_gated = _ACTIVATIONS[options.get("pos_ffn_activation_fn", str, "relu")]
    dropout, num_kv = read_dropout(options), options.get("num_kv", int, 0)
    return transformer_settings(
        {
            "hidden_size": _size(options, side, "hid_size", "hidden_size"),
            "num_layers": _size(options, side, "layers", "layers"),
            "norm": "rms" if options.get("layer_norm", str, "standard") == "rms" else "layer",
            "norm_order": "pre",
            "norm_eps": options.get("norm_eps", float, 1e-6),
            "dropout": dropout,
            "scale_embeddings": True,
        },
        heads={
            "num_heads": options.get("heads", int),
            "num_kv_heads": num_kv or None,
            "bias": any(name.endswith("linear_query.bias") for name in tensors),
        },
        attention_dropout=read_dropout(options, "attention_dropout"),
        feed_forward={
            "intermediate_size": options.get("transformer_ff", int),
            "activation": activation,
            "gated": is_gated,
            "dropout": dropout,
            "bias": any(name.endswith("w_1.bias") for name in tensors),
        },
    )


def _layer_rules(*, is_decoder: bool) -> list[TensorRule]:
    rules = [
        *attention_rules("self_attention.attention", "self_attn", ATTENTION_NAMES),
        *affine("self_attention_residual.norm", "layer_norm_1" if is_decoder else "layer_norm"),
        *affine("feed_forward.input_projection", "feed_forward.w_1"),
        *affine("feed_forward.output_projection", "feed_forward.w_2"),
        *affine("feed_forward.gate", "feed_forward.w_3"),
        *affine("feed_forward_residual.norm", "feed_forward.layer_norm"),
    ]
    if is_decoder:
        rules += attention_rules("cross_attention.attention", "context_attn", ATTENTION_NAMES)
        rules += affine("cross_attention.residual.norm", "layer_norm_2")
    return rules


def recurrent_model(
    options: CheckpointSettings, tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], list[TensorRule]]:
    """Return settings and rules of a recurrent model; a bias that is missing becomes zero."""
    options.require_one_of("encoder_type", ("rnn", "brnn"))
    options.require_one_of("position_encoding", (False,))
    options.require_one_of("rnn_type", ("LSTM", "GRU"))
    options.require_one_of("global_attention", ("general", "dot", "mlp"))
    options.require_one_of("global_attention_function", ("softmax", "sparsemax"))
    is_bidirectional = options.get("encoder_type", str) == "brnn"
    attention = options.get("global_attention", str, "general")
    size = _size(options, "dec", "hid_size", "hidden_size")
    num_parts = 2 if is_bidirectional else 1
    has_bridge = options.get("bridge", bool, False)
    settings = {
        "encoder": {
            **_cells(options, "enc", "src"),
            "direction": "bidirectional" if is_bidirectional else "forward",
        },
        "decoder": {
            **_cells(options, "dec", "tgt"),
            "wiring": {
                "type": "step-then-attend",
                "input_feeding": bool(options.get("input_feed", (int, bool), 1)),
            },
            "attention": {
                "score": {
                    "general": {"type": "bilinear"},
                    "dot": {"type": "dot"},
                    "mlp": {"type": "additive", "hidden_size": size, "bias": True},
                }[attention],
                "alignment": {"type": options.get("global_attention_function", str, "softmax")},
            },
            "pre_output": {"type": "linear" if attention == "mlp" else "tanh"},
            "bridge": {"type": "all-layers", "num_parts": num_parts}
            if has_bridge
            else {"type": "copy"},
        },
    }
    if (weight := tensors.get("decoder.attn.linear_out.weight")) is not None:
        tensors.setdefault("decoder.attn.linear_out.bias", torch.zeros(len(weight)))
    return settings, [*encoder_rnn_rules(), *_recurrent_rules(options, attention)]


def _cells(options: CheckpointSettings, side: str, text: str) -> dict[str, Any]:
    return {
        "type": "recurrent",
        "cell": options.get("rnn_type", str, "LSTM").lower(),
        "num_layers": _size(options, side, "layers", "layers"),
        "hidden_size": _size(options, side, "hid_size", "hidden_size"),
        "embedding_size": _size(options, text, "word_vec_size", "word_vec_size"),
        "dropout": read_dropout(options),
    }


def _recurrent_rules(options: CheckpointSettings, attention: str) -> list[TensorRule]:
    cells = "decoder.wiring.cells.cells.*"
    score, attn = "decoder.wiring.attention.score.", "decoder.attn."
    if options.get("input_feed", (int, bool), 1):
        rules = rnn_rules(cells, "decoder.rnn.layers.*", "")
    else:
        rules = rnn_rules(cells, "decoder.rnn")
    rules += affine("decoder.wiring.pre_output.projection", f"{attn}linear_out")
    if attention == "general":
        rules.append(tensor(f"{score}projection.weight", f"{attn}linear_in.weight", TRANSPOSED))
    elif attention == "mlp":
        rules += [
            tensor(f"{score}query_projection.weight", f"{attn}linear_query.weight"),
            tensor(f"{score}key_projection.bias", f"{attn}linear_query.bias"),
            tensor(f"{score}key_projection.weight", f"{attn}linear_context.weight"),
            tensor(f"{score}score_vector.weight", f"{attn}v.weight"),
        ]
    rules += affine("decoder.bridge.hidden_projection", "encoder.bridge.0")
    return rules + affine("decoder.bridge.cell_projection", "encoder.bridge.1")


# ----- tokenizers


def read_side(
    path: Path,
    vocab: Mapping[str, Any],
    side: str,
    subwords: CheckpointSettings,
    *,
    transforms: Collection[str],
    notes: list[str],
) -> Side:
    """Return a side from its list of tokens; `subwords` names the files of its transform."""
    tokens = vocab.get(side)
    is_list = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    message = f"vocab.{side} is not a list of tokens, as OpenNMT-py writes since version 3"
    check(is_list, str(path), message, "convert the checkpoint with OpenNMT-py 3", DataError)
    assert isinstance(tokens, list)
    specials = {**_SPECIAL_TOKENS, **vocab.get("specials", {})}
    order, others = order_vocabulary(
        tokens,
        pad=specials["pad_token"],
        unk=specials["unk_token"],
        bos=vocab.get("decoder_start_token", "<s>"),
        eos=specials["eos_token"],
        location=f"{path}, vocab.{side}",
    )
    model = subwords.get(f"{side}_subword_model", str, "")
    if "sentencepiece" in transforms:
        file = find_file(path.parent, model, "sentencepiece.model")
        return build_side(SentencePieceTokenizerConfig(), order, others, file, file.read_bytes())
    if "bpe" in transforms:
        file = find_file(path.parent, model, "codes.bpe")
        is_limited = bool(subwords.get(f"{side}_subword_vocab", str, ""))
        config = SubwordNMTTokenizerConfig(only_listed_pieces=is_limited)
        return build_side(config, order, others, file, file.read_bytes())
    notes.append(f"{side}: tokens are separated by spaces, as in the training files")
    return build_side(WhitespaceTokenizerConfig(), order, others)


def read_transforms(options: CheckpointSettings, notes: list[str]) -> list[str]:
    """Return the transforms of all corpora, in order; those without a counterpart are noted."""
    corpora = options.get("data", (dict, str), {})
    corpora = corpora if isinstance(corpora, dict) else {}
    lists = [options.get("transforms", list, []), *(c.get("transforms") for c in corpora.values())]
    transforms = list(dict.fromkeys(str(name) for names in lists for name in names or []))
    unknown = sorted(set(transforms) - _WITHOUT_EFFECT - {"sentencepiece", "bpe"})
    if unknown:
        notes.append(f"apply these transforms to texts yourself: {', '.join(unknown)}")
    return transforms
