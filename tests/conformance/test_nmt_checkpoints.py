"""Imported models of JoeyNMT, OpenNMT-py and Eole compute what their forward passes compute.

The forward passes are written again in `tests/nmt_checkpoints.py`, one sentence at a time without
padding, from the published tensor names.
"""

import json

import pytest
import torch

import heedful
from heedful.conversion.importing import import_run
from heedful.conversion.interface import build_model
from heedful.conversion.registry import read_run
from heedful.data.text.batching import collate_pairs, collate_sources
from heedful.errors import DataError
from heedful.search import BeamSearchOptions, StepOutput, beam_search
from heedful.search.logits_processors import ForbiddenTokens
from heedful.search.penalties import LengthPenalty
from heedful.storage.state_dict import load_into_model
from heedful.tokenization.vocabulary import BOS, EOS, PAD
from tests import nmt_checkpoints as theirs
from tests.eole_folders import (
    EOLE_RECURRENT,
    EOLE_TRANSFORMERS,
    eole_recurrent,
    eole_transformer,
    transformer_settings,
    write_eole,
)

SOURCES = ["w1 w2 w3 w4 w5", "w8 w0", "w7"]
TARGETS = ["w3 w1", "w2 w2 w5 w8", "w6"]
TRANSFORMER = {"hidden_size": 8, "ff_size": 12, "num_layers": 2, "num_heads": 2, "dropout": 0.0}
JOEY_TRANSFORMERS = [
    {"layer_norm": "pre", "activation": "relu", "scale": True, "tied": True},
    {"layer_norm": "post", "activation": "gelu", "scale": False, "tied": False},
    {"layer_norm": "pre", "activation": "swish", "scale": False, "tied": False},
]
JOEY_RECURRENT = [
    ("gru", "bahdanau", "bridge", True, 10),
    ("lstm", "luong", "bridge", True, 10),
    ("lstm", "bahdanau", "last", False, 8),
    ("gru", "luong", "last", True, 16),
    ("lstm", "luong", "zero", True, 10),
]
SIZES = {"enc_layers": 2, "dec_layers": 2, "enc_hid_size": 8, "dec_hid_size": 8, "dropout": [0.1]}
ONMT_TRANSFORMER = {
    **SIZES,
    **{"encoder_type": "transformer", "decoder_type": "transformer", "heads": 2},
    **{"transformer_ff": 12, "position_encoding": True, "add_qkvbias": False, "num_kv": 0},
    **{"layer_norm": "standard", "pos_ffn_activation_fn": "relu", "attention_dropout": [0.1]},
}
ONMT_TRANSFORMERS = [
    {},
    {"add_qkvbias": True, "pos_ffn_activation_fn": "gelu", "share_decoder_embeddings": True},
    {"pos_ffn_activation_fn": "silu", "layer_norm": "rms", "num_kv": 1},
]
ONMT_RECURRENT = [
    ("brnn", "LSTM", "general", 1, False),
    ("rnn", "GRU", "mlp", 0, False),
    ("brnn", "LSTM", "dot", 1, True),
    ("brnn", "GRU", "mlp", 1, True),
]


def joey_transformer(folder, case):
    embeddings = {"embedding_dim": 8, "scale": case["scale"]}
    side = {"type": "transformer", **TRANSFORMER, "embeddings": embeddings}
    side |= {name: case[name] for name in ("layer_norm", "activation")}
    model = {"encoder": side, "decoder": dict(side), "tied_softmax": case["tied"]}
    tensors = theirs.joey_transformer_shapes(case["layer_norm"], case["tied"])
    path = theirs.write_joey(folder, tensors, model | {"tied_embeddings": case["tied"]})
    return path, lambda *ids: theirs.joey_transformer(tensors, case, *ids)


