"""Attention of self-attentive cells to their own past states, drawn like any other attention."""

import numpy as np
import pytest
import torch

from heedful.data.text.token_stream import LMBatchingConfig
from heedful.inspection import attention_lines, attention_map
from heedful.inspection.attention_layers import collect_layers, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_selection import AttentionSelection
from heedful.inspection.attention_trace import TraceRecord
from heedful.models.language_model import LanguageModelConfig, RecurrentBackboneConfig
from heedful.tasks.language_modeling.generator import TextGenerator
from heedful.tokenization.tokenizer import WordTokenizerConfig
from tests.catalogue import INTRA_ATTENTION_CELLS, SYSTEMS
from tests.unit.inspection.test_attention_layers import select, translate

ENCODER_DECODERS = [f"{cell} in both" for cell in INTRA_ATTENTION_CELLS] + ["deep fusion"]
each_cell = pytest.mark.parametrize("cell", INTRA_ATTENTION_CELLS)


def check_reads_word_by_word(drawn: AttentionMap) -> None:
    """Each word but the first attends to the words before it, and only to these."""
    assert list(drawn.source) == list(drawn.target)
    assert not np.triu(drawn.weights).any()
    np.testing.assert_allclose(drawn.weights[1:].sum(axis=1), 1, atol=1e-5)


def record(weights: list[float], path: str = "encoder.forward_cell.attention") -> TraceRecord:
    return TraceRecord(path, "intra", 0, (0,), torch.tensor([[[weights]]]))


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_intra_attention_is_drawn_of_encoders_and_decoders(name):
    result = translate(name)
    (encoder,) = select(result, ["encoder-intra"])
    (decoder,) = select(result, ["decoder-intra"])
    assert list(encoder.source) == result.source_tokens
    assert list(decoder.source) == ["(start)", *result.tokens[:-1]]
    for drawn in (encoder, decoder):
        check_reads_word_by_word(drawn)
        assert 'data-weight="1"' in attention_map.render_svg(drawn)
        assert 'data-weight="1"' in attention_lines.render_svg(drawn)


@each_cell
def test_prefix_language_model_reads_source_and_target_word_by_word(cell):
    result = translate(f"prefix LM, {cell}")
    (drawn,) = select(result, ["intra"])
    assert list(drawn.source) == [*result.source_tokens, "(start)", *result.tokens[:-1]]
    check_reads_word_by_word(drawn)


@each_cell
def test_backward_cells_attend_to_later_words(cell, monkeypatch):
    both = SYSTEMS[f"{cell} in both"]
    encoder = {**both["encoder"], "direction": "bidirectional"}
    monkeypatch.setitem(SYSTEMS, "bidirectional", {**both, "encoder": encoder})
    result = translate("bidirectional")
    check_reads_word_by_word(select(result, ["encoder-intra"])[0])
    (drawn,) = select(result, ["encoder-intra-backward"])
    assert drawn.caption == "encoder intra-attention, backward"
    assert not np.tril(drawn.weights).any()
    np.testing.assert_allclose(drawn.weights[:-1].sum(axis=1), 1, atol=1e-5)


@each_cell
def test_language_model_shows_intra_attention_by_default(cell):
    tokenizer = WordTokenizerConfig().train(["a b c d"])
    backbone = RecurrentBackboneConfig(hidden_size=8, cell=cell)
    model = LanguageModelConfig(backbone=backbone, embedding_size=4).build(
        source_vocab_size=len(tokenizer), target_vocab_size=len(tokenizer)
    )
    generator = TextGenerator(model, tokenizer, LMBatchingConfig(context_length=10))
    (result,) = generator.predict(["a b c d"], need_layers=True)
    (drawn,) = AttentionSelection().select(result.attention_layers, AttentionMap.empty("a b c d"))
    assert drawn.caption == "intra-attention"
    check_reads_word_by_word(drawn)


def test_rows_of_intra_attention_are_the_words_that_load():
    axis, output = without_words(["a", "b", "c"]), without_words(["x", "y", "z"])
    records = [record([1.0]), record([0.25, 0.75])]
    (layer,) = collect_layers(records, lambda _: ("decoder-intra", output, axis))
    assert layer.queries is axis
    assert layer.weights[0].tolist() == [[0, 0, 0], [1, 0, 0], [0.25, 0.75, 0]]


def test_backward_intra_attention_is_in_the_order_of_the_text():
    axis, path = without_words(["a", "b", "c"]), "encoder.backward_cell.attention"
    records = [record([1.0], path), record([0.25, 0.75], path)]
    (layer,) = collect_layers(records, lambda _: ("encoder-intra", axis, axis))
    assert layer.kind == "encoder-intra-backward"
    assert layer.weights[0].tolist() == [[0, 0.75, 0.25], [0, 0, 1], [0, 0, 0]]
