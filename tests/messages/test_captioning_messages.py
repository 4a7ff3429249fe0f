"""The full text of errors about captioning."""

import pytest

import heedful as package
from tests.captioning import (
    DECODERS,
    caption_recipe,
    write_features,
    write_images,
    write_recipe,
)
from tests.commands import heedful

SHARED = "set `tokenizers: {type: shared, tokenizer: {type: word}}`"


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: heedful(capsys, monkeypatch, *words, "--device", "cpu")


@pytest.fixture
def features(tmp_path):
    return write_features(tmp_path / "data")


def train(call, tmp_path, recipe):
    path = write_recipe(tmp_path / "recipe.yaml", recipe)
    ended = call("train", path, "--run", "run", "-q")
    assert not (tmp_path / "run" / "checkpoints").exists()
    return ended.code, ended.err


def test_captions_need_one_tokenizer(call, tmp_path, features):
    recipe = caption_recipe(features, tokenizers={"type": "separate"})
    message = "images have no tokens, so there is one tokenizer: that of the captions"
    expected = f"heedful: tokenizers.type: {message}\n  {SHARED}\n"
    assert train(call, tmp_path, recipe) == (2, expected)


def test_output_head_that_copies_raises(call, tmp_path, features):
    recipe = caption_recipe(features)
    recipe["model"]["decoder"] = {"output_head": {"type": "pointer-generator"}}
    code, error = train(call, tmp_path, recipe)
    assert code == 2
    assert error.endswith(
        "decoder.output_head.type: 'pointer-generator' copies tokens, and an image has none\n"
        "  choose 'softmax'\n"
    )


def single_cell_recipe(tmp_path, max_tokens):
    images = {"type": "captions", "path": str(write_images(tmp_path / "data"))}
    recipe = caption_recipe(images)
    recipe["model"]["encoder"] |= {"pooling": [[8, 8]], "downsampling": "stride"}
    recipe["training"]["batching"] = {"max_tokens": max_tokens}
    return recipe


def test_batch_norm_rejects_batch_with_a_single_value_per_channel(call, tmp_path):
    expected = (
        "heedful: model.encoder: BatchNorm needs two values per channel in training, but this "
        "batch has one image, which is a single cell here\n"
        "  raise training.batching.max_tokens or give more images; or choose the norm 'group', "
        "larger images, or less pooling\n"
    )
    assert train(call, tmp_path, single_cell_recipe(tmp_path, 6)) == (2, expected)


def test_no_batch_of_one_image_is_left_over(call, tmp_path):
    recipe = single_cell_recipe(tmp_path, 23 * 6)  # 24 captions, of which 23 fit into a batch
    path = write_recipe(tmp_path / "recipe.yaml", recipe)
    assert call("train", path, "--run", "run", "-q").code == 0


def test_features_of_another_grid_raise(call, tmp_path, features):
    recipe = caption_recipe(features)
    recipe["model"]["encoder"] |= {"grid": [3, 3], "num_channels": 8}
    expected = (
        f"heedful: data.train: {features['features']} has 2 x 2 cells with 6 channels, but the "
        "encoder reads 3 x 3 cells with 8 channels\n"
        "  set model.encoder.grid to [2, 2] and model.encoder.num_channels to 6\n"
    )
    assert train(call, tmp_path, recipe) == (2, expected)


def test_images_for_an_encoder_of_features_raise(call, tmp_path):
    path = write_images(tmp_path / "images")
    recipe = caption_recipe({"type": "captions", "path": str(path)})
    recipe["model"]["encoder"] = {"type": "features", "num_channels": 6, "grid": [2, 2]}
    expected = (
        "heedful: data.train: the encoder reads features of 2 x 2 cells with 6 channels, but the "
        "data are images\n"
        "  extract features with `heedful features`, or choose model.encoder.type 'cnn'\n"
    )
    assert train(call, tmp_path, recipe) == (2, expected)


