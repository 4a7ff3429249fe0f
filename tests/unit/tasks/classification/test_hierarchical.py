"""Hierarchical attention networks: sentences, masks, one sentence, and both levels of attention."""

import numpy as np
import pytest
import torch

import heedful
from heedful.data.text.batching import collate_sources
from heedful.errors import ConfigError
from heedful.models.text_encoders import SentenceBatch
from heedful.recipes import load_recipe
from heedful.tasks.classification.model import TextClassifierConfig
from heedful.tokenization.special_texts import SENTENCE_END_ID, SentenceWordTokenizerConfig
from heedful.tokenization.tokenizer import WordTokenizerConfig
from tests.labeled_texts import labeled_lines

END = SENTENCE_END_ID
TEXTS = [[5, 6, 7, END, 8, 9], [9, 6], [5, END, 6, END, 7, 8, 9, 10]]
LEVEL = {"type": "recurrent", "embedding_size": 8, "hidden_size": 8}
SETTINGS = {
    "encoder": {"type": "hierarchical", "words": LEVEL, "sentences": LEVEL},
    "pooling": "attention",
}


def build():
    torch.manual_seed(0)
    config = TextClassifierConfig.model_validate(SETTINGS)
    return config.build(source_vocab_size=12, target_vocab_size=4 + 3).double().eval()


def test_tokenizer_marks_sentences_and_keeps_the_text():
    text = 'Salve! "Quis es?" Marcus sum. Vale...'
    tokenizer = SentenceWordTokenizerConfig().train([text])
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    marks = [index for index, token in enumerate(ids) if token == END]
    sentences = np.split(np.array(tokenizer.ids_to_tokens(ids)), marks)
    assert [" ".join(part).replace("<sentence> ", "") for part in sentences] == [
        "Salve !",
        '" Quis es ? "',
        "Marcus sum .",
        "Vale . . .",
    ]
    words = WordTokenizerConfig().train([text])
    unmarked = [token for token in tokenizer.ids_to_tokens(ids) if token != "<sentence>"]
    assert unmarked == words.ids_to_tokens(words.encode(text))


def test_texts_cut_after_each_mark():
    sources = collate_sources(TEXTS)
    batch = SentenceBatch.from_texts(sources.tokens, sources.lengths)
    assert batch.num_sentences.tolist() == [2, 1, 3]
    rows = [row[:length].tolist() for row, length in zip(batch.tokens, batch.lengths, strict=True)]
    assert rows == [[5, 6, 7, END], [8, 9, 3], [9, 6, 3], [5, END], [6, END], [7, 8, 9, 10, 3]]


def test_padding_has_no_influence():
    model = build()
    together, _ = model.classify(collate_sources(TEXTS))
    alone = [model.classify(collate_sources([text]))[0][0] for text in TEXTS]
    torch.testing.assert_close(together, torch.stack(alone))
    sources = collate_sources(TEXTS)
    noise = torch.randint(4, 12, (len(TEXTS), 6))  # marks, too, in padding
    padded = sources._replace(tokens=torch.cat([sources.tokens, noise], dim=1))
    torch.testing.assert_close(model.classify(padded)[0], together)


def test_one_sentence_is_the_flat_case():
    """Its words are pooled as by a flat encoder; a second level reads this one vector."""
    model, sources = build(), collate_sources([[9, 6, 5], [7]])
    encoder = model.encoder
    flat = encoder.words(sources.tokens, sources.lengths)
    pooled = encoder.pooling(flat.states, flat.mask.squeeze(1)).unsqueeze(1)
    expected = encoder.sentences.encode(pooled, torch.ones(2, dtype=torch.long), False).states
    encoded = encoder(sources.tokens, sources.lengths)
    torch.testing.assert_close(encoded.states, expected)
    # Attention to one sentence is 1: the classifier reads its state.
    logits = model.output_projection(expected.squeeze(1))
    torch.testing.assert_close(model.classify(sources)[0], logits.log_softmax(dim=-1))


def test_order_of_sentences_has_influence():
    model = build()
    swapped, _ = model.classify(collate_sources([[8, 9, 5, END, 6, 7]]))
    before, _ = model.classify(collate_sources([[6, 7, END, 8, 9, 5]]))
    assert not torch.allclose(swapped, before)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hierarchical")
    lines = [f"{line}. It is near." for line in labeled_lines(60)]
    (folder / "labeled.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = {"type": "text-classifier", "dropout": 0.0, **SETTINGS}
    tokenizers = {"source": {"type": "sentence-word"}, "target": {"type": "label"}}
    recipe = {
        "tokenizers": {"type": "separate", **tokenizers},
        "model": model,
        "training": {"max_steps": 1},
    }
    heedful.train(recipe, folder / "run", labeled=folder / "labeled.tsv")
    return heedful.load(folder / "run")


def test_word_weights_sum_to_the_weight_of_sentence(classifier):
    text = "The big cat. It is old, and near. One rose."
    (result,) = classifier.predict([text], need_layers=True)
    assert result.weights.sum() == pytest.approx(1, abs=1e-5)
    assert len(result.weights) == len(result.source_tokens)
    layers = {layer.kind: layer for layer in result.attention_layers}
    sentences, words = layers["pooling"].weights[0, 0], layers["encoder-pooling"].weights[0]
    assert words.shape == (3, len(result.source_tokens))
    assert words.sum(axis=-1) == pytest.approx(np.ones(3), abs=1e-5)
    assert sentences @ words == pytest.approx(result.weights, abs=1e-5)
    together = classifier.classify([text, "A cat."])[0]
    assert together.weights == pytest.approx(result.weights, abs=1e-5)


def test_recipe_needs_a_tokenizer_of_sentences():
    with pytest.raises(ConfigError) as caught:
        load_recipe("yang-2016", ["tokenizers.source.type=word"])
    assert str(caught.value) == (
        "tokenizers.source.type: a hierarchical encoder reads sentences, which this tokenizer "
        "does not mark\n  set tokenizers.source.type to 'sentence-word'"
    )
