"""Embedding files: the vectors of word2vec and GloVe, which words have one, and errors."""

import gzip

import pytest
import torch

import heedful
from heedful.errors import ConfigError, DataError
from heedful.experiment.embedding_files import load_embedding_file
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.tasks.classification.model import TextClassifierConfig
from heedful.tokenization.tokenizer import WordTokenizerConfig
from tests.labeled_texts import write_labeled_recipe

GLOVE = "servus 1 2 3\nPuella 4 5 6\nhortus -1 0 0.5\n. 7 8 9\n. . . 1 1 1\n"
WORD2VEC = f"4 3\n{GLOVE.replace(' 3', ' 3 ')}"  # with a header, and spaces at line ends
SOURCES = WordTokenizerConfig().train(["Servus puella in hortus servus."])
TARGETS = WordTokenizerConfig().train(["the slave"])
EMBEDDED = {"servus": [1, 2, 3], "Servus": [1, 2, 3], "hortus": [-1, 0, 0.5], ".": [7, 8, 9]}


def build(settings=None):
    side = {"embedding_size": 3, "hidden_size": 4}
    config = EncoderDecoderConfig.model_validate(
        {"encoder": side, "decoder": side} | (settings or {})
    )
    sizes = {"source_vocab_size": len(SOURCES), "target_vocab_size": len(TARGETS)}
    return config.build(**sizes).eval()


def load(model, log=None, **paths):
    log = [] if log is None else log
    tokenizers = {"source": SOURCES, "target": TARGETS}
    for name, path in paths.items():
        load_embedding_file(model, name, str(path), tokenizers[name], log.append)


@pytest.mark.parametrize("text", [GLOVE, WORD2VEC])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_words_get_the_vectors_of_the_file_and_others_keep_theirs(text, suffix, tmp_path):
    path = tmp_path / f"vectors{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix == ".txt.gz" else text.encode())
    model, log = build(), []
    before = model.encoder.embedding.embedding.weight.clone()
    load(model, log, source=path)
    tokens = SOURCES.ids_to_tokens(range(len(SOURCES)))
    for token_id, token in enumerate(tokens):
        expected = torch.tensor(EMBEDDED[token]) if token in EMBEDDED else before[token_id]
        embedded = model.encoder.embedding(torch.tensor([token_id]))
        torch.testing.assert_close(embedded[0], expected.float())
    assert log == [f"embeddings: {path}: vectors of 4 of 6 source tokens (66.7%)"]


def test_scaled_embeddings_equal_the_vectors_too(tmp_path):
    (tmp_path / "vectors.txt").write_text("slave 1 2 3 4\n", encoding="utf-8")
    settings = {"type": "transformer", "hidden_size": 4, "positional_encoding": None}
    attention = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
    model = build({"decoder": settings | {"attention": attention}})
    load(model, target=tmp_path / "vectors.txt")
    embedded = model.decoder.embedding(torch.tensor(TARGETS.encode("the slave")))
    torch.testing.assert_close(embedded[1], torch.tensor([1.0, 2.0, 3.0, 4.0]))


def test_language_model_has_one_embedding(tmp_path):
    (tmp_path / "vectors.txt").write_text(GLOVE, encoding="utf-8")
    config = LanguageModelConfig.model_validate({"embedding_size": 3})
    model = config.build(source_vocab_size=len(SOURCES), target_vocab_size=len(SOURCES))
    load(model, source=tmp_path / "vectors.txt")
    (token_id,) = SOURCES.encode("servus")
    assert model.embedding.embedding.weight[token_id].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("servus 1 2\n", "is {path}, with vectors of size 2, but embeddings have 3"),
        ("9 300\nservus 1 2\n", "is {path}, with vectors of size 300, but embeddings have 3"),
        ("dominus 1 2 3\n", "{path} has none of the 6 tokens, such as 'Servus'"),
    ],
)
def test_file_that_does_not_fit_raises(text, problem, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(build(), source=path)
    assert caught.value.location == "training.init_embeddings.source"
    assert caught.value.message == problem.format(path=path)


@pytest.mark.parametrize("line", ["servus 1 x 3", "servus 1 2", "servus 1 nan 3"])
def test_damaged_line_is_named(line, tmp_path):
    (tmp_path / "vectors.txt").write_text(f"puella 4 5 6\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load(build(), source=tmp_path / "vectors.txt")
    assert str(caught.value) == (
        f"{tmp_path / 'vectors.txt'}:2: is no line of a token and 3 finite numbers\n"
        "  give a text file of word2vec, GloVe or fastText"
    )


def test_binary_file_is_rejected_by_name():
    with pytest.raises(DataError, match="binary files of word2vec are not read"):
        load(build(), source="vectors.bin")


def test_model_without_target_embeddings_raises(tmp_path):
    config = TextClassifierConfig.model_validate({"encoder": {"type": "bag-of-words"}})
    model = config.build(source_vocab_size=len(SOURCES), target_vocab_size=6)
    with pytest.raises(ConfigError) as caught:
        load(model, target=tmp_path / "vectors.txt")
    assert str(caught.value) == (
        "training.init_embeddings.target: this model has no target embeddings of its own\n"
        "  remove it"
    )


def test_training_starts_from_the_vectors_and_reports_them(tmp_path):
    recipe, data = write_labeled_recipe(tmp_path, steps=1, every=1)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("cat" + " 0.5" * 16 + "\n", encoding="utf-8")
    settings = {
        "training.init_embeddings.source": str(vectors),
        "training.optimizer.learning_rate": 1e-9,
    }
    heedful.train(recipe, tmp_path / "run", labeled=data, settings=settings)
    classifier = heedful.load(tmp_path / "run")
    (token_id,) = classifier.tokenizers.source.encode("cat")
    weight = classifier.model.encoder.embedding.embedding.weight[token_id]
    torch.testing.assert_close(weight, torch.full((16,), 0.5))
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert f"embeddings: {vectors}: vectors of 1 of 12 source tokens (8.3%)" in log


@pytest.mark.parametrize("name", ["missing.txt", "vectors.bin"])
def test_file_that_cannot_be_read_is_reported_before_writing(tmp_path, name):
    recipe, data = write_labeled_recipe(tmp_path, steps=1, every=1)
    settings = {"training.init_embeddings.source": str(tmp_path / name)}
    with pytest.raises(DataError, match=name):
        heedful.train(recipe, tmp_path / "run", labeled=data, settings=settings)
    assert not (tmp_path / "run").exists()
