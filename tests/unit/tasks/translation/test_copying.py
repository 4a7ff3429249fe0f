"""Copying through the translator: exact spelling, constraints, shares, and settings that clash."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from heedful.data.text.batching import collate_pairs
from heedful.data.text.pair_dataset import InMemoryPairDataset, UnkAugmentedDataset
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import Request
from heedful.errors import ConfigError, DataError
from heedful.inspection.attention_map import AttentionMap, attention_data, render_svg
from heedful.inspection.attention_selection import AttentionSelection
from heedful.inspection.attention_trace import trace_attention
from heedful.inspection.run_report import group_by_step
from heedful.inspection.terminal_figures import terminal_heatmap
from heedful.models.copying import CopyHead
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.recipes.recipe import load_recipe
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.ragged_array import RaggedArray
from heedful.tokenization.special_texts import PositionTokenizer
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from tests.shape_checking import unchecked

SOURCE = "Zyx sees Qwrt, and Zyx smiles."
HEAD = "model.decoder.output_head"
SIZES = {"type": "recurrent", "embedding_size": 4, "hidden_size": 4}
TRANSFORMER = {
    "type": "transformer",
    "hidden_size": 4,
    "num_layers": 2,
    "attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}},
}


@pytest.fixture(autouse=True)
def without_shape_checks():
    with unchecked():
        yield


def open_tokenizers():
    tokenizer = WordTokenizerConfig(open_vocabulary=True).train(["sees and smiles ."])
    return TokenizerPair(tokenizer, tokenizer)


def copying_translator(decoder=SIZES, **settings):
    """A translator that can only copy."""
    torch.manual_seed(0)
    tokenizers, size = open_tokenizers(), len(open_tokenizers().source)
    config = EncoderDecoderConfig.model_validate(
        {"encoder": SIZES, "decoder": {**decoder, "output_head": {"type": "copy"}}}
    )
    model = config.build(source_vocab_size=size, target_vocab_size=size)
    head = model.decoder.output_head
    assert isinstance(head, CopyHead)
    torch.nn.init.constant_(head.copy_score.bias, 50.0)
    return Translator(model, tokenizers, DecodingConfig.model_validate(settings))


def test_open_vocabulary_numbers_unknown_words_by_first_position():
    tokenizers = open_tokenizers()
    size = len(tokenizers.source)
    (source,), (target,) = tokenizers.encode_pairs([SOURCE], ["Qwrt smiles at Zyx"])
    assert source[0] == source[5] == size  # Zyx, twice
    assert source[2] == size + 2  # Qwrt
    assert target[0] == size + 2
    assert target[3] == size
    assert target[2] == 1  # "at" is neither in the vocabulary nor in the source
    bound = tokenizers.for_source(SOURCE)
    assert bound.source.decode(source) == SOURCE
    assert bound.target.ids_to_tokens(target) == ["Qwrt", "smiles", "<unk>", "Zyx"]
    assert tokenizers.source.encode("Zyx") == [1]


def test_copied_words_spelled_exactly_with_shares():
    translator = copying_translator(beam_size=3, n_best=2)
    result = translator.translate(SOURCE)
    words = {"Zyx", "sees", "Qwrt", ",", "and", "smiles", "."}
    assert set(result.tokens) <= words
    assert "<unk>" not in result.text
    assert result.copy_probs is not None
    np.testing.assert_allclose(result.copy_probs, 1, atol=1e-6)
    saved = json.loads(json.dumps(result.to_json()))
    assert len(saved["copy_probs"]) == len(result.tokens)
    assert len(saved["alternatives"][0]["copy_probs"]) == len(result.alternatives[0].tokens)


def test_copied_shares_are_in_maps_of_every_layer_in_figures_pages_and_terminal():
    translator = copying_translator(TRANSFORMER)
    (result,) = translator.predict([Request(SOURCE, prefix="Qwrt smiles")], need_layers=True)
    layers, base, selection = result.attention_layers, result.attention_map, AttentionSelection
    maps = [
        base,
        *selection(["cross", "decoder-self", "copy"], ["all"]).select(layers, base),
        *selection(["cross"], joins_words=True).select(layers, base),
    ]
    assert len(maps) == 1 + 2 + 2 + 1 + 1
    for attention_map in maps:
        assert attention_map.target[0] == "Qwrt"
        count = len(attention_map.target)
        np.testing.assert_allclose(attention_map.copy_probs, np.ones(count), atol=1e-6)
        assert len(attention_map.to_json()["copy_probs"]) == count
        texts = [node.text for node in ElementTree.fromstring(render_svg(attention_map)).iter()]
        assert texts.count("100% copied") == count
        lines = terminal_heatmap(attention_map, width=1000).plain.splitlines()
        assert sum(line.endswith("100% copied") for line in lines) == count
        (view,) = attention_data([attention_map])["sentences"][0]["views"]
        assert view["notes"] == ["100% copied"] * count
    assert result.to_json()["copy_probs"] == pytest.approx(base.copy_probs)


def test_trace_records_probability_of_copying_each_position():
    translator = copying_translator()
    sides = translator.tokenizers.encode_pairs([SOURCE], ["Qwrt smiles"])
    batch = collate_pairs(list(zip(*sides, strict=True)))
    with trace_attention(translator.model) as records:
        translator.model(batch)
    (record,) = (record for record in records if record.role == "copy")
    assert record.module_path == "decoder.output_head"
    assert record.query_positions == (0, 1, 2)
    torch.testing.assert_close(record.weights.sum(-1), torch.ones(1, 1, 3))


def test_copied_shares_logged_with_samples_and_drawn_in_run_report():
    sample = {"step": 1, "source": ["Zyx"], "output": ["Zyx"], "attention": [[1.0]]}
    items = [
        group_by_step([sample | more])["validations"][0]["items"][0]
        for more in ({}, {"copy_probs": [0.97]}, {"copy_probs": ["no number"]})
    ]
    assert [item["notes"] for item in items] == [[""], ["97% copied"], []]


def test_maps_without_copying_have_no_notes():
    attention_map = AttentionMap(["a"], ["b"], np.ones((1, 1)))
    assert attention_map.notes == [""]
    assert "copy_probs" not in attention_map.to_json()
    assert "copied" not in render_svg(attention_map)
    assert "copied" not in terminal_heatmap(attention_map, width=80).plain


def test_forced_decoding_constraints_and_forbidden_phrases_reach_copied_words():
    translator = copying_translator()
    (scored,) = translator.score([(SOURCE, "Qwrt smiles")])
    assert scored.tokens == ["Qwrt", "smiles"]
    assert scored.log_prob > -100
    required = translator.translate(Request(SOURCE, required_phrases=["Qwrt Zyx"]))
    assert "Qwrt Zyx" in required.text
    forbidden = translator.translate(Request(SOURCE, prefix="Zyx", forbidden_phrases=["Qwrt"]))
    assert forbidden.text.startswith("Zyx")
    assert "Qwrt" not in forbidden.text
    with pytest.raises(DataError, match="no tokens for 'Brutus'"):
        translator.translate(Request(SOURCE, required_phrases=["Brutus"]))


def test_outputs_do_not_depend_on_other_texts():
    translator = copying_translator(sampling={"seed": 3})
    texts = [SOURCE, "Abc smiles.", "Abc and Def and Ghi and Jkl sees Mno."]
    together = [result.text for result in translator.translate(texts)]
    for index, text in enumerate(texts, start=1):
        (alone,) = translator.predict([text], start_index=index)
        assert alone.text == together[index - 1]


def test_hidden_words_can_be_spelled_again():
    sides = [[5, 6, 5, 7], [8, 9]], [[7, 5, 4], [9, 9]]
    dataset = InMemoryPairDataset(*map(RaggedArray.from_sequences, sides))
    rows, size = np.array([1, 0]), 10
    num_hidden = 0
    for epoch in range(20):
        hidden = UnkAugmentedDataset(dataset, size, 0.5, seed=0).for_epoch(epoch)
        again = UnkAugmentedDataset(dataset, size, 0.5, seed=0).for_epoch(epoch).select(rows[::-1])
        selected = hidden.select(rows)
        for index, row in enumerate(rows.tolist()):
            source, target = (side.get(index) for side in selected)
            assert [source, target] == [side.get(1 - index) for side in again]
            spelled = [
                [sides[0][row][word - size] if word >= size else word for word in side]
                for side in (source, target)
            ]
            assert spelled == [sides[0][row], sides[1][row]]
            assert all(word in source for word in target if word >= size)
            num_hidden += len({word for word in source if word >= size})
    assert 15 <= num_hidden <= 45  # of 60 chances


def test_position_tokenizer_writes_positions_from_one():
    source = WordTokenizerConfig().train(["c a b"])
    tokenizers = TokenizerPair(source, PositionTokenizer())
    (ids,), (target,) = tokenizers.encode_pairs(["c a b"], ["2 3 1"])
    assert target == [5, 6, 4]
    assert tokenizers.target.decode(target) == "2 3 1"
    assert tokenizers.target.ids_to_tokens(target) == ["2", "3", "1"]
    with pytest.raises(DataError, match="'4' is no position of a source of 3 tokens"):
        tokenizers.encode_pairs(["c a b"], ["4"])
    config = EncoderDecoderConfig.model_validate(
        {"encoder": SIZES, "decoder": {**SIZES, "output_head": {"type": "pointer"}}}
    )
    model = config.build(source_vocab_size=len(source), target_vocab_size=len(tokenizers.target))
    result = Translator(model, tokenizers, DecodingConfig(beam_size=2)).translate("c a b")
    assert set(result.text.split()) <= {"1", "2", "3"}
    log_probs = model(collate_pairs([(ids, target)])).log_probs.exp()
    torch.testing.assert_close(log_probs.sum(-1), torch.ones(1, 4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tokenizers.type=separate"], "copying needs the same token ids in source and target"),
        ([f"{HEAD}.type=softmax"], "only an output head that copies"),
        (["training.label_smoothing=0.1"], "most tokens of an extended vocabulary"),
        (
            [
                "model.decoder.output_head.type=pointer",
                "tokenizers.tokenizer.open_vocabulary=false",
            ],
            "need one another",
        ),
    ],
)
def test_settings_that_clash_with_copying_reported(settings, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("pointer-generator-2017", settings)
