"""Training, resuming, evaluating and drawing glimpse models by the commands, and their messages."""

import json
import re
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.data.images.labeled_images import LabeledImage, read_idx, write_idx
from heedful.errors import DataError, RunError
from heedful.tasks.glimpse import trajectories

RECIPE = {
    "data": {"labeled_images": {"batch_size": 8, "num_distractors": 2, "distractor_size": 4}},
    "tokenizers": {"type": "none"},
    "model": {
        "type": "recurrent-attention",
        "image_size": 36,
        "num_glimpses": 3,
        "num_scales": 2,
        "part_size": 8,
        "glimpse_hidden_size": 12,
        "hidden_size": 12,
        "num_test_episodes": 3,
    },
    "training": {
        "max_steps": 4,
        "validate_every": 2,
        "num_logged_samples": 1,
        "lr_scheduler": {"type": "constant"},
    },
}
IMAGES = "digits-images-idx3-ubyte.gz"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glimpses")
    result = invoke("data", "digits", "--size", 40, "-o", folder / "digits")
    assert result.exit_code == 0, result.output
    trained = heedful.train(RECIPE, folder / "run", digits=folder / IMAGES, device="cpu")
    assert trained.step == 4
    return folder / "run", folder / IMAGES


def test_evaluate_counts_the_errors_of_glimpse(trained):
    run, images = trained
    scores = json.loads(invoke("evaluate", run, images, "--json", "--device", "cpu").stdout)
    values = {score["name"]: score["value"] for score in scores}
    output = invoke("glimpse", run, images, "--count", 40, "--json", "--device", "cpu").stdout
    rows = [json.loads(line) for line in output.splitlines()]
    labels = read_idx(str(images).replace("images-idx3", "labels-idx1"), 1).tolist()
    assert [row["target"] for row in rows] == labels
    wrong = [row["label"] != row["target"] for row in rows]
    assert values["error rate"] == pytest.approx(100 * np.mean(wrong))
    losses = [-np.log(row["probabilities"][row["target"]]) for row in rows]
    assert values["loss"] == pytest.approx(np.mean(losses), rel=1e-2)
    assert values["glimpses per image"] == 3
    boxes = rows[0]["glimpses"][0]["boxes"]
    assert [box[2:] for box in boxes] == [[8, 8], [16, 16]]


