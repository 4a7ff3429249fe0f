"""A plan is made once: what `train` and `translate` validate and build."""

import json
import math
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pytest
import torch
from rich.console import Console

from heedful.cli.main import main
from heedful.config import to_overrides
from heedful.data.images.labeled_images import write_idx
from heedful.errors import ConfigError
from heedful.experiment import build_prepared_dataset, load_training_recipe
from heedful.experiment.flops import check_trainable
from heedful.experiment.plan import complete_default, describe_default, load_recipe_with_data
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tasks.registry import file_overrides, task_of_files
from heedful.tasks.translation.task import TASK


def run_command(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["heedful", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code


@pytest.fixture
def calls(monkeypatch):
    """Count the calls that validate a recipe, build an objective and build a model."""
    counts = Counter()

    def count(owner, name, describe):
        original = getattr(owner, name)

        def counted(*args, **options):
            counts[describe()] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(TASK, "check_config", lambda: "recipe")
    count(TASK, "build_objective", lambda: "objective")
    count(EncoderDecoderConfig, "build", lambda: f"{torch.get_default_device()} model")
    return counts


def test_train_validates_recipe_and_builds_objective_and_model_once(calls, tmp_path, monkeypatch):
    run = tmp_path / "run"
    run_command(monkeypatch, "train", "reverse-tiny", "--steps", 2, "--run", run, "--quiet")
    # On the meta device: once for the first batch before data is read, once for the memory.
    assert calls == {"recipe": 1, "objective": 1, "cpu model": 1, "meta model": 2}
    calls.clear()
    (tmp_path / "source.txt").write_text("a b c\n")
    run_command(monkeypatch, "translate", run, tmp_path / "source.txt")
    assert calls == {"recipe": 1, "cpu model": 1}


def write_pairs(folder, count, text="a b c"):
    """Two files of `count` pairs; return the override that names them."""
    paths = {}
    for side in ("source", "target"):
        paths[side] = folder / f"{side}.txt"
        paths[side].write_text(f"{text}\n" * count, encoding="utf-8")
    files = {"type": "parallel-files", **{side: str(path) for side, path in paths.items()}}
    return f"data.train={json.dumps(files)}"


def vocab_sizes(recipe):
    return recipe.tokenizers.source.vocab_size, recipe.tokenizers.target.vocab_size


def test_other_recipes_loaded_as_they_are():
    changes = ["training.max_steps=7"]
    expected = load_recipe("transformer-2017-small", changes)
    assert load_training_recipe("transformer-2017-small", changes) == expected


@pytest.mark.parametrize(("count", "size"), [(2, 100), (400, 400), (10_000, 2200)])
def test_vocabulary_grows_with_the_square_root_of_the_data(tmp_path, count, size):
    recipe = load_training_recipe("default", [write_pairs(tmp_path, count)], "cpu")
    assert vocab_sizes(recipe) == (256 + size, 256 + size)


def test_vocab_size_covers_every_character(tmp_path):
    text = "".join(chr(0x4E00 + index) for index in range(1000))
    recipe = load_training_recipe("default", [write_pairs(tmp_path, 30, text)], "cpu")
    assert vocab_sizes(recipe) == (3256, 3256)


def test_training_takes_five_minutes_and_more_for_more_data(tmp_path):
    for count, minutes in ((100, 5), (320_000, 8)):
        recipe = load_training_recipe("default", [write_pairs(tmp_path, count)], "cpu")
        assert recipe.training.max_minutes == minutes


def test_given_settings_win(tmp_path):
    pairs = write_pairs(tmp_path, 400)
    changes = ["tokenizers.source.vocab_size=300", "training.max_minutes=2"]
    recipe = load_training_recipe("default", [pairs, *changes], "cpu")
    assert recipe.training.max_minutes == 2
    assert vocab_sizes(recipe)[0] == 300


@pytest.mark.parametrize("limit", ["max_steps", "max_epochs", "max_flops"])
def test_another_limit_replaces_the_minutes(tmp_path, limit):
    pairs = write_pairs(tmp_path, 400)
    recipe = load_training_recipe("default", [pairs, f"training.{limit}=9"], "cpu")
    assert recipe.training.max_minutes is None
    assert getattr(recipe.training, limit) == 9


def test_own_tokenizer_of_another_type_is_kept(tmp_path):
    word = ["tokenizers.source={type: word}", "tokenizers.target={type: word}"]
    recipe = load_training_recipe("default", [write_pairs(tmp_path, 400), *word], "cpu")
    assert recipe.tokenizers.source.type == "word"


def test_gpu_gets_a_transformer_with_a_shared_vocabulary(tmp_path):
    recipe = complete_default(to_overrides([write_pairs(tmp_path, 10_000)]), torch.device("cuda"))
    assert recipe.model.encoder.type == "transformer"
    assert recipe.tokenizers.tokenizer.vocab_size == 2 * (256 + 2200)
    expected = "no recipe is named: default-gpu trains a translator for 5 minutes; "
    assert describe_default(recipe).startswith(expected)


def test_prepared_tokens_decide_the_tokenizers(tmp_path, capsys, monkeypatch):
    from tests.commands import heedful

    paths = json.loads(write_pairs(tmp_path, 500).partition("=")[2])
    source, target = paths["source"], paths["target"]
    tokens = tmp_path / "tokens"
    heedful(
        *(capsys, monkeypatch, "prepare", "--source", source, "--target", target),
        *("--output-dir", tokens),
    )
    prepared = json.dumps({"type": "prepared", "path": str(tokens)})
    recipe = load_training_recipe("default", [f"data.train={prepared}"], "cpu")
    expected = load_training_recipe("default", [write_pairs(tmp_path, 500)], "cpu")
    assert recipe.tokenizers == expected.tokenizers


# ----- other data than pairs


def write_conll(folder, tags):
    path = folder / "tagged.conll"
    sentence = "".join(f"word\t{tag}\n" for tag in tags)
    path.write_text(f"{sentence}\nother\t{tags[0]}\n\n", encoding="utf-8")
    return {"conll": str(path)}


def write_series(folder, times, values):
    path = folder / "series.csv"
    rows = "".join(f"{time},{value}\n" for time, value in zip(times, values, strict=True))
    path.write_text(f"time,a\n{rows}", encoding="utf-8")
    return {"series": str(path)}


def write_digits(folder):
    write_idx(folder / "a-images-idx3-ubyte", np.zeros((3, 50, 50), np.uint8))
    write_idx(folder / "a-labels-idx1-ubyte", np.array([0, 1, 2], np.uint8))
    return {"digits": str(folder / "a-images-idx3-ubyte")}


def write_captions(folder, **features):
    path = folder / "captions.tsv"
    path.write_text("0\ta red dog\n1\ta blue cat\n", encoding="utf-8")
    return {"captions": str(path), **features}


def write_feature_captions(folder):
    np.save(folder / "features.npy", np.zeros((2, 9, 5), np.float32))
    return write_captions(folder, features=str(folder / "features.npy"))


def write_sheet_captions(folder):
    np.save(folder / "sheet.npy", np.zeros((2, 20, 40), np.uint8))
    return write_captions(folder, images=str(folder / "sheet.npy"))


def write_text(folder, name="book.txt", text="a line\n" * 20):
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


FILES = {
    "classification": lambda folder: {"labeled": write_text(folder, text="good\ta b\n" * 9)},
    "tagging": lambda folder: write_conll(folder, ["NOUN", "VERB"]),
    "language-modeling": lambda folder: {"text": write_text(folder)},
    "forecasting": lambda folder: write_series(folder, range(99), range(99)),
    "captioning": write_sheet_captions,
    "glimpses": write_digits,
}


def load_default(files, *settings, device="cpu"):
    overrides = to_overrides([*file_overrides({"train": files}), *settings])
    return complete_default(overrides, torch.device(device), task_of_files(files))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("task", FILES)
def test_data_chooses_the_task_and_the_time(tmp_path, task, device):
    recipe = load_default(FILES[task](tmp_path), device=device)
    assert recipe.task.name == task
    assert recipe.training.max_minutes == 5
    assert recipe.training.lr_scheduler.type == "cosine"
    assert recipe.training.validate_every is None
    check_trainable(recipe)


@pytest.mark.parametrize("task", FILES)
def test_python_chooses_the_task_by_the_data(tmp_path, task):
    files = FILES[task](tmp_path)
    run = Run(tmp_path / "run")
    recipe = load_recipe_with_data(
        "default", run, data=files, files={}, settings=(), device=torch.device("cpu")
    )
    assert recipe == load_default(files)


def test_type_of_data_in_settings_chooses_the_task(tmp_path):
    text = json.dumps({"type": "text", "path": write_text(tmp_path)})
    recipe = load_training_recipe("default", [f"data.train={text}"], "cpu")
    assert recipe.task.name == "language-modeling"


@pytest.mark.parametrize("task", ["classification", "tagging", "language-modeling"])
def test_prepared_tokens_choose_the_task_that_they_were_made_for(tmp_path, task):
    recipe = load_default(FILES[task](tmp_path))
    quiet = Console(quiet=True)
    build_prepared_dataset(recipe, tmp_path / "tokens", quiet, workers=1)
    prepared = json.dumps({"type": "prepared", "path": str(tmp_path / "tokens")})
    again = load_training_recipe("default", [f"data.train={prepared}"], "cpu")
    assert (again.task, again.tokenizers) == (recipe.task, recipe.tokenizers)


def test_spans_get_a_crf_and_the_metric(tmp_path):
    spans = load_default(write_conll(tmp_path, ["B-PER", "I-PER", "O"]))
    assert (spans.model.output_head.type, spans.training.metric_for_best_model) == (
        "crf",
        "span-f1",
    )
    others = load_default(write_conll(tmp_path, ["NOUN", "VERB"]))
    assert others.model.output_head.type == "softmax"


def test_texts_without_spaces_load_as_characters(tmp_path):
    words = load_default({"labeled": write_text(tmp_path, text="a\tthree short words\n")})
    assert words.tokenizers.source.type == "word"
    characters = load_default({"labeled": write_text(tmp_path, text=f"a\t{'x' * 16}\n")})
    assert characters.tokenizers.source.type == "character"


def hours(count):
    start = datetime(2020, 1, 1)
    return [(start + timedelta(hours=index)).isoformat() for index in range(count)]


def test_hourly_counts_have_a_daily_season(tmp_path):
    files = write_series(tmp_path, hours(400), [index % 24 for index in range(400)])
    model = load_default(files).model
    assert (model.season_length, model.prediction_length, model.lags) == (24, 24, (1, 24, 168))
    assert model.head.type == "negative-binomial"
    assert model.covariates.calendar == ("hour-of-day", "day-of-week")


def test_season_of_series_without_dates_is_found(tmp_path):
    values = [10 * math.sin(2 * math.pi * index / 12) + index for index in range(200)]
    model = load_default(write_series(tmp_path, range(200), values)).model
    assert (model.season_length, model.head.type, model.scaling) == (12, "student-t", "standard")


def test_short_series_train_for_few_steps_and_a_short_forecast(tmp_path):
    recipe = load_default(write_series(tmp_path, range(40), range(40)))
    assert recipe.model.prediction_length == 10
    assert recipe.training.max_steps == 100


def test_features_and_images_have_the_sizes_of_files(tmp_path):
    features = load_default(write_feature_captions(tmp_path)).model.encoder
    assert (features.type, features.grid, features.num_channels) == ("features", (3, 3), 5)
    images = load_default(write_sheet_captions(tmp_path)).model.encoder
    assert (images.type, images.image_size, images.num_channels) == ("cnn", (24, 40), 1)


def test_large_images_have_three_scales_and_classes_of_the_file(tmp_path):
    model = load_default(write_digits(tmp_path)).model
    assert (model.image_size, model.num_classes, model.num_scales) == (50, 3, 3)


def test_vocabulary_of_a_text_grows_with_the_square_root(tmp_path):
    recipe = load_default({"text": write_text(tmp_path, text=f"{'ab' * 50}\n" * 1000)})
    assert recipe.tokenizers.tokenizer.vocab_size == 256 + 600


@pytest.mark.parametrize(
    "setting", ["model={type: masked-language-model}", "model.type=text-classifier"]
)
def test_model_of_another_task_raises_that_names_a_recipe(tmp_path, setting):
    with pytest.raises(ConfigError) as caught:
        load_default({"text": write_text(tmp_path)}, setting)
    name, recipe = {
        "model": (
            "'masked-language-model' is a masked language model: it fills masks",
            "bert-small",
        ),
        "model.type": ("'text-classifier' classifies texts", "default-classifier"),
    }[setting.partition("=")[0]]
    assert str(caught.value) == (
        f"--set {setting.partition('=')[0]}: {name}, but the default for this data is a language "
        f"model: it continues a text\n  name a recipe of such a model, such as {recipe}"
    )


def test_model_of_the_same_task_replaces_that_of_the_default(tmp_path):
    model = "model={type: language-model, embedding_size: 8, backbone: {hidden_size: 8}}"
    recipe = load_default({"text": write_text(tmp_path)}, model)
    assert recipe.model.embedding_size == 8
    assert "trains a language model for 5 minutes" in describe_default(recipe)


def test_files_of_another_task_than_the_recipe_are_an_error(tmp_path):
    files = FILES["classification"](tmp_path)
    settings = file_overrides({"train": files})
    with pytest.raises(ConfigError) as caught:
        load_training_recipe("bahdanau-2015", settings, "cpu", files=files)
    assert str(caught.value) == (
        "--labeled: trains a classifier, but the model of this recipe translates\n"
        "  give --source FILE --target FILE; or leave out the recipe, and one for --labeled is "
        "chosen"
    )
