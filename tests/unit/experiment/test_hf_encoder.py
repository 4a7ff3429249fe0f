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

pytestmark = pytest.mark.wide

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
def files(tmp_path_factory):
    """Write labeled texts, tagged words and pairs."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "labeled.tsv").write_text("\n".join(labeled_lines(20)) + "\n")
    words = [("The", "DET"), ("unhappy", "ADJ"), ("lions", "NOUN"), ("don't", "VERB")]
    sentence = "".join(f"{word}\t{tag}\n" for word, tag in words) + "\n"
    (folder / "tagged.conll").write_text(sentence * 12)
    (folder / "source.txt").write_text("the lion walks\nunhappy lions\n" * 10)
    (folder / "target.txt").write_text("leo ambulat\nleones\n" * 10)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Write a random BERT without an output layer; return its folder."""
    folder = tmp_path_factory.mktemp("hf") / "bert"
    write_encoder(folder, "bert", has_head=False)
    return folder


TUNED = {"tune": "top-1", "pool": "scalar-mix"}


@pytest.fixture(scope="module")
def classifier_run(bert, files):
    """Train a classifier with an encoder whose folder is then removed; return its run."""
    copied = shutil.copytree(bert, files / "bert")
    run = train_classifier(copied, files, files / "classifier", **TUNED)
    shutil.rmtree(copied)
    return run


def with_encoder(recipe, folder, **encoder):
    model = {**recipe["model"], "encoder": {"type": "pretrained", "path": str(folder), **encoder}}
    return {**recipe, "model": model}


def train_classifier(folder, files, run, **encoder):
    recipe = with_encoder(CLASSIFIER, folder, **encoder)
    train(recipe, run, labeled=files / "labeled.tsv", device="cpu")
    return run


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


def test_only_the_tuned_layers_change(bert, classifier_run):
    parts, changed = changed_parts(classifier_run, bert)
    assert parts == ["embeddings", "layer 0", "layer 1", "layer 2"]
    assert changed == ["layer 2"]


def test_layers_above_the_kept_ones_dropped(bert, files, tmp_path):
    run = train_classifier(bert, files, tmp_path / "run", layers=2)
    assert changed_parts(run, bert) == (["embeddings", "layer 0", "layer 1"], [])


def test_run_is_complete_without_the_folder(classifier_run, files, tmp_path):
    run = shutil.copytree(classifier_run, tmp_path / "run")
    result = heedful.load(run, device="cpu").classify("the unhappy lion")
    assert result.source_tokens == ["the", "un", "##happy", "lion", "(end)"]
    recipe = with_encoder(CLASSIFIER, files / "bert", **TUNED)
    recipe["training"] = TRAINING | {"metric_for_best_model": "loss", "max_steps": 4}
    assert train(recipe, run, labeled=files / "labeled.tsv", device="cpu").step == 4


def test_attention_of_each_layer_is_shown_with_bos(classifier_run):
    classifier = heedful.load(classifier_run, device="cpu")
    (result,) = classifier.predict(["the unhappy lion"], need_layers=True)
    kinds = [layer.kind for layer in result.attention_layers]
    assert kinds == ["encoder-self"] * 3 + ["pooling"]
    first = result.attention_layers[0]
    assert first.keys.tokens == ["(start)", "the", "un", "##happy", "lion", "(end)"]
    assert first.weights.shape == (4, 6, 6)
    words = [label for label, _ in first.keys.groups()]
    assert words == ["(start)", "the", "unhappy", "lion", "(end)"]


def test_tokenizer_of_the_folder_is_copied(bert, classifier_run):
    file = classifier_run / "tokenizers" / "source" / "vocabulary.json"
    saved = json.loads(file.read_text())["tokens"]
    theirs = json.loads((bert / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(saved) + NUM_SPECIAL_TOKENS + 1 == len(theirs)  # and the mask
    assert [theirs[token] for token in saved] == sorted(theirs[token] for token in saved)


@pytest.mark.parametrize("model_type", ["distilbert", "roberta"])
def test_tagger_has_a_tag_for_the_first_piece_of_each_word(model_type, files, tmp_path):
    folder = tmp_path / "model"
    write_encoder(folder, model_type)
    recipe = with_encoder(TAGGER, folder)
    train(recipe, tmp_path / "run", conll=files / "tagged.conll", device="cpu")
    tagger = heedful.load(tmp_path / "run", device="cpu")
    words = ["unhappy", "\u200b", "lions", "don't"]
    (result,) = tagger.predict([words], need_layers=True)
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
    check_batch_matches_single_sentences(tagger)


def check_batch_matches_single_sentences(tagger):
    sentences = ["unhappy lions walk", "the", "don't walk in the garden lions"]
    for together, sentence in zip(tagger.tag(sentences), sentences, strict=True):
        alone = tagger.tag(sentence).probabilities
        torch.testing.assert_close(*map(torch.from_numpy, (together.probabilities, alone)))


def test_translation_model_has_a_new_decoder(bert, files, tmp_path):
    recipe = with_encoder(TRANSLATOR, bert)
    texts = {"source": files / "source.txt", "target": files / "target.txt"}
    train(recipe, tmp_path / "run", **texts, device="cpu")
    settings = {"decoding.min_length": 2}
    translator = heedful.load(tmp_path / "run", device="cpu", settings=settings)
    (result,) = translator.predict(["the lion"], need_layers=True)
    kinds = {layer.kind for layer in result.attention_layers}
    assert kinds == {"encoder-self", "decoder-self", "cross"}
    _, changed = changed_parts(tmp_path / "run", bert)
    assert changed == []


def test_gpt2_can_be_an_encoder(files, tmp_path):
    write_gpt2(tmp_path / "gpt2")
    run = train_classifier(tmp_path / "gpt2", files, tmp_path / "run")
    assert heedful.load(run, device="cpu").classify("the lion").text


def damage(folder, target, change):
    """Copy a folder, change its tensors, and return it."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors")
    return target


def test_missing_tensor_raises_before_writing(bert, files, tmp_path):
    folder = damage(
        bert, tmp_path / "bert", lambda tensors: tensors.pop("encoder.layer.1.output.dense.bias")
    )
    with pytest.raises(DataError) as error:
        train_classifier(folder, files, tmp_path / "run")
    assert str(error.value) == (
        f"{folder}: the tensor encoder.layer.1.output.dense.bias is missing\n"
        "  download or write the folder again; nothing was written"
    )
    assert not (tmp_path / "run").exists()


def test_wrong_vocabulary_size_raises(bert, files, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    size = config["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": size + 1}))
    with pytest.raises(DataError) as error:
        train_classifier(folder, files, tmp_path / "run")
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
def test_layers_that_the_model_does_not_have_raise(encoder, message, bert, files, tmp_path):
    with pytest.raises(ConfigError) as error:
        train_classifier(bert, files, tmp_path / "run", **encoder)
    assert str(error.value) == message.format(folder=bert)


def test_folder_of_nothing_known_raises(files, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "readme.txt").write_text("nothing")
    with pytest.raises(HeedfulError) as error:
        train_classifier(tmp_path / "other", files, tmp_path / "run")
    assert "not a model that can be imported" in str(error.value)
    assert not (tmp_path / "run").exists()
