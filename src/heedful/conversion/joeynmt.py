"""Checkpoints of JoeyNMT 2: a .ckpt file, with config.yaml and the vocabularies in its folder.

Where it differs: keys and queries of the attentional layer are concatenated the other way round;
one bridge serves all layers, and also the cell states of LSTMs; norms have an epsilon of 1e-6; PAD
and BOS are never generated; and its beam search extends finished outputs further.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import read_settings
from heedful.conversion.checkpoint_rules import (
    CheckpointSettings,
    Side,
    build_run,
    build_side,
    encoder_rnn_rules,
    find_file,
    order_vocabulary,
    repeated,
    rnn_rules,
    swapped_columns,
)
from heedful.conversion.interface import ImportedRun, transformer_settings
from heedful.conversion.tensor_names import TensorRule, affine, attention_rules, nested, tensor
from heedful.errors import DataError, check
from heedful.tokenization.imported import (
    SentencePieceTokenizerConfig,
    SubwordNMTTokenizerConfig,
    use_only_pieces,
)
from heedful.tokenization.special_texts import WhitespaceTokenizerConfig
from heedful.tokenization.standalone import SPACE_MARK
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, NormalizerConfig
from heedful.tokenization.vocabulary import BOS, PAD, UNK

AnyTokenizerConfig = (
    WhitespaceTokenizerConfig
    | CharacterTokenizerConfig
    | SentencePieceTokenizerConfig
    | SubwordNMTTokenizerConfig
)
CONFIG = "config.yaml"
_SOURCE_TABLE, _TARGET_TABLE = "src_embed.lut.weight", "trg_embed.lut.weight"
_HEAD = "decoder.output_layer.weight"
_SPECIALS = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
_ATTENTION = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
_ACTIVATIONS = ("relu", "gelu", "swish")


def read_run(path: Path, checkpoint: Mapping[str, Any]) -> ImportedRun:
    """Return the run of a checkpoint."""
    folder = path.resolve().parent  # best.ckpt is a link into the folder of the model
    message = f"JoeyNMT writes {CONFIG} into the folder of its checkpoints, but there is none"
    hint = "copy the whole model folder: config.yaml, src_vocab.txt, trg_vocab.txt"
    check((folder / CONFIG).is_file(), str(path), message, hint, DataError)
    config = CheckpointSettings(read_settings(folder / CONFIG), str(folder / CONFIG))
    tensors = dict(checkpoint["model_state"])
    model, data = config.section("model"), config.section("data")
    notes: list[str] = []
    sides = (_read_side(folder, data, "src", notes), _read_side(folder, data, "trg", notes))
    is_recurrent = model.section("decoder").get("type", str, "transformer") == "recurrent"
    read_model = _recurrent_model if is_recurrent else _transformer_model
    settings, rules = read_model(model, tensors, sides)
    name = config.get("name", str, folder.name)
    summary = f"JoeyNMT, {'recurrent' if is_recurrent else 'Transformer'}"
    recipe = {
        "info": {"name": name, "summary": summary},
        "model": {**settings, "embeddings": _embedding_sharing(model, tensors, notes)},
        "decoding": _decoding(config.section("testing", is_needed=False), sides, data),
    }
    ignored = [_SOURCE_TABLE, _TARGET_TABLE, _HEAD, r"(en|de)coder\.pe\.pe"]
    return build_run(path, recipe, sides, rules, tensors, ignored=ignored, notes=notes)


def _embedding_sharing(
    model: CheckpointSettings, tensors: Mapping[str, Tensor], notes: list[str]
) -> str:
    """Return which tables are one; those that differ here after all are an error."""
    is_shared = model.get("tied_embeddings", bool, False)
    is_tied = model.get("tied_softmax", bool, False)
    for name, is_same, other in (
        ("tied_embeddings", is_shared, _SOURCE_TABLE),
        ("tied_softmax", is_tied, _HEAD),
    ):
        tables = [tensors.get(table) for table in (_TARGET_TABLE, other)]
        is_equal = all(table is not None for table in tables) and torch.equal(*tables)  # type: ignore[arg-type]
        message = f"model.{name} is true, but {_TARGET_TABLE} and {other} differ"
        hint = "use the config.yaml of this checkpoint"
        check(is_equal or not is_same, model.location, message, hint, DataError)
    if is_shared and not is_tied:
        notes.append("source and target embeddings are equal now, but trained separately from here")
    return ("shared" if is_shared else "tied") if is_tied else "separate"


# ----- models


def _transformer_model(
    model: CheckpointSettings, tensors: dict[str, Tensor], sides: tuple[Side, Side]
) -> tuple[dict[str, Any], list[TensorRule]]:
    settings: dict[str, Any] = {}
    rules = _table_rules(sides)
    for side in ("encoder", "decoder"):
        has_final_norm = f"{side}.layer_norm.weight" in tensors
        settings[side] = _transformer_side(model.section(side), side, has_final_norm)
        rules += nested(f"{side}.", f"{side}.", _layer_rules(is_decoder=side == "decoder"))
    settings["decoder"]["output_head"] = {"type": "softmax", "bias": False}
    return settings, rules


def _transformer_side(
    section: CheckpointSettings, side: str, has_final_norm: bool
) -> dict[str, Any]:
    section.require_one_of("type", ("transformer",))
    section.require_one_of("alpha", (1, 1.0))
    section.require_one_of("activation", _ACTIVATIONS)
    embeddings = section.section("embeddings")
    order = section.get("layer_norm", str, "pre" if side == "encoder" else "post")
    message = f"{section.prefix}layer_norm is 'pre', but there is no norm behind the last layer"
    hint = "JoeyNMT leaves it out where layer_norm is not set; heedful has no such encoder"
    check(order == "post" or has_final_norm, section.location, message, hint, DataError)
    dropout = section.get("dropout", (float, int), 0.0)
    return transformer_settings(
        {
            "hidden_size": section.get("hidden_size", int, 512),
            "num_layers": section.get("num_layers", int, 8 if side == "encoder" else 4),
            "norm_order": order,
            "norm_eps": 1e-6,
            "dropout": dropout,
            "scale_embeddings": embeddings.get("scale", bool, False),
        },
        heads={"num_heads": section.get("num_heads", int, 4 if side == "encoder" else 8)},
        attention_dropout=dropout,
        feed_forward={
            "intermediate_size": section.get("ff_size", int, 2048),
            "activation": section.get("activation", str, "relu"),
            "dropout": dropout,
        },
    )


def _layer_rules(*, is_decoder: bool) -> list[TensorRule]:
    self_attention = "trg_trg_att" if is_decoder else "src_src_att"
    rules = [
        *attention_rules("self_attention.attention", self_attention, _ATTENTION),
        *affine("self_attention_residual.norm", "x_layer_norm" if is_decoder else "layer_norm"),
        *affine("feed_forward.input_projection", "feed_forward.pwff_layer.0"),
        *affine("feed_forward.output_projection", "feed_forward.pwff_layer.3"),
        *affine("feed_forward_residual.norm", "feed_forward.layer_norm"),
    ]
    if is_decoder:
        rules += attention_rules("cross_attention.attention", "src_trg_att", _ATTENTION)
        rules += affine("cross_attention.residual.norm", "dec_layer_norm")
    return [*nested("stack.layers.*.", "layers.*.", rules), *affine("stack.norm", "layer_norm")]


def _table_rules(sides: tuple[Side, Side]) -> list[TensorRule]:
    source, target = (side.order.table_layout for side in sides)
    return [
        tensor("encoder.embedding.embedding.weight", _SOURCE_TABLE, source),
        tensor("decoder.embedding.embedding.weight", _TARGET_TABLE, target),
        tensor("decoder.output_head.projection.weight", _HEAD, target),
    ]


def _recurrent_model(
    model: CheckpointSettings, tensors: dict[str, Tensor], sides: tuple[Side, Side]
) -> tuple[dict[str, Any], list[TensorRule]]:
    encoder, decoder = model.section("encoder"), model.section("decoder")
    encoder.require_one_of("type", ("recurrent",))
    encoder.require_one_of("bidirectional", (True,))
    decoder.require_one_of("activation", ("tanh",))
    for section in (encoder, decoder):
        section.section("embeddings").require_one_of("scale", (False,))
        section.require_one_of("rnn_type", ("gru", "lstm"))
    memory_size = 2 * encoder.get("hidden_size", int, 1)
    hidden_size, num_layers = decoder.get("hidden_size", int), decoder.get("num_layers", int, 1)
    is_additive = decoder.get("attention", str, "bahdanau") == "bahdanau"
    decoder.require_one_of("attention", ("bahdanau", "luong"))
    additive = {"type": "additive", "hidden_size": hidden_size}
    settings = {
        "encoder": {**_cells(encoder), "hidden_size": memory_size},
        "decoder": {
            **_cells(decoder),
            "hidden_size": hidden_size,
            "wiring": {
                "type": "step-then-attend",
                "input_feeding": decoder.get("input_feeding", bool, True),
            },
            "attention": {"score": additive if is_additive else {"type": "bilinear"}},
            "bridge": _bridge(decoder, memory_size),
            "output_head": {"type": "softmax", "bias": False},
        },
    }
    rules = [
        *_table_rules(sides),
        *encoder_rnn_rules(),
        *rnn_rules("decoder.wiring.cells.cells.*", "decoder.rnn"),
        *affine(
            "decoder.wiring.pre_output.projection",
            "decoder.att_vector_layer",
            swapped_columns(hidden_size),
        ),
        *nested("decoder.wiring.attention.score.", "decoder.attention.", _score_rules(is_additive)),
        *_bridge_rules(decoder, min(num_layers, len(tensors))),  # more are an error later
    ]
    _add_identity_bridge(decoder, tensors)
    return settings, rules


def _cells(section: CheckpointSettings) -> dict[str, Any]:
    embeddings = section.section("embeddings")
    return {
        "type": "recurrent",
        "cell": section.get("rnn_type", str, "gru"),
        "num_layers": section.get("num_layers", int, 1),
        "embedding_size": embeddings.get("embedding_dim", int, 64),
        "dropout": section.get("dropout", (float, int), 0.0),
    }


def _score_rules(is_additive: bool) -> list[TensorRule]:
    if not is_additive:
        return [tensor("projection.weight", "key_layer.weight")]
    names = {"query_projection": "query", "key_projection": "key", "score_vector": "energy"}
    return [
        tensor(f"{native}.weight", f"{foreign}_layer.weight") for native, foreign in names.items()
    ]


_BRIDGE = "decoder.bridge_layer"


def _bridge(decoder: CheckpointSettings, memory_size: int) -> dict[str, Any]:
    """Return the bridge: all layers, and cell states of LSTMs, start from one projection."""
    decoder.require_one_of("init_hidden", ("bridge", "last", "zero"))
    kind = decoder.get("init_hidden", str, "bridge")
    if kind == "zero":
        return {"type": "zeros"}
    size = decoder.get("hidden_size", int)
    message = f"{decoder.prefix}init_hidden is 'last', but the sizes are {memory_size} and {size}"
    is_valid = kind == "bridge" or memory_size in (size, 2 * size)
    check(is_valid, decoder.location, message, "JoeyNMT cannot run it either", DataError)
    activation = "tanh" if kind == "bridge" else "linear"
    return {"type": "mlp", "num_layers": 1, "activation": activation}


def _bridge_rules(decoder: CheckpointSettings, num_layers: int) -> list[TensorRule]:
    if decoder.get("init_hidden", str, "bridge") == "zero":
        return []
    kinds = ["layers", *(["cell_layers"] * (decoder.get("rnn_type", str, "gru") == "lstm"))]
    names = [f"decoder.bridge.{kind}.{layer}" for kind in kinds for layer in range(num_layers)]
    return repeated(names, _BRIDGE)


def _add_identity_bridge(decoder: CheckpointSettings, tensors: dict[str, Tensor]) -> None:
    """With `init_hidden: last`, add the projection that keeps the state of the forward cell."""
    if decoder.get("init_hidden", str, "bridge") == "last":
        size, num_columns = tensors["decoder.att_vector_layer.weight"].shape  # states and memory
        tensors[f"{_BRIDGE}.weight"] = torch.eye(size, num_columns - size)
        tensors[f"{_BRIDGE}.bias"] = torch.zeros(size)


# ----- decoding and tokenizers


def _decoding(
    testing: CheckpointSettings, sides: tuple[Side, Side], data: CheckpointSettings
) -> dict[str, Any]:
    alpha = testing.get("beam_alpha", (float, int), testing.get("alpha", (float, int), -1))
    max_length = testing.get("max_output_length", int, -1)
    symbols = data.section("special_symbols", is_needed=False)
    names = [symbols.get("sep_token", str, ""), *symbols.get("lang_tags", list, [])]
    suppressed = [PAD, BOS, *sides[1].vocabulary.tokens_to_ids(filter(None, names))]
    if not testing.get("generate_unk", bool, True):
        suppressed.append(UNK)
    return {
        "beam_size": max(1, testing.get("beam_size", int, 1)),
        "length_penalty": {"type": "gnmt", "alpha": max(0.0, alpha)},
        "min_length": testing.get("min_output_length", int, 1),
        "suppress_tokens": sorted(suppressed),
        "no_repeat_ngram_size": max(0, testing.get("no_repeat_ngram_size", int, -1)),
        "repetition_penalty": max(1.0, testing.get("repetition_penalty", (float, int), -1)),
        **({"max_length": max_length} if max_length > 0 else {}),
    }


def _read_side(folder: Path, data: CheckpointSettings, name: str, notes: list[str]) -> Side:
    section = data.section(name)
    symbols = data.section("special_symbols", is_needed=False)
    path = find_file(folder, section.get("voc_file", str, ""), f"{name}_vocab.txt")
    specials = {key: symbols.get(f"{key}_token", str, token) for key, token in _SPECIALS.items()}
    extra = [symbols.get("sep_token", str, ""), *symbols.get("lang_tags", list, [])]
    listed = path.read_text(encoding="utf-8").splitlines()
    tokens = list(dict.fromkeys([*specials.values(), *filter(None, extra), *listed]))
    order, others = order_vocabulary(tokens, **specials, location=str(path))
    if section.get("level", str, "word") == "char":
        others = [" " if token == SPACE_MARK else token for token in others]
    config, file, contents = _tokenizer_config(folder, section, others, notes)
    return build_side(config, order, others, file, contents)


def _tokenizer_config(
    folder: Path, section: CheckpointSettings, tokens: Sequence[str], notes: list[str]
) -> tuple[AnyTokenizerConfig, Path | None, bytes]:
    """Return the settings of a tokenizer, and its file with the contents if it has one."""
    level = section.get("level", str, "word")
    section.require_one_of("level", ("word", "char", "bpe"))
    details = section.section("tokenizer_cfg", is_needed=False)
    normalization = NormalizerConfig(lowercase=section.get("lowercase", bool, False))
    if section.get("normalize", bool, False):
        normalization = normalization.model_copy(update={"unicode": "nfkc", "strip": True})
        notes.append(f"{section.prefix}normalize: NFKC only; JoeyNMT also rewrites quotation marks")
    if (program := details.get("pretokenizer", str, "none").lower()) != "none":
        side = section.prefix.rstrip(".")
        notes.append(f"{side}: texts must be tokenized by {program} first, as those of training")
    if level == "word":
        return WhitespaceTokenizerConfig(normalization=normalization), None, b""
    if level == "char":
        return CharacterTokenizerConfig(normalization=normalization), None, b""
    section.require_one_of("tokenizer_type", ("sentencepiece", "subword-nmt"))
    default = section.get("bpe_type", str, "sentencepiece")
    if section.get("tokenizer_type", str, default) == "sentencepiece":
        path = find_file(folder, details.get("model_file", str), "sp.model")
        model = use_only_pieces(path.read_bytes(), set(tokens))
        return SentencePieceTokenizerConfig(normalization=normalization), path, model
    path = find_file(folder, details.get("codes", str), "codes.txt")
    config = SubwordNMTTokenizerConfig(
        separator=details.get("separator", str, "@@"),
        only_listed_pieces=True,
        normalization=normalization,
    )
    return config, path, path.read_bytes()
