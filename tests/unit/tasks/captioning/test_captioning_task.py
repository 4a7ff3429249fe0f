"""Captioning as a task: data, training, predictions, evaluation."""

import json
import pickle

import numpy as np
import pytest
import torch

import heedful
from heedful.data.images.captions import CaptionFileConfig
from heedful.data.shuffling import DataCursor
from heedful.data.text.example_formats import ExampleSource
from heedful.decoding.requests import Request
from heedful.errors import DataError
from heedful.recipes import load_recipe
from heedful.tasks.captioning.images import StoredImage
from heedful.tasks.captioning.task import TASK
from tests.captioning import (
    caption_recipe,
    write_features,
    write_images,
    write_recipe,
)
from tests.commands import heedful as run_heedful

CNN = {"type": "cnn", "image_size": [8, 8], "channels": [4], "pooling": [[4, 4]]}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return {"type": "captions", "path": str(write_images(folder))}


@pytest.fixture(scope="module")
def image_run(images, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "images"
    heedful.train(caption_recipe(images), run)
    return run


@pytest.fixture(scope="module", params=[4, 8, 32])
def features(request, tmp_path_factory):
    return write_features(tmp_path_factory.mktemp("features"), bits=request.param)


@pytest.fixture(scope="module")
def feature_run(features, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "features"
    heedful.train(caption_recipe(features), run)
    return run


def data_module(train, **changes):
    recipe = load_recipe(caption_recipe(train, **changes))
    examples = ExampleSource(recipe.data.train.read(), recipe.data.train.locate)
    texts = TASK.data.example_format.tokenizer_texts(examples.examples)
    tokenizers = recipe.tokenizers.train(*texts)
    tokenized = TASK.data.tokenize_train(recipe, tokenizers, [examples])
    return TASK.data.build_data_module(recipe, tokenizers, tokenized, examples)


def test_each_caption_is_an_example_with_the_image(images):
    module = data_module(images)
    tokenizer = module.tokenizers.target
    examples = CaptionFileConfig(**images).read()
    seen = []
    for batch in module.validation_batches():
        assert batch.sources.tokens.dtype == torch.uint8
        assert batch.sources.tokens.shape[1:] == (3, 8, 8)
        assert (batch.sources.lengths == 4).all()
        for row, tokens in enumerate(batch.targets.tolist()):
            text = tokenizer.decode([token for token in tokens if token > 3])
            index = int(batch.reference_ids[row])
            assert text in examples[index].captions
            color = batch.sources.tokens[row, :, 4, 4].tolist()
            expected = {"red": [255, 0, 0], "green": [0, 160, 0], "blue": [0, 0, 255]}
            assert color == next(expected[name] for name in expected if name in text)
            seen.append((index, text))
    assert len(seen) == 24
    assert len(set(seen)) == 24


def test_features_stay_codes_in_batches_and_standardized_by_the_model(tmp_path):
    module = data_module(write_features(tmp_path, bits=4))
    batch = next(iter(module.validation_batches()))
    assert batch.sources.tokens.dtype == torch.uint8
    assert batch.sources.tokens.shape[1:] == (4, 3)
    model = TASK.build_model(module.recipe, heedful_sizes(module)).double()
    TASK.initialize_model(model, module)
    states = [model.encoder(*part.sources).states for part in module.validation_batches()]
    cells = torch.cat(states).flatten(0, 1)
    torch.testing.assert_close(cells.mean(dim=0), torch.zeros(6).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(cells.std(dim=0), torch.ones(6).double(), atol=1e-5, rtol=0)


def heedful_sizes(module):
    from heedful.tasks.task_data import VocabSizes

    return VocabSizes.from_tokenizers(module.tokenizers)


def test_dev_features_of_another_scale_decoded(tmp_path):
    train = write_features(tmp_path / "train", bits=4)
    dev = write_features(tmp_path / "dev", bits=4)
    np.save(dev["features_scale"], 2 * np.load(dev["features_scale"]))
    recipe = load_recipe(caption_recipe(train, data={"train": train, "dev": dev}))
    examples = ExampleSource(recipe.data.dev.read(), recipe.data.dev.locate)
    tokenizers = recipe.tokenizers.train(
        *TASK.data.example_format.tokenizer_texts(examples.examples)
    )
    tokenized = TASK.data.tokenize_train(recipe, tokenizers, [examples])
    module = TASK.data.build_data_module(recipe, tokenizers, tokenized, examples)
    batch = next(iter(module.validation_batches()))
    codes = np.load(dev["features"])[batch.reference_ids[0]]
    scale = np.load(dev["features_scale"])
    expected = np.stack([codes & 15, codes >> 4], axis=-1).reshape(4, 6) * scale[0] + scale[1]
    torch.testing.assert_close(batch.sources.tokens[0], torch.from_numpy(expected).float())


def test_resumed_stream_continues_with_the_same_batches(images):
    module = data_module(images)
    stream = module.train_batches(DataCursor(0, 0))
    batches = iter(stream)
    for _ in range(3):
        next(batches)
    expected = [next(batches) for _ in range(4)]
    module.train_batches(DataCursor(0, 0))
    resumed = module.train_batches(DataCursor(0, 0))
    for _ in zip(range(3), resumed, strict=False):
        pass
    again = module.train_batches(resumed.cursor)
    for batch, other in zip(expected, again, strict=False):
        torch.testing.assert_close(batch.sources.tokens, other.sources.tokens)
        assert torch.equal(batch.targets, other.targets)


def test_held_out_images_not_trained_on(images, tmp_path):
    recipe = caption_recipe(images)
    recipe["data"] = {"train": images}
    heedful.train(recipe, tmp_path / "run")
    lines = (tmp_path / "run" / "train.log").read_text()
    assert "train: 11 images with 22 captions" in lines
    assert "dev: 1 image with 2 captions" in lines


def test_captioner_repr_names_the_inputs(image_run):
    text = repr(heedful.load(image_run))
    assert "8 x 8 pixels with 3 channels" in text
    assert "beam size 2" in text


def test_image_by_path_and_as_an_array_has_the_same_caption(image_run, images):
    from PIL import Image

    captioner = heedful.load(image_run)
    path = images["path"].replace("captions.tsv", "4.png")
    by_path = captioner.caption(path)
    by_array = captioner.caption(np.asarray(Image.open(path)))
    assert by_path.text == by_array.text
    assert by_path.score == by_array.score
    assert by_path.image == path
    np.testing.assert_array_equal(by_path.pixels, by_array.pixels)
    assert by_path.pixels.shape == (8, 8, 3)


def test_weights_cover_the_grid(image_run, images):
    captioner = heedful.load(image_run)
    path = images["path"].replace("captions.tsv", "4.png")
    caption = next(captioner.predict([path], need_layers=True))
    assert caption.grid == (2, 2)
    assert caption.weights.shape == (len(caption.tokens), 4)
    np.testing.assert_allclose(caption.weights.sum(axis=1), 1, rtol=1e-5)
    assert caption.attention.weights.shape == (len(caption.attention.words), 2, 2)
    (layer,) = [layer for layer in caption.attention_layers if layer.is_default]
    np.testing.assert_allclose(layer.weights[0], caption.weights, atol=1e-6)
    fields = json.loads(json.dumps(caption.to_json()))
    assert np.array(fields["weights"]).shape == (len(caption.tokens), 2, 2)
    assert list(fields)[:2] == ["image", "text"]


def test_constraints_scores_and_alternatives(image_run, images):
    captioner = heedful.load(image_run)
    path = images["path"].replace("captions.tsv", "0.png")
    forced = captioner.caption(Request(path, prefix="a green"))
    assert forced.text.startswith("a green")
    required = captioner.caption(Request(path, required_phrases=["blue"]))
    assert "blue" in required.text
    several = captioner.caption(path, n_best=2)
    assert len(several.alternatives) == 1
    assert several.score >= several.alternatives[0].score
    (scored,) = captioner.score([(path, several.text)])
    assert scored.score == pytest.approx(several.score, rel=1e-5)
    searched = captioner.caption(path, need_tree=True)
    assert len(searched.to_json(tree=True)["tree"]) == len(searched.tree) > 0


def test_ensemble_of_a_run_with_itself_captions_as_the_run(image_run, images):
    path = images["path"].replace("captions.tsv", "3.png")
    alone = heedful.load(image_run).caption(path)
    together = heedful.load(image_run, ensemble_with=[image_run]).caption(path)
    assert together.text == alone.text
    assert together.score == pytest.approx(alone.score, rel=1e-5)


def test_rows_of_a_feature_file_captioned_by_name(feature_run, features):
    captioner = heedful.load(feature_run)
    names = captioner.loader.expand([features["features"]])
    assert names == [f"{features['features']}#{row}" for row in range(12)]
    by_name = captioner.caption(names)
    examples = TASK.data.read_examples(CaptionFileConfig(**features))
    by_example = captioner.caption([example.source for example in examples])
    assert [one.text for one in by_name] == [one.text for one in by_example]
    scores = [[one.score for one in captions] for captions in (by_name, by_example)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_evaluation_scores_all_references(feature_run, features):
    captioner = heedful.load(feature_run)
    examples = TASK.data.read_examples(CaptionFileConfig(**features))
    scores = {score.name: score.value for score in captioner.evaluate(examples)}
    assert set(scores) >= {"BLEU-1", "BLEU-4", "CIDEr-D"}
    assert captioner.count_tokens(examples) == 12 * 3


def test_stored_image_is_a_name_that_can_be_pickled():
    image = StoredImage("sheet.npy#3", {"a": 1}, 3)
    copy = pickle.loads(pickle.dumps(image))
    assert (copy, copy.store, copy.key) == ("sheet.npy#3", {"a": 1}, 3)
    assert copy.split() == ["sheet.npy#3"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((8, 8)), "float64 of shape (8, 8) is not an image"),
        (np.zeros(8, np.uint8), "uint8 of shape (8,) is not an image"),
    ],
)
def test_array_that_is_no_image_raises(array, message, image_run):
    with pytest.raises(DataError) as caught:
        heedful.load(image_run).caption(array)
    assert caught.value.message == message


def test_features_of_another_shape_raise(feature_run):
    captioner = heedful.load(feature_run)
    with pytest.raises(DataError) as caught:
        captioner.caption(np.zeros((4, 5), np.float32))
    expected = "features of shape (4, 5), but the model reads 2 x 2 cells with 6 channels"
    assert caught.value.message == expected
    grid = captioner.caption(np.ones((2, 2, 6), np.float32))
    assert grid.text == captioner.caption(np.ones((4, 6), np.float32)).text


def test_grid_of_one_cell_is_captioned(tmp_path):
    train = write_features(tmp_path)
    np.save(train["features"], np.load(train["features"])[:, :1])
    recipe = caption_recipe(train)
    recipe["model"]["encoder"]["grid"] = [1, 1]
    heedful.train(recipe, tmp_path / "run")
    caption = heedful.load(tmp_path / "run").caption(f"{train['features']}#0")
    assert caption.weights.shape[1] == 1


@pytest.mark.wide
def test_captions_of_built_in_images_by_character(tmp_path):
    train = {"type": "built-in-pictures", "name": "shapes", "num_examples": 20}
    tokenizers = {"type": "shared", "tokenizer": {"type": "character"}}
    heedful.train(caption_recipe(train, tokenizers=tokenizers), tmp_path / "run")
    captioner = heedful.load(tmp_path / "run")
    (example, *_) = TASK.data.read_examples(load_recipe(caption_recipe(train)).data.train)
    forced = captioner.caption(Request(example.source, prefix="a lar"))
    assert forced.text.startswith("a lar")
    assert forced.tokens[:5] == list("a lar")


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_heedful(capsys, monkeypatch, *words, "--device", "cpu")


def test_caption_command_writes_captions_and_figures(call, image_run, images, tmp_path):
    folder = images["path"].removesuffix("/captions.tsv")
    ended = call("caption", str(image_run), folder, "--html", "page.html", "--svg", "first.svg")
    lines = ended.out.splitlines()
    assert ended.code == 0
    assert len(lines) == 12
    assert lines[0].startswith(f"{folder}/0.png\t")
    assert (tmp_path / "page.html").read_text().count("data:image/png") == 12
    assert (tmp_path / "first.svg").read_text().startswith("<svg")
    fit, *written = ended.err.splitlines()
    assert fit.startswith("images are resized to ")
    assert written == ["wrote first.svg", "wrote page.html"]


def test_caption_command_prints_alternatives_json_and_drawings(call, image_run, images):
    path = images["path"].replace("captions.tsv", "1.png")
    plain = call("caption", str(image_run), path, "--nbest", "2")
    assert [line.split("\t")[0] for line in plain.out.splitlines()] == [path, path]
    fields = json.loads(call("caption", str(image_run), path, "--nbest", "2", "--json").out)
    texts = [fields["text"], *(other["text"] for other in fields["alternatives"])]
    assert [line.split("\t")[1] for line in plain.out.splitlines()] == texts
    drawn = call("caption", str(image_run), path, "--draw")
    assert "max" in drawn.out
    written = call("caption", str(image_run), path, "-o", "captions.tsv")
    assert (written.out, written.err.splitlines()[1:]) == ("", ["wrote captions.tsv"])


def test_evaluate_and_train_by_files(call, features, tmp_path):
    recipe = caption_recipe(features)
    del recipe["data"]
    files = ["--captions", features["path"], "--features", features["features"]]
    if "features_scale" in features:
        files += ["--features-scale", features["features_scale"]]
    dev = [word.replace("--", "--dev-") if word.startswith("--") else word for word in files]
    path = write_recipe(tmp_path / "recipe.yaml", recipe)
    trained = call("train", path, *files, *dev, "--run", "run", "-q")
    assert trained.code == 0, trained.err
    ended = call("evaluate", "run", *files, "--metrics", "bleu-1,cider-d")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"12 images of {features['path']}")
    assert "BLEU-1" in ended.out
