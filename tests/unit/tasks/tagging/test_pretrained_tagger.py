"""A tagger reads the states of a language model: words of its vocabulary, with characters."""

import pytest
import torch
from safetensors.torch import load_file

import heedful
from heedful.errors import ConfigError
from heedful.experiment import train
from heedful.runs import Run

SENTENCES = ["the cat sees the old rose", "a rose grows", "the old cat sleeps"] * 4
TAGS = {"the": "DET", "a": "DET", "old": "ADJ", "cat": "NOUN", "rose": "NOUN"}
LM = {
    "data": {"lm_batching": {"batch_size": 2, "context_length": 8}},
    "model": {
        "type": "language-model",
        "embedding_size": 6,
        "backbone": {"hidden_size": 6, "num_layers": 2},
    },
    "training": {"max_steps": 1, "validate_every": 1},
}


def train_tagger(folder, tokenizer, *, source="word-character", characters="convolution"):
    """Train a language model with this tokenizer, and a tagger on its states; return the run."""
    (folder / "text.txt").write_text("\n".join(SENTENCES) + "\n")
    lines = ("".join(f"{w}\t{TAGS.get(w, 'VERB')}\n" for w in s.split()) for s in SENTENCES)
    (folder / "tagged.conll").write_text("\n".join(lines) + "\n")
    tokenizers = {"type": "shared", "tokenizer": {"type": tokenizer, "max_vocab_size": 9}}
    lm = {**LM, "tokenizers": tokenizers}
    train(lm, folder / "lm", text=folder / "text.txt", device="cpu")
    encoder = {
        "type": "pretrained",
        "path": str(folder / "lm"),
        "pool": "scalar-mix",
        "encoder": {"type": "recurrent", "embedding_size": 4, "hidden_size": 4},
    }
    sides = {"source": {"type": source}, "target": {"type": "whitespace"}}
    conll = {"type": "conll", "path": str(folder / "tagged.conll")}
    recipe = {
        "data": {"train": conll, "dev": conll},
        "tokenizers": {"type": "separate", **sides},
        "model": {"type": "sequence-tagger", "encoder": encoder, "characters": characters},
        "training": {"max_steps": 2, "validate_every": 2, "optimizer": {"learning_rate": 0.01}},
    }
    train(recipe, folder / "tagger", device="cpu")
    return folder / "tagger"


@pytest.mark.parametrize(
    ("source", "characters"), [("word-character", "convolution"), ("whitespace", None)]
)
@pytest.mark.wide
def test_tagger_has_the_words_and_the_states_of_a_language_model(source, characters, tmp_path):
    run = train_tagger(tmp_path, "whitespace", source=source, characters=characters)
    config = Run(run).read_recipe().tokenizers.source
    assert (config.type, config.max_vocab_size) == (source, 9)
    vocabularies = [tmp_path / "lm/tokenizers/shared", run / "tokenizers/source"]
    assert len({(path / "vocabulary.json").read_bytes() for path in vocabularies}) == 1
    initial, weights = (load_file(path / "weights.safetensors") for path in (tmp_path / "lm", run))
    prefix = "encoder.embedding.embedding.features.model."
    copied = {name: weight for name, weight in weights.items() if name.startswith(prefix)}
    assert copied
    for name, weight in copied.items():
        assert torch.equal(weight, initial[name.removeprefix(prefix)])
    assert len(heedful.load(run, device="cpu").tag(["the old unicorn sleeps"])[0].tags) == 4


def test_language_model_that_splits_words_otherwise_raises(tmp_path):
    with pytest.raises(ConfigError) as error:
        train_tagger(tmp_path, "word")
    assert str(error.value) == (
        f"model.encoder.path={tmp_path / 'lm'}: the tokenizer of that model has type 'word', but "
        "a sequence-tagger needs words that are separated by spaces\n"
        "  name a model with another tokenizer"
    )
    assert not (tmp_path / "tagger").exists()