def test_glimpse_writes_all_files(trained, tmp_path):
    run, images = trained
    files = {f"--{kind}": tmp_path / f"trails.{kind}" for kind in ("svg", "html")}
    options = [part for pair in files.items() for part in pair]
    result = invoke("glimpse", run, images, "--first", 3, "--count", 2, *options, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert len(re.findall("glimpse 3 at row", result.output)) == 2
    svg = files["--svg"].read_text()
    assert (svg.count("<image"), svg.count("<circle")) == (2, 6)
    data = re.search(r'id="predictions">(.*?)</script>', files["--html"].read_text())[1]
    page = json.loads(data)
    assert [len(image["glimpses"]) for image in page["images"]] == [3, 3]
    assert len(page["images"][0]["pixels"]) == 36 * 36


def test_note_about_episodes_stands_where_several_averaged(trained):
    run, images = trained
    pixels = read_idx(str(images), 3)[:2]
    classifier = heedful.load(run, device="cpu")
    averaged = list(classifier.classify([LabeledImage(image, 0) for image in pixels]))
    single = [
        prediction._replace(probabilities=prediction.step_probabilities[-1])
        for prediction in averaged
    ]
    assert trajectories.EPISODES_NOTE in trajectories.render_page(averaged)
    assert trajectories.EPISODES_NOTE not in trajectories.render_page(single)
    note = invoke("glimpse", run, images, "--device", "cpu").stderr
    assert note == f"{trajectories.EPISODES_NOTE}\n"
    assert not invoke("glimpse", run, images, "--json", "--device", "cpu").stderr


def test_errors_are_those_that_evaluate_draws(trained, tmp_path):
    run, images = trained
    output = invoke("glimpse", run, images, "--errors", "--count", 40, "--json", "--device", "cpu")
    errors = [json.loads(line) for line in output.stdout.splitlines()]
    assert errors
    assert all(error["label"] != error["target"] for error in errors)
    page = tmp_path / "page.html"
    invoke("evaluate", run, images, "--html", page, "--device", "cpu")
    drawn = json.loads(re.search(r'id="predictions">(.*?)</script>', page.read_text())[1])["images"]
    assert [image["label"] for image in drawn] == [error["label"] for error in errors]


def test_rendered_files_return_the_predictions_of_placed_images(trained, tmp_path):
    """Translated and cluttered files, made by the command, are those that a test set has."""
    run, images = trained
    parts = ("--images", images, "--canvas", 36, "--distractors", 2, "-o", tmp_path / "scenes")
    assert invoke("data", "digits", *parts).exit_code == 0
    scenes = read_idx(str(tmp_path / "scenes-images-idx3-ubyte.gz"), 3)
    assert scenes.shape == (40, 36, 36)
    classifier = heedful.load(run, device="cpu")
    examples = [LabeledImage(image, 0) for image in scenes[:5]]
    results = list(classifier.classify(examples))
    for image, result in zip(scenes[:5], results, strict=True):
        np.testing.assert_array_equal(result.image, image)


def test_ensemble_averages_probabilities(trained, tmp_path):
    run, images = trained
    settings = {"training.seed": 5}
    heedful.train(RECIPE, tmp_path / "other", digits=images, settings=settings, device="cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (36, 36), dtype=np.uint8)
    results = [
        next(heedful.load(folder, device="cpu", **more).predict([LabeledImage(pixels, 0)]))
        for folder, more in (
            (run, {}),
            (tmp_path / "other", {}),
            (run, {"ensemble_with": [tmp_path / "other"]}),
        )
    ]
    one, other, joined = (result.probabilities for result in results)
    np.testing.assert_allclose(joined, (one + other) / 2, rtol=1e-5)


def test_ensemble_of_other_sizes_is_described(trained, tmp_path):
    run, images = trained
    other = tmp_path / "other"
    settings = {"model.image_size": 40, "training.max_steps": 1}
    heedful.train(RECIPE, other, digits=images, settings=settings, device="cpu")
    with pytest.raises(RunError) as caught:
        heedful.load(run, device="cpu", ensemble_with=[other])
    assert str(caught.value) == (
        f"{other}: 40 pixels and 10 classes, but {run} has 36 and 10\n"
        "  use runs with the same model.image_size and model.num_classes"
    )


def test_resumed_training_ends_with_the_parameters_of_an_uninterrupted_one(trained, tmp_path):
    run, images = trained
    for steps in (2, 4):
        settings = {"training.max_steps": steps}
        heedful.train(RECIPE, tmp_path / "run", digits=images, settings=settings, device="cpu")
    assert (tmp_path / "run/weights.safetensors").read_bytes() == (
        run / "weights.safetensors"
    ).read_bytes()


def test_labels_that_the_model_does_not_have_described(trained, tmp_path):
    run, images = trained
    for kind in ("images-idx3", "labels-idx1"):
        name = IMAGES.replace("images-idx3", kind)
        shutil.copy(images.with_name(name), tmp_path / name)
    labels = np.full(40, 12, dtype=np.uint8)
    write_idx(tmp_path / IMAGES.replace("images-idx3", "labels-idx1"), labels)
    expected = (
        f"{tmp_path / IMAGES}: there is a label 12, but the model has the classes 0 to 9\n"
        "  set model.num_classes=13"
    )
    with pytest.raises(DataError) as caught:
        heedful.train(RECIPE, tmp_path / "run", digits=tmp_path / IMAGES, device="cpu")
    assert str(caught.value) == expected
    result = invoke("glimpse", run, tmp_path / IMAGES, "--device", "cpu")
    assert str(result.exception) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits"], "--output: digits are written to files\n  add -o PREFIX"),
        (
            ["digits", "--distractors", 4, "-o", "x"],
            "--distractors: works only with --canvas\n  add --canvas 60",
        ),
        (["latin", "--canvas", 60], "--canvas: has no effect on latin\n  leave it out"),
        (["--distractors", 1], "--distractors: has no effect on the list\n  leave it out"),
        (
            ["digits", "--canvas", 20, "-o", "x"],
            "--canvas: 20 is less than 28, the size of the images\n  give 28 or more",
        ),
    ],
)
def test_misuse_of_the_data_command_is_described(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(invoke("data", *arguments).exception) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tokenizers": {"type": "shared"}},
            "tokenizers.type: a glimpse model reads images, which have no tokenizers\n"
            "  set `tokenizers: {type: none}`",
        ),
        (
            {"training.objective": {"type": "reinforce"}},
            "training.objective.type: 'reinforce' needs a decoder, and a glimpse model has none\n"
            "  remove training.objective",
        ),
    ],
)
def test_settings_of_other_tasks_described(settings, message):
    with pytest.raises(heedful.errors.ConfigError) as caught:
        heedful.recipes.load_recipe(RECIPE, settings)
    assert message in str(caught.value)
