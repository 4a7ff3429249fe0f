import gzip

import pytest

from heedful.comparison.budget import METRICS_FILE, Budget
from heedful.comparison.training import (
    PlannedRun,
    RunResult,
    TrainingRunJob,
    find_dataset,
    plan_runs,
    train_all,
    train_in_process,
    train_in_subprocess,
)
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.errors import ConfigError
from heedful.recipes import load_recipe
from heedful.tasks.registry import all_tasks
from heedful.tasks.translation.task import TASK as TRANSLATION
from tests.commands import write_recipe
from tests.language_modeling import write_text_recipe
from tests.shape_checking import unchecked

BUDGET = Budget.parse("2steps")


@pytest.fixture
def plans(tmp_path):
    """A recipe that can be trained, and one that cannot: a dot product of unlike sizes."""
    recipe = str(write_recipe(tmp_path))
    unfit = ["model.decoder.attention.score.type=dot", "model.decoder.hidden_size=7"]
    return [
        PlannedRun(name, load_recipe(recipe, changes), tmp_path / "runs" / f"{name}-0")
        for name, changes in {"bad": unfit, "good": []}.items()
    ]


@pytest.fixture
def tagged(tmp_path):
    (tmp_path / "train.conll").write_text("Anna\tPER\nsees\tO\n\n" * 20)
    return str(tmp_path)


def planned_tasks(recipes, data, folder):
    plans = plan_runs(recipes, data, seeds=1, folder=folder, device="cpu")
    return [planned.recipe.task.name for planned in plans]


def test_default_is_the_default_recipe_for_the_data(tmp_path, tagged):
    assert planned_tasks(["default", "bilstm-crf"], tagged, tmp_path) == ["tagging"] * 2
    assert planned_tasks(["default"], "seasonal", tmp_path) == ["forecasting"]
    assert planned_tasks(["default"], "reverse", tmp_path) == ["translation"]


def test_failed_run_does_not_stop_the_others(plans):
    messages = []
    with unchecked():
        failures = train_all(plans, BUDGET, log_message=messages.append, train_run=train_in_process)
    ((name, run, message),) = failures
    assert (name, run) == ("bad", str(plans[0].folder))
    assert message == ("score.type: 'dot' needs equal sizes, but queries have 7 and keys 32")
    assert messages[0] == "run 1 of 2: bad, seed 0, for 2 steps"
    assert messages[1] == f"{run}: failed: {message}"
    assert messages[2].startswith("run 2 of 2: good, seed 0, for 2 steps; about ")
    assert messages[2].endswith(" left")


def test_finished_run_is_not_trained_again(plans):
    with unchecked():
        train_all(plans[1:], BUDGET, log_message=lambda line: None, train_run=train_in_process)
    before = (plans[1].folder / METRICS_FILE).read_bytes()
    messages, trained_names = [], []

    def train_run(planned, budget, device):
        trained_names.append(planned.name)
        return RunResult(True)

    assert train_all(plans, BUDGET, log_message=messages.append, train_run=train_run) == []
    assert trained_names == ["bad"]
    assert messages[0] == "already trained: 1 of 2 runs"
    assert (plans[1].folder / METRICS_FILE).read_bytes() == before


def test_interruption_leaves_the_remaining_runs(plans):
    trained_names = []

    def train_run(planned, budget, device):
        trained_names.append(planned.name)
        return RunResult(False)

    failures = train_all(plans, BUDGET, log_message=trained_names.append, train_run=train_run)
    assert failures is None
    assert trained_names == ["run 1 of 2: bad, seed 0, for 2 steps", "bad"]


def test_remaining_time_follows_from_a_time_budget(plans):
    messages = []
    train_all(
        plans,
        Budget.parse("2m"),
        log_message=messages.append,
        train_run=lambda planned, budget, device: RunResult(True),
    )
    assert messages[0] == "run 1 of 2: bad, seed 0, for 2 minutes; about 4 min left"


@pytest.mark.faults
def test_error_in_the_child_process_raises(plans):
    ended = train_in_subprocess(plans[0], BUDGET, "cpu")
    assert ended == (
        False,
        "score.type: 'dot' needs equal sizes, but queries have 7 and keys 32",
    )


def test_any_exception_in_the_child_becomes_a_message(plans, capsys):
    train = TrainingRunJob(Budget.parse("2steps"), "cpu").setup(is_shared=False)
    is_finished, message = train(plans[1]._replace(recipe=None))
    assert not is_finished
    assert message.startswith("AttributeError: ")
    assert "Traceback" in capsys.readouterr().err


def on(name, recipe):
    """A recipe with the data of this name."""
    original = load_recipe(recipe)
    adapted = find_dataset(name, original.task)
    return load_recipe(recipe, adapted.overrides(original))


@pytest.mark.parametrize("name", sorted(SYNTHETIC_CORPORA))
@pytest.mark.parametrize("recipe", ["luong-2015-dot-small", "gpt-tiny"])
def test_built_in_corpus_is_pairs_or_running_text(name, recipe):
    adapted = on(name, recipe)
    for split, size in {"train": 100_000, "dev": 500, "test": 1000}.items():
        source = getattr(adapted.data, split)
        assert (source.name, source.split, source.num_examples) == (name, split, size)
    assert adapted.tokenizers == load_recipe(recipe).tokenizers
    assert adapted.data.lm_batching == load_recipe(recipe).data.lm_batching


@pytest.mark.parametrize(
    ("recipe", "name", "has_dev"),
    [
        ("bilstm-tagger", "reverse", True),
        ("show-and-tell-2015-small", "icons", True),
        ("ram-2014-small", "digits", True),
        ("deepar-2020-small", "el-nino", False),  # the end of the training series
    ],
)
def test_built_in_corpora_are_those_of_the_task(recipe, name, has_dev):
    data = on(name, recipe).data
    assert (data.train.name, data.train.split, data.test.split) == (name, "train", "test")
    assert (data.dev is not None) == has_dev