def joey_recurrent(folder, case):
    names = ("rnn_type", "attention", "init_hidden", "input_feeding", "hidden_size")
    decoder = dict(zip(names, case, strict=True))
    tensors = theirs.joey_recurrent_shapes(decoder)
    common = {"type": "recurrent", "num_layers": 2, "rnn_type": case[0]}
    encoder = {**common, "hidden_size": 8, "embeddings": {"embedding_dim": 5}}
    model = {
        "encoder": encoder,
        "decoder": {**common, **decoder, "embeddings": {"embedding_dim": 6}},
    }
    path = theirs.write_joey(folder, tensors, model)
    return path, lambda *ids: theirs.joey_recurrent(tensors, decoder, *ids)


def onmt_tables(shapes, sizes, options):
    count = len(theirs.ONMT_TOKENS)
    tables = dict(zip(theirs.ONMT_TABLES, ((count, size) for size in sizes), strict=True))
    generator = {"generator.weight": (count, 8), "generator.bias": (count,)}
    tensors = theirs.draw_named(shapes | tables | generator)
    if options.get("share_decoder_embeddings"):
        tensors["generator.weight"] = tensors[theirs.ONMT_TABLES[1]]
    return tensors


def onmt_transformer(folder, case):
    options = ONMT_TRANSFORMER | case | {"src_word_vec_size": 8, "tgt_word_vec_size": 8}
    tensors = onmt_tables(theirs.onmt_transformer_shapes(options), (8, 8), options)
    path = theirs.write_onmt(folder / "m_step_10.pt", tensors, options)
    return path, lambda *ids: theirs.onmt_transformer(tensors, options, *ids)


def onmt_recurrent(folder, case):
    names = ("encoder_type", "rnn_type", "global_attention", "input_feed", "bridge")
    options = SIZES | {"decoder_type": "rnn"} | dict(zip(names, case, strict=True))
    options |= {"src_word_vec_size": 5, "tgt_word_vec_size": 6}
    tensors = onmt_tables(theirs.onmt_recurrent_shapes(options), (5, 6), options)
    path = theirs.write_onmt(folder / "m_step_10.pt", tensors, options)
    return path, lambda *ids: theirs.onmt_recurrent(tensors, options, *ids)


CASES = [
    *((joey_transformer, case) for case in JOEY_TRANSFORMERS),
    *((joey_recurrent, case) for case in JOEY_RECURRENT),
    *((onmt_transformer, case) for case in ONMT_TRANSFORMERS),
    *((onmt_recurrent, case) for case in ONMT_RECURRENT),
    *((eole_transformer, case) for case in EOLE_TRANSFORMERS),
    *((eole_recurrent, case) for case in EOLE_RECURRENT),
]


class Imported:
    """An imported model in fp64, and their forward pass with ids of ours."""

    def __init__(self, folder, write, case):
        torch.manual_seed(0)
        self.path, self.forward = write(folder, case)
        self.has_eos = "joey" in write.__name__
        names = theirs.JOEY_TOKENS if self.has_eos else theirs.ONMT_TOKENS
        self.run = read_run(self.path)
        self.model = build_model(self.run.recipe, self.run.tokenizers)
        load_into_model(self.model, self.run.weights, location="test")
        self.model.double()
        ours = [names[1], names[0], *names[2:]]  # PAD, UNK, BOS, EOS
        self.ids = [names.index(name) for name in ours]

    def their_outputs(self, source, target):
        """Return their outputs for ids of ours; log-probabilities have our order."""
        source = [*source, EOS] if self.has_eos else source
        rows = [torch.tensor([self.ids[token] for token in ids]) for ids in (source, target)]
        states, weights, log_probs = self.forward(*rows)
        return states, weights, log_probs[:, self.ids]

    def encode(self, texts):
        return [self.run.tokenizers.source.encode(text) for text in texts]


def case_name(case):
    return f"{case[0].__name__}-{case[1]}"


FIRST = list({case[0]: case for case in reversed(CASES)}.values())  # one of each kind
OTHERS = [pytest.param(case, marks=pytest.mark.wide) for case in CASES if case not in FIRST]


