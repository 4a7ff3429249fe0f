"""Models with an encoder from a Hugging Face folder: what is copied, tuned, shown and refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import heedful
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.experiment import train
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS
from tests.hf_encoders import write_encoder, write_gpt2
from tests.labeled_texts import labeled_lines

TRAINING = {
    "max_steps": 2,
    "validate_every": 2,
    "batching": {"max_tokens": 200},
    "lr_scheduler": {"type": "constant"},
    "optimizer": {"learning_rate": 1e-2},
}
CLASSIFIER = {
    "tokenizers": {"type": "separate", "source": {"type": "word"}, "target": {"type": "label"}},
    "model": {"type": "text-classifier", "dropout": 0},
    "training": TRAINING | {"metric_for_best_model": "loss"},
}
TAGGER = {
    "tokenizers": {
        "type": "separate",
        "source": {"type": "whitespace"},
        "target": {"type": "whitespace"},
    },
    "model": {"type": "sequence-tagger", "dropout": 0},
    "training": TRAINING,
}
TRANSLATOR = {
    "tokenizers": {"type": "separate", "source": {"type": "word"}, "target": {"type": "word"}},
    "model": {
        "decoder": {
            "type": "transformer",
            "hidden_size": 8,
            "num_layers": 1,
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
        }
    },
    "training": TRAINING,
}
PREFIX = "encoder.features.model."


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Write a random BERT without an output layer; return its folder."""
    folder = tmp_path_factory.mktemp("hf") / "bert"
    write_encoder(folder, "bert", has_head=False)
    return folder


@pytest.fixture
def files(tmp_path):
    """Write labeled texts, tagged words and pairs."""
    (tmp_path / "labeled.tsv").write_text("\n".join(labeled_lines(20)) + "\n")
    words = [("The", "DET"), ("unhappy", "ADJ"), ("lions", "NOUN"), ("don't", "VERB")]
    sentence = "".join(f"{word}\t{tag}\n" for word, tag in words) + "\n"
    (tmp_path / "tagged.conll").write_text(sentence * 12)
    (tmp_path / "source.txt").write_text("the lion walks\nunhappy lions\n" * 10)
    (tmp_path / "target.txt").write_text("leo ambulat\nleones\n" * 10)
    return tmp_path


def with_encoder(recipe, folder, **encoder):
    model = {**recipe["model"], "encoder": {"type": "pretrained", "path": str(folder), **encoder}}
    return {**recipe, "model": model}


def train_classifier(folder, files, name="run", **encoder):
    recipe = with_encoder(CLASSIFIER, folder, **encoder)
    train(recipe, files / name, labeled=files / "labeled.tsv", device="cpu")
    return files / name


def changed_parts(run, folder):
    """Return the parts of the encoder whose parameters differ from those of the folder."""
    weights = load_file(run / "weights.safetensors")
    theirs = load_file(folder / "model.safetensors")
    ours = {"embeddings": "embedding.position_combiner.encoding.embedding.weight"}
    names = {"embeddings": "embeddings.position_embeddings.weight"}
    for index in range(3):
        projection = "self_attention.attention.query_projection.weight"
        ours[f"layer {index}"] = f"stack.layers.{index}.{projection}"
        names[f"layer {index}"] = f"encoder.layer.{index}.attention.self.query.weight"
    parts = [part for part in ours if PREFIX + ours[part] in weights]
    changed = [p for p in parts if not torch.equal(weights[PREFIX + ours[p]], theirs[names[p]])]
    return parts, changed


@pytest.mark.parametrize(
    ("encoder", "num_layers", "expected"),
    [
        ({}, 3, []),
        ({"layers": 2}, 2, []),
        ({"tune": "top-1", "pool": "scalar-mix"}, 3, ["layer 2"]),
        ({"tune": "top-2", "layers": 2}, 2, ["layer 0", "layer 1"]),
        ({"tune": "all"}, 3, ["embeddings", "layer 0", "layer 1", "layer 2"]),
    ],
    ids=["frozen", "two layers", "top layer", "both of two layers", "all"],
)
def test_layers_are_kept_and_tuned_as_set(encoder, num_layers, expected, bert, files):
    run = train_classifier(bert, files, **encoder)
    parts, changed = changed_parts(run, bert)
    assert len(parts) == 1 + num_layers
    assert changed == expected


def test_run_is_complete_without_the_folder(bert, files):
    copied = shutil.copytree(bert, files / "bert")
    run = train_classifier(copied, files, tune="all")
    before = heedful.load(run, device="cpu").classify("the unhappy lion")
    shutil.rmtree(copied)
    classifier = heedful.load(run, device="cpu")
    assert classifier.classify("the unhappy lion").probabilities == before.probabilities
    assert before.source_tokens == ["the", "un", "##happy", "lion", "(end)"]
    recipe = with_encoder(CLASSIFIER, copied, tune="all")
    recipe["training"] = TRAINING | {"metric_for_best_model": "loss", "max_steps": 4}
    assert train(recipe, run, labeled=files / "labeled.tsv", device="cpu").step == 4