@pytest.mark.parametrize(
    ("recipe", "name", "expected", "choices"),
    [
        ("bilstm-tagger", "latin", "tagged sentences", "argsort, copy, reverse, sort; or give"),
        ("bilstm-classifier", "latin", "labeled texts", ""),
        ("ram-2014-small", "latin", "labeled images", "digits; or give"),
        ("luong-2015-dot-small", "icons", "pairs of texts", "arithmetic, arithmetic-gaps"),
    ],
)
def test_built_in_corpus_of_another_task_raises(recipe, name, expected, choices):
    with pytest.raises(ConfigError) as caught:
        on(name, recipe)
    assert caught.value.location == f"--data {name}"
    assert caught.value.message == f"this built-in corpus has no {expected}"
    assert choices in caught.value.hint
    assert caught.value.hint.endswith("give a recipe with data, a .yaml file or a folder")


def test_data_of_a_recipe_replace_those_of_another():
    adapted = on("reverse-tiny", "luong-2015-dot-small")
    assert adapted.data == load_recipe("reverse-tiny").data
    assert adapted.model == load_recipe("luong-2015-dot-small").model


def test_tokenizers_of_the_dataset_used_if_set(tmp_path):
    recipe = write_recipe(tmp_path)
    assert (
        on(str(recipe), "transformer-2017-small").tokenizers == load_recipe(str(recipe)).tokenizers
    )
    bare = tmp_path / "bare.yaml"
    bare.write_text(f"data: {{train: {{type: tsv, path: {tmp_path}/a.tsv}}}}")
    own = load_recipe("transformer-2017-small").tokenizers
    assert on(str(bare), "transformer-2017-small").tokenizers == own


def test_lm_batching_of_the_dataset_is_used_if_set(tmp_path):
    recipe = write_text_recipe(tmp_path)
    adapted = on(str(recipe), "gpt-tiny")
    assert adapted.data.lm_batching.context_length == 16
    bare = tmp_path / "bare.yaml"
    bare.write_text(
        "data: {train: {type: text, path: a}}\nmodel: {type: language-model}\n"
        "tokenizers: {type: shared}"
    )
    assert on(str(bare), "gpt-tiny").data.lm_batching.context_length == 64


@pytest.mark.parametrize(
    ("files", "types"),
    [
        (
            ["train.source", "train.target", "test.src", "test.tgt"],
            ["parallel-files", None, "parallel-files"],
        ),
        (["train.tsv.gz", "dev.jsonl"], ["tsv", "jsonl", None]),
        (["train.csv", "test.parquet"], ["csv", None, "parquet"]),
        (["train.src.xz", "train.tgt.xz", "train.tsv"], ["parallel-files", None, None]),
    ],
)
def test_folder_files_found_by_split_and_suffix(tmp_path, files, types):
    for name in files:
        content = gzip.compress(b"a\tb\n") if name.endswith(".gz") else b"a\tb\n"
        (tmp_path / name).write_bytes(content)
    data = on(str(tmp_path), "luong-2015-dot-small").data
    adapted = [data.train, data.dev, data.test]
    assert [source and source.type for source in adapted] == types


@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_folder_files_load_as_the_option_of_the_task_reads_them(tmp_path, task):
    option = task.data.file_options.single_file
    assert option.file_names
    for number, pattern in enumerate(option.file_names):
        folder = tmp_path / str(number)
        path = folder / pattern.format(split="train")
        if pattern == "{split}":  # a folder of images
            path.mkdir(parents=True)
        else:
            folder.mkdir()
            path.write_text("a\tb\n")
        expected = task.data.file_options.data_setting({option.name: str(path)})
        assert task.data.file_options.folder_setting(folder, "train") == expected


def test_folder_of_labeled_texts_has_the_label_first(tmp_path):
    (tmp_path / "train.tsv").write_text("good\tI like it\n")
    assert on(str(tmp_path), "bilstm-classifier").data.train.read() == [("I like it", "good")]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("gpt-tiny", "train.txt"),
        ("bilstm-classifier", "train.tsv"),
        ("bilstm-tagger", "train.conllu"),
        ("deepar-2020-small", "train.csv"),
        ("show-and-tell-2015-small", "train.tsv"),
        ("ram-2014-small", "train-images-idx3-ubyte"),
        ("luong-2015-dot-small", "train.source and train.target, or train.tsv"),
    ],
)
def test_folder_without_training_data_raises(tmp_path, recipe, expected):
    (tmp_path / "train.source").touch()
    with pytest.raises(ConfigError) as caught:
        on(str(tmp_path), recipe)
    assert str(caught.value) == (
        f"--data {tmp_path}: the folder has no {expected}\n"
        "  rename the files, or write a .yaml file with a `data` section"
    )


def test_unknown_dataset_raises():
    with pytest.raises(ConfigError) as caught:
        find_dataset("latn", TRANSLATION)
    assert str(caught.value) == (
        "--data latn: no dataset is called 'latn'; did you mean 'latin'?\n"
        f"  choose from: {', '.join(sorted(SYNTHETIC_CORPORA))}; "
        "or give a recipe with data, a .yaml file or a folder"
    )


def test_recipe_without_data_raises():
    with pytest.raises(ConfigError) as caught:
        find_dataset("transformer-2017-small", TRANSLATION)
    assert str(caught.value) == (
        "--data transformer-2017-small: the recipe has no training data\n"
        "  name a recipe with `data.train`, a built-in corpus or a folder"
    )