@torch.no_grad()
@pytest.mark.parametrize("case", [*FIRST, *OTHERS], ids=case_name)
def test_states_attention_and_log_probabilities_match_the_library(case, tmp_path):
    imported = Imported(tmp_path, *case)
    pairs = list(zip(imported.encode(SOURCES), imported.encode(TARGETS), strict=True))
    batch = collate_pairs(pairs)
    encoded = imported.model._encode(batch.sources)
    output = imported.model(batch, need_weights=True)
    for row, (source, target) in enumerate(pairs):
        states, weights, log_probs = imported.their_outputs(source, [BOS, *target])
        length, steps = len(states), len(target) + 1
        torch.testing.assert_close(encoded.states[row, :length], states)
        torch.testing.assert_close(output.weights[row, :steps, :length], weights)
        torch.testing.assert_close(output.log_probs[row, :steps], log_probs)


class PlainModel:
    """Their forward pass as a model that is searched: all tokens so far, once per step."""

    def __init__(self, imported, source):
        self.imported, self.source = imported, source

    def step(self, tokens, state):
        state = torch.cat([state, tokens.unsqueeze(1)], dim=1)
        rows = [self.imported.their_outputs(self.source, row)[2][-1] for row in state.tolist()]
        return StepOutput(torch.stack(rows), state, torch.zeros(len(state), 1))


@torch.no_grad()
@pytest.mark.parametrize("beam_size", [pytest.param(1, marks=pytest.mark.wide), 3])
@pytest.mark.parametrize("case", FIRST, ids=case_name)
def test_greedy_and_beam_outputs_match_the_library(case, beam_size, tmp_path):
    imported = Imported(tmp_path, *case)
    sources = imported.encode(SOURCES[:2])
    options = BeamSearchOptions(processors=(ForbiddenTokens([PAD, BOS]),))
    limits = {"length_penalty": LengthPenalty(), "beam_size": beam_size, "options": options}
    found = imported.model.search(
        collate_sources(sources), max_lengths=torch.full((2,), 5), **limits
    )
    for source, hypotheses in zip(sources, found, strict=True):
        (expected,) = beam_search(
            PlainModel(imported, source),
            torch.empty(1, 0, dtype=torch.long),
            **{"bos": BOS, "eos": EOS, "max_lengths": torch.tensor([5])},
            **limits,
        )
        assert [list(item.tokens) for item in hypotheses] == [
            list(item.tokens) for item in expected
        ]


def test_run_folder_is_complete_in_itself(tmp_path):
    imported = Imported(tmp_path / "joey", joey_transformer, JOEY_TRANSFORMERS[0])
    recipe = import_run(imported.path, tmp_path / "run")
    for file in (tmp_path / "joey").iterdir():
        file.unlink()
    assert recipe.decoding.suppress_tokens == (PAD, BOS)
    assert (recipe.decoding.beam_size, recipe.decoding.max_length) == (3, 8)
    texts = [item.text for item in heedful.load(tmp_path / "run", device="cpu").translate(SOURCES)]
    assert len(texts) == len(SOURCES)
    assert set(" ".join(texts).split()) <= {*theirs.WORDS, "<unk>"}


def refused(path):
    with pytest.raises(DataError) as caught:
        read_run(path)
    return str(caught.value)