def test_attention_of_each_layer_is_shown_with_bos(bert, files):
    run = train_classifier(bert, files)
    (result,) = heedful.load(run, device="cpu").predict_with_attention(["the unhappy lion"])
    kinds = [layer.kind for layer in result.attention_layers]
    assert kinds == ["encoder-self"] * 3 + ["pooling"]
    first = result.attention_layers[0]
    assert first.keys.tokens == ["(start)", "the", "un", "##happy", "lion", "(end)"]
    assert first.weights.shape == (4, 6, 6)
    words = [label for label, _ in first.keys.groups()]
    assert words == ["(start)", "the", "unhappy", "lion", "(end)"]


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert"])
def test_tagger_has_a_tag_for_the_first_piece_of_each_word(model_type, files):
    folder = files / "model"
    write_encoder(folder, model_type)
    recipe = with_encoder(TAGGER, folder)
    train(recipe, files / "run", conll=files / "tagged.conll", device="cpu")
    tagger = heedful.load(files / "run", device="cpu")
    words = ["unhappy", "\u200b", "lions", "don't"]
    (result,) = tagger.predict_with_attention([words])
    assert len(result.tags) == len(words)
    tokenizer, model = tagger.tokenizers.source, tagger.model
    ids = tokenizer.encode(" ".join(words))
    firsts = [index for index, token in enumerate(ids) if token < len(tokenizer)]
    assert len(firsts) == len(words) < len(ids)
    # By hand: the states of all pieces, of which those of first pieces are scored.
    pieces = torch.tensor([[*(token % len(tokenizer) for token in ids), 3]])
    states = model.encoder(pieces, torch.tensor([pieces.size(1)])).states[0, firsts]
    expected = model.output_projection(states).softmax(-1)
    torch.testing.assert_close(torch.from_numpy(result.probabilities), expected)
    layer = result.attention_layers[0]
    assert layer.weights.shape[1:] == (len(ids) + 2, len(ids) + 2)
    assert [label for label, _ in layer.keys.groups()] == ["(start)", *words, "(end)"]


def test_batch_of_tagged_sentences_matches_single_sentences(bert, files):
    train(with_encoder(TAGGER, bert), files / "run", conll=files / "tagged.conll", device="cpu")
    tagger = heedful.load(files / "run", device="cpu")
    sentences = ["unhappy lions walk", "the", "don't walk in the garden lions"]
    for together, sentence in zip(tagger.tag(sentences), sentences, strict=True):
        alone = tagger.tag(sentence).probabilities
        torch.testing.assert_close(*map(torch.from_numpy, (together.probabilities, alone)))


def test_translation_model_has_a_new_decoder(bert, files):
    recipe = with_encoder(TRANSLATOR, bert)
    texts = {"source": files / "source.txt", "target": files / "target.txt"}
    train(recipe, files / "run", **texts, device="cpu")
    settings = {"decoding.min_length": 2}
    translator = heedful.load(files / "run", device="cpu", settings=settings)
    (result,) = translator.predict_with_attention(["the lion"])
    kinds = {layer.kind for layer in result.attention_layers}
    assert kinds == {"encoder-self", "decoder-self", "cross"}
    _, changed = changed_parts(files / "run", bert)
    assert changed == []


def test_gpt2_can_be_an_encoder(files):
    write_gpt2(files / "gpt2")
    run = train_classifier(files / "gpt2", files)
    assert heedful.load(run, device="cpu").classify("the lion").text


def test_tokenizer_of_the_folder_is_copied(bert, files):
    run = train_classifier(bert, files)
    saved = json.loads((run / "tokenizers" / "source" / "vocabulary.json").read_text())["tokens"]
    theirs = json.loads((bert / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(saved) + NUM_SPECIAL_TOKENS + 1 == len(theirs)  # and the mask
    assert [theirs[token] for token in saved] == sorted(theirs[token] for token in saved)


def damage(folder, files, change):
    """Copy a folder, change its tensors, and return it."""
    target = shutil.copytree(folder, files / "damaged")
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors")
    return target


def test_missing_tensor_is_an_error_before_anything_is_written(bert, files):
    folder = damage(bert, files, lambda tensors: tensors.pop("encoder.layer.1.output.dense.bias"))
    with pytest.raises(DataError) as error:
        train_classifier(folder, files)
    assert str(error.value) == (
        f"{folder}: the tensor encoder.layer.1.output.dense.bias is missing\n"
        "  download or write the folder again; nothing was written"
    )
    assert not (files / "run").exists()


def test_wrong_vocabulary_size_is_an_error(bert, files):
    folder = shutil.copytree(bert, files / "damaged")
    config = json.loads((folder / "config.json").read_text())
    size = config["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": size + 1}))
    with pytest.raises(DataError) as error:
        train_classifier(folder, files)
    assert str(error.value) == (
        f"{folder / 'config.json'}: vocab_size is {size + 1}, but the tokenizer has {size} tokens\n"
        "  download or write the folder again; nothing was written"
    )


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (
            {"tune": "top-4"},
            "model.encoder.tune: is 'top-4', but the model has 3 layers\n"
            "  lower it, or set it to 'all'",
        ),
        (
            {"layers": 4},
            "model.encoder.layers: is 4, but the model of {folder} has 3 layers\n"
            "  lower it, or set it to 'all'",
        ),
    ],
)
def test_layers_that_the_model_does_not_have_are_errors(encoder, message, bert, files):
    with pytest.raises(ConfigError) as error:
        train_classifier(bert, files, **encoder)
    assert str(error.value) == message.format(folder=bert)


def test_folder_of_nothing_known_is_an_error(files):
    (files / "other").mkdir()
    (files / "other" / "readme.txt").write_text("nothing")
    with pytest.raises(HeedfulError) as error:
        train_classifier(files / "other", files)
    assert "not a model that can be imported" in str(error.value)
    assert not (files / "run").exists()