def test_features_for_an_encoder_of_images_raise(call, tmp_path, features):
    recipe = caption_recipe(features)
    recipe["model"]["encoder"] = {"type": "patches", "image_size": [8, 8]}
    expected = (
        "heedful: data.train: the encoder reads 8 x 8 pixels with 3 channels, but the data are "
        "features\n"
        "  set model.encoder.type to 'features', or give images\n"
    )
    assert train(call, tmp_path, recipe) == (2, expected)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ({"pooling": [[2, 2]]}, "channels has 3 stages, but pooling has 1"),
        (
            {"type": "efficientnet-lite0", "weights": None},
            "random weights need fine_tune: true",
        ),
    ],
)
def test_encoder_settings_that_contradict_one_another(encoder, message, call, tmp_path, features):
    recipe = caption_recipe(features)
    recipe["model"]["encoder"] = {"type": "cnn", **encoder}
    code, error = train(call, tmp_path, recipe)
    assert code == 2
    assert message in error


def test_features_without_captions_raise(call, tmp_path, features):
    ended = call("train", "show-and-tell-2015", "--features", features["features"])
    expected = "heedful: --features: given without --captions\n  add --captions FILE\n"
    assert (ended.code, ended.err) == (2, expected)


def test_captions_cannot_be_prepared(capsys, monkeypatch, tmp_path, features):
    path = write_recipe(tmp_path / "recipe.yaml", caption_recipe(features))
    ended = heedful(capsys, monkeypatch, "prepare", path, "-o", str(tmp_path / "tokens"))
    hint = "train on the files; if there are too many, raise data.max_in_memory_examples"
    expected = f"heedful: data.train: images have no tokens to prepare\n  {hint}\n"
    assert (ended.code, ended.err) == (2, expected)


@pytest.fixture
def run(tmp_path, features):
    recipe = caption_recipe(features)
    recipe["model"]["decoder"] = DECODERS["show and tell"]
    package.train(recipe, tmp_path / "trained")
    return str(tmp_path / "trained")


def test_run_on_features_does_not_read_images(call, run, tmp_path):
    write_images(tmp_path / "images")
    ended = call("caption", run, "images")
    expected = (
        "heedful: images/0.png: this run reads features (2 x 2 cells with 6 channels), not "
        "images\n"
        "  extract them with `heedful features`, and name FILE.npy#ROW\n"
    )
    assert (ended.code, ended.err) == (2, expected)


def test_all_images_that_cannot_be_captioned_listed(call, tmp_path):
    images = {"type": "captions", "path": str(write_images(tmp_path / "images"))}
    package.train(caption_recipe(images), tmp_path / "trained")
    for name, content in {"1.png": b"", "10.png": b"<!doctype html><html>"}.items():
        (tmp_path / "images" / name).write_bytes(content)
    ended = call("caption", "trained", "images")
    expected = (
        "heedful: 2 of 12 images: cannot be read\n"
        "  images/1.png: the file is empty\n"
        "  images/10.png: not an image but a web page\n"
        "  replace or remove them\n"
    )
    assert (ended.code, ended.out, ended.err) == (2, "", expected)


def test_model_without_attention_is_not_drawn(call, run, features):
    ended = call("caption", run, f"{features['features']}#0", "--html", "page.html")
    message = "this model has no attention to draw"
    expected = f"heedful: --html: {message}\n  leave it out, or name another run\n"
    assert (ended.code, ended.err) == (2, expected)


def test_row_that_a_file_does_not_have(call, run, features):
    ended = call("caption", run, f"{features['features']}#12")
    assert ended.code == 2
    assert ended.err.startswith(
        f"heedful: {features['features']}: there is no row 12; rows are 0 to 11\n"
    )


def test_folder_without_images(call, run, tmp_path):
    (tmp_path / "empty").mkdir()
    ended = call("caption", run, "empty")
    expected = "heedful: empty: contains no images\n  name a folder with images, or the images\n"
    assert (ended.code, ended.err) == (2, expected)


def test_members_of_an_ensemble_read_the_same_images(call, run, tmp_path):
    images = {"type": "captions", "path": str(write_images(tmp_path / "images"))}
    package.train(caption_recipe(images), tmp_path / "other")
    ended = call("caption", run, "x.npy#0", "--ensemble-with", "other")
    expected = (
        f"heedful: other: reads 8 x 8 pixels with 3 channels, but {run} 2 x 2 cells with 6 "
        "channels\n  use runs that read the same images\n"
    )
    assert (ended.code, ended.err) == (2, expected)