def test_unknown_settings_of_opennmt_raise_by_name(tmp_path):
    path = tmp_path / "m.pt"
    for change, message in (
        ({"copy_attn": True}, "opt.copy_attn is True, which heedful has no counterpart of"),
        ({"max_relative_positions": -1}, "opt.max_relative_positions is -1, which heedful has no"),
        ({"decoder_type": "cnn"}, "opt.decoder_type is 'cnn', which heedful has no counterpart of"),
        ({"heads": "two"}, "opt.heads must be of type int, but is 'two'"),
    ):
        options = ONMT_TRANSFORMER | {"src_word_vec_size": 8, "tgt_word_vec_size": 8} | change
        tensors = onmt_tables({}, (8, 8), options)
        theirs.write_onmt(path, tensors, options)
        assert refused(path).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("decoder", {"num_experts": 4}, "model.decoder.num_experts is 4"),
        ("decoder", {"decoder_type": "cnn"}, "model.decoder.decoder_type is 'cnn'"),
        ("encoder", {"encoder_layer_style": "postnorm"}, "model.encoder.encoder_layer_style is"),
        ("embeddings", {"position_encoding_type": "Rotary"}, "model.embeddings.position_encoding"),
        ("embeddings", {"position_encoding_type": None}, "model.embeddings.position_encoding"),
        ("", {"architecture": "transformer_lm"}, "model.architecture is 'transformer_lm'"),
        ("", {"layer_norm": "gemma-rms"}, "model.encoder.layer_norm is 'gemma-rms'"),
        ("", {"parallel_residual": True}, "model.encoder.parallel_residual is True"),
        ("", {"add_estimator": True}, "model.add_estimator is True"),
    ],
)
def test_unknown_settings_of_eole_raise_by_name(tmp_path, section, change, message):
    model = transformer_settings({})
    model |= {section: model[section] | change} if section else change
    folder = write_eole(tmp_path, {"generator.bias": torch.ones(2)}, model)
    found = refused(folder)
    assert found.startswith(f"{folder}/config.json: {message}")
    assert "which heedful has no counterpart of" in found


def test_eole_folder_without_weights_raises(tmp_path):
    folder, _ = eole_transformer(tmp_path, {})
    (folder / "model.00.safetensors").unlink()
    assert refused(folder) == (
        f"{folder}: has no model.00.safetensors\n  copy the whole folder of the model"
    )


def test_subword_codes_of_an_eole_folder_carried_over(tmp_path):
    folder, _ = eole_transformer(tmp_path, {})
    config = json.loads((folder / "config.json").read_text())
    config |= {"share_vocab": True, "transforms": ["bpe", "prefix"]}
    details = {"bpe": {"src_subword_model": "${MODEL_PATH}/my.codes"}}
    (folder / "config.json").write_text(json.dumps(config | {"transforms_configs": details}))
    assert "the file my.codes is missing" in refused(folder)
    (folder / "my.codes").write_text("#version: 0.2\nw 1</w>\n")
    run = read_run(folder)
    assert run.tokenizers.target.tokenize("w1 w2") == ["w1", "w@@", "2"]
    assert run.notes[1:] == ["apply these transforms to texts yourself: prefix"]
    assert (run.recipe.decoding.max_length_ratio, run.recipe.info.name) == (2.0, folder.name)


def test_unknown_settings_of_joeynmt_raise_by_name(tmp_path):
    case = JOEY_TRANSFORMERS[1]
    path, _ = joey_transformer(tmp_path, case)
    config = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config.replace("layer_norm: post", "alpha: 2"))
    assert refused(path) == (
        f"{tmp_path}/config.yaml: model.encoder.alpha is 2, which heedful has no counterpart of\n"
        "  models with one of these can be read: 1, 1.0"
    )
    (tmp_path / "config.yaml").write_text(config.replace("layer_norm: post\n", "freeze: false\n"))
    assert refused(path) == (
        f"{tmp_path}/config.yaml: model.encoder.layer_norm is 'pre', but there is no norm behind "
        "the last layer\n  JoeyNMT leaves it out where layer_norm is not set; heedful has no such "
        "encoder"
    )


def test_missing_and_misshapen_tensors_reported(tmp_path):
    path, _ = joey_recurrent(tmp_path, JOEY_RECURRENT[0])
    checkpoint = torch.load(path)
    state = checkpoint["model_state"]
    name = "decoder.att_vector_layer.bias"
    bias = state.pop(name)
    hint = "download or write the folder again; nothing was written"
    torch.save(checkpoint, path)
    assert refused(path) == f"{path}: the tensor {name} is missing\n  {hint}"
    state |= {name: bias[:4]}
    torch.save(checkpoint, path)
    message = f"the tensor {name} has shape (4,), but its settings need (10,)"
    assert refused(path) == f"{path}: {message}\n  {hint}"
    state |= {name: bias, "decoder.extra": bias}
    torch.save(checkpoint, path)
    message = "the tensor decoder.extra is of no known part of the model"
    assert refused(path) == f"{path}: {message}\n  {hint}"


def test_missing_files_and_other_checkpoints_reported(tmp_path):
    path, _ = joey_recurrent(tmp_path, JOEY_RECURRENT[0])
    (tmp_path / "trg_vocab.txt").unlink()
    assert refused(path) == (
        f"{tmp_path}: the file trg_vocab.txt is missing\n"
        "  copy it into the folder of the checkpoint"
    )
    (tmp_path / "config.yaml").unlink()
    assert refused(path) == (
        f"{path}: JoeyNMT writes config.yaml into the folder of its checkpoints, but there is none"
        "\n  copy the whole model folder: config.yaml, src_vocab.txt, trg_vocab.txt"
    )
    torch.save({"weights": torch.ones(2)}, path)
    assert refused(path) == (
        f"{path}: neither a checkpoint of JoeyNMT (model_state) nor of OpenNMT-py (model, vocab, "
        "opt)\n  it contains: weights"
    )


def test_nothing_is_written_for_a_checkpoint_with_code(tmp_path):
    path, _ = joey_recurrent(tmp_path / "joey", JOEY_RECURRENT[0])
    torch.save({"model_state": {}, "hook": print}, path)
    with pytest.raises(DataError, match=r"contains __builtin__\.print, which is not read"):
        import_run(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_subword_models_carried_over(tmp_path):
    """Codes of subword-nmt beside a checkpoint of JoeyNMT, and those that OpenNMT-py names."""
    codes = "#version: 0.2\nw 1</w>\n"
    path, _ = joey_recurrent(tmp_path / "joey", JOEY_RECURRENT[0])
    config = (tmp_path / "joey" / "config.yaml").read_text()
    details = "level: bpe\n    lowercase: true\n    tokenizer_type: subword-nmt\n    tokenizer_cfg:"
    details += "\n      codes: /elsewhere/my.codes\n      pretokenizer: moses"
    (tmp_path / "joey" / "config.yaml").write_text(config.replace("level: word", details))
    assert "the file my.codes is missing" in refused(path)
    (tmp_path / "joey" / "my.codes").write_text(codes)
    run = read_run(path)
    assert run.tokenizers.source.tokenize("w1 w2") == ["w1", "w@@", "2"]
    assert run.recipe.tokenizers.source.normalization.lowercase
    assert run.notes == [
        f"data.{side}: texts must be tokenized by moses first, as those of training"
        for side in ("src", "trg")
    ]
    options = SIZES | {
        "decoder_type": "rnn",
        "encoder_type": "brnn",
        "rnn_type": "GRU",
        "bridge": False,
    }
    options |= {"global_attention": "dot", "input_feed": 1, "transforms": ["bpe", "prefix"]}
    options |= {"src_word_vec_size": 5, "tgt_word_vec_size": 6, "src_subword_model": "my.codes"}
    options |= {"tgt_subword_model": "my.codes"}
    tensors = onmt_tables(theirs.onmt_recurrent_shapes(options), (5, 6), options)
    run = read_run(theirs.write_onmt(tmp_path / "joey" / "m.pt", tensors, options))
    assert run.tokenizers.target.tokenize("w1 w2") == ["w1", "w@@", "2"]
    search, transforms = run.notes
    assert search.startswith("decoding has the defaults of onmt_translate (beam 5, length_penalty")
    assert (run.recipe.decoding.length_penalty.type, run.recipe.decoding.max_length_ratio) == (
        "mean",
        1.25,
    )
    assert transforms == "apply these transforms to texts yourself: prefix"
