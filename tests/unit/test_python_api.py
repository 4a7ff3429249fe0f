"""`heedful.train` and `heedful.load` as Python code calls them."""

import copy
import json
import os
import pickle
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
import yaml

import heedful
from heedful.data.synthetic import get_corpus
from heedful.errors import ArgumentError, ConfigError, RunError
from heedful.recipes import Recipe, load_recipe
from heedful.tasks.classification.predictor import Classifier
from heedful.training.callbacks import Callback
from tests import catalogue
from tests.captioning import caption_recipe, write_images
from tests.commands import heedful as run_command
from tests.commands import write_random_run, write_recipe
from tests.labeled_texts import write_labeled_recipe
from tests.shape_checking import unchecked

PAIRS = [
    (f"{pair.source}", pair.target)
    for pair in islice(get_corpus("reverse").pairs("train", seed=0), 60)
]
TINY = {
    "tokenizers": {
        "type": "separate",
        "source": {"type": "word"},
        "target": {"type": "word"},
    },
    "model": {
        "encoder": {"type": "recurrent", "embedding_size": 4, "hidden_size": 4},
        "decoder": {"type": "recurrent", "embedding_size": 4, "hidden_size": 4},
    },
    "training": {"max_steps": 2, "validate_every": 2},
}


def files(folder):
    for name, texts in zip(("source", "target"), zip(*PAIRS, strict=True), strict=True):
        (folder / name).write_text("".join(f"{text}\n" for text in texts))
    return {"source": folder / "source", "target": str(folder / "target")}


def test_recipe_forms_return_equal_recipes(tmp_path):
    path = write_recipe(tmp_path)
    expected = load_recipe(str(path))
    settings = yaml.safe_load(path.read_text())
    named = {**settings, "info": {**settings.get("info", {}), "name": path.stem}}
    for form in (path, named, expected):
        assert load_recipe(form) == expected


def test_settings_forms_equal_the_command_line():
    command_line = [
        "training.max_steps=7",
        "model.decoder.attention.score.type=dot",
        "data.dev=null",
    ]
    expected = load_recipe("reverse-tiny", command_line)
    dotted = {
        "training.max_steps": 7,
        "model.decoder.attention.score.type": "dot",
        "data.dev": None,
    }
    nested = {
        "training": {"max_steps": 7},
        "model": {"decoder.attention": {"score": {"type": "dot"}}},
        "data": {"dev": None},
    }
    assert load_recipe("reverse-tiny", dotted) == load_recipe("reverse-tiny", nested) == expected


def test_nested_settings_may_change_a_type_together_with_the_fields():
    score = {"hidden_size": 3, "type": "additive"}
    changed = load_recipe("reverse-tiny", {"model.decoder.attention.score": score})
    assert changed.model.decoder.attention.score.hidden_size == 3


@pytest.mark.wide
def test_pairs_in_memory_train_the_same_model_as_files(tmp_path):
    with unchecked():
        heedful.train(TINY, tmp_path / "files", **files(tmp_path), settings={"training.seed": 3})
        heedful.train(TINY, tmp_path / "pairs", pairs=iter(PAIRS), settings={"training.seed": 3})
    one, other = (heedful.load(tmp_path / name).score(PAIRS[:3]) for name in ("files", "pairs"))
    assert [result.log_prob for result in one] == [result.log_prob for result in other]


def test_data_from_python_replaces_all_data_of_the_recipe(tmp_path):
    with unchecked():
        heedful.train(
            "reverse-tiny", tmp_path / "run", pairs=PAIRS, settings={"training.max_steps": 1}
        )
    data = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]
    assert data["train"]["path"] == str(tmp_path / "run" / "pairs.jsonl")
    assert (data["dev"], data["test"]) == (None, None)


@pytest.mark.wide
def test_pairs_resume_from_the_same_pairs_or_from_the_run_folder(tmp_path):
    run = tmp_path / "run"
    with unchecked():
        assert heedful.train(TINY, run, pairs=PAIRS).step == 2
        assert heedful.train(TINY, run, pairs=PAIRS, settings={"training.max_steps": 3}).step == 3
        settings = {"training.max_steps": 4}
        assert heedful.train(run / "config.yaml", run, settings=settings).step == 4
        written = (run / "pairs.jsonl").read_bytes()
        with pytest.raises(RunError, match="this run was not started with the 59 pairs"):
            heedful.train(TINY, run, pairs=PAIRS[1:])
    assert (run / "pairs.jsonl").read_bytes() == written
    assert [tuple(json.loads(line).values()) for line in written.splitlines()] == PAIRS


def test_invalid_pair_raises_with_the_index(tmp_path):
    for wrong in ("ab", ("a",), ("a", 1), {"source": "a", "target": "b"}):
        with pytest.raises(ArgumentError, match=r"pairs\[1\]: expected \(source, target\)"):
            heedful.train(TINY, tmp_path / "run", pairs=[("a", "b"), wrong])
    with pytest.raises(ArgumentError, match="pairs: is empty"):
        heedful.train(TINY, tmp_path / "run", pairs=[])


def test_conflicting_arguments_reported_by_python_name(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(ArgumentError, match=r"^source: given without target"):
        heedful.train(TINY, run, source="a")
    with pytest.raises(ArgumentError, match=r"^text, pairs: given together"):
        heedful.train(TINY, run, text="a", pairs=PAIRS)
    with pytest.raises(ArgumentError, match=r"^run: not given"):
        heedful.train(TINY, pairs=PAIRS)
    with pytest.raises(ConfigError, match=r"^training\.max_stepz: no setting is called"):
        heedful.train(TINY, run, pairs=PAIRS, settings={"training.max_stepz": 1})
    assert not run.exists()


def test_files_and_limits_are_keywords_of_train(tmp_path):
    recipe, labeled = write_labeled_recipe(tmp_path)
    data = {"labeled": labeled, "dev_labeled": str(labeled), "source_column": 2, "target_column": 1}
    data |= {name: str(data[name]) for name in ("source_column", "target_column")}
    with unchecked():
        assert heedful.train(recipe, tmp_path / "run", **data, steps=2, minutes=1).step == 2
    read = load_recipe(tmp_path / "run" / "config.yaml")
    assert read.data.train.path == read.data.dev.path == str(labeled)
    assert (read.data.train.source_column, read.data.train.target_column) == (2, 1)
    assert (read.training.max_steps, read.training.max_minutes) == (2, 1)


def test_captions_and_images_are_keywords_of_train(tmp_path):
    captions = write_images(tmp_path / "images").rename(tmp_path / "captions.tsv")
    files = {"captions": captions, "images": tmp_path / "images"}
    recipe = caption_recipe({"type": "captions", "path": "none.tsv"})
    with unchecked():
        heedful.train(recipe, tmp_path / "run", **files, steps=1)
        scores = heedful.evaluate(tmp_path / "run", **files)
    assert {score.name for score in scores} >= {"BLEU-4", "CIDEr-D"}
    captioner = heedful.load(tmp_path / "run", task="captioning")
    assert captioner.caption(tmp_path / "images" / "0.png").image.endswith("0.png")


def test_wrong_file_keywords_reported_by_python_name(tmp_path):
    with pytest.raises(ArgumentError, match=r"^dev_source: given without dev_target"):
        heedful.train(TINY, tmp_path / "run", **files(tmp_path), dev_source="a")
    message = r"^captionz: no argument has this name; did you mean 'captions'\?"
    with pytest.raises(ArgumentError, match=message):
        heedful.train(TINY, tmp_path / "run", captionz="a")
    assert not (tmp_path / "run").exists()


WRONG_TYPES = {
    "train, recipe": (lambda run: heedful.train(5, run), "recipe: must be str | Path | Mapping"),
    "train, run": (lambda run: heedful.train(TINY, [run]), "run: must be Path | str | None"),
    "train, file": (lambda run: heedful.train(TINY, run, source=["a"], target="b"), "source: must"),
    "train, pairs": (lambda run: heedful.train(TINY, run, pairs=5), "pairs: must be str |"),
    "train, settings": (lambda run: heedful.train(TINY, run, settings=5), "settings: must be str"),
    "train, steps": (lambda run: heedful.train(TINY, run, steps=2.5), "steps: must be int | None"),
    "train, minutes": (lambda run: heedful.train(TINY, run, minutes="5"), "minutes: must be float"),
    "train, callbacks": (lambda run: heedful.train(TINY, run, callbacks=print), "callbacks: must"),
    "train, trackers": (
        lambda run: heedful.train(TINY, run, report_to="wandb"),
        "report_to: must be Sequence[str], but is 'wandb' (str)",
    ),
    "load, run": (lambda run: heedful.load(None), "run: must be Path | str, but is None (NoneType"),
    "load, ensemble": (
        lambda run: heedful.load(run, ensemble_with="runs/other"),
        "ensemble_with: must be Sequence[Path | str], but is 'runs/other' (str)",
    ),
    "load, dtype": (
        lambda run: heedful.load(run, dtype=torch.float32),
        "dtype: must be Literal['fp32', 'bf16', 'int8'], but is torch.float32 (dtype)",
    ),
    "load, task": (lambda run: heedful.load(run, task="tag"), "task: no task is called 'tag'"),
    "evaluate, metrics": (
        lambda run: heedful.evaluate(run, metrics="bleu"),
        "metrics: must be Sequence[str], but is 'bleu' (str)",
    ),
    "translate": (lambda run: heedful.load(run).translate(5), "texts: must be str | Request"),
    "translate, one text": (
        lambda run: heedful.load(run).translate(["a", 5]),
        "text 2: must be a text (str), but is 5 (int)",
    ),
    "translate, beam": (
        lambda run: heedful.load(run).translate("a", beam_size="5"),
        "beam_size: must be int | None, but is '5' (str)",
    ),
    "score": (lambda run: heedful.load(run).score(["ab"]), "pairs: must be Sequence[tuple[str"),
}


@pytest.mark.parametrize(("call", "message"), WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_argument_of_wrong_type_raises(trained, call, message):
    with pytest.raises(ArgumentError) as error:
        call(trained)
    assert str(error.value).startswith(message)


def test_evaluate_returns_the_scores_of_the_command(trained, tmp_path, capsys, monkeypatch):
    lines = ["a b c", "b a", "c c a b"]
    (tmp_path / "texts").write_text("".join(f"{line}\n" for line in lines))
    names = ["--source", tmp_path / "texts", "--target", tmp_path / "texts", "--json"]
    printed = json.loads(run_command(capsys, monkeypatch, "evaluate", trained, *names).out)
    path = tmp_path / "texts"
    from_files = heedful.evaluate(trained, source=path, target=path)
    assert [score._asdict() for score in from_files] == [
        {name: entry[name] for name in ("name", "value", "signature")} for entry in printed
    ]
    from_memory = heedful.evaluate(trained, pairs=((line, line) for line in lines))
    assert from_memory == from_files
    (perplexity,) = heedful.evaluate(trained, source=path, target=[path], metrics=["perplexity"])
    assert perplexity.value >= 1


def test_evaluate_reports_missing_and_foreign_data_by_python_name(trained):
    with pytest.raises(ArgumentError, match=r"^data\.test: the recipe of the run names no test"):
        heedful.evaluate(trained)
    with pytest.raises(ArgumentError, match=r"^labeled: this run translates"):
        heedful.evaluate(trained, labeled="a.tsv")
    with pytest.raises(ArgumentError, match=r"^metrics: aer of a run needs gold"):
        heedful.evaluate(trained, pairs=[("a", "a")], metrics=["aer"])


def test_callbacks_receive_every_step_and_validation(tmp_path):
    class Recorder(Callback):
        def __init__(self):
            self.calls = []

        def on_step_end(self, metrics):
            self.calls.append(("step", metrics.step))

        def on_validation_end(self, result):
            self.calls.append(("validation", result.step))

        def on_train_end(self):
            self.calls.append(("end", None))

    recorder = Recorder()
    with unchecked():
        heedful.train(TINY, tmp_path / "run", pairs=PAIRS, callbacks=[recorder])
    assert recorder.calls == [("step", 1), ("step", 2), ("validation", 2), ("end", None)]


# ----- predictors


@pytest.fixture(scope="module")
def predictors(tmp_path_factory):
    """Return a predictor of each task with random parameters, and what to call it with."""
    folder = tmp_path_factory.mktemp("predictors")
    shared = {"type": "shared", "tokenizer": {"type": "word"}}
    transformer = catalogue.SYSTEMS["transformer"]
    language_model = {"embedding_size": 8, "backbone": {"hidden_size": 8}}
    masked = {"encoder": {"type": "recurrent", "embedding_size": 8, "hidden_size": 8}}
    models = {
        "rnn": TINY["model"],
        "transformer": transformer,
        "language model": {"type": "language-model", **language_model},
        "masked language model": {
            "type": "masked-language-model",
            "tie_embeddings": False,
            **masked,
        },
    }
    sources, targets = zip(*PAIRS, strict=True)
    runs = {
        name: write_random_run(
            folder / name, {"model": model, "tokenizers": shared}, sources, targets, seed=1
        )
        for name, model in models.items()
    }
    text = PAIRS[0][0]
    calls = {
        "rnn": lambda model: model.translate(text).text,
        "transformer": lambda model: model.translate(text).text,
        "language model": lambda model: model.generate(text, max_new_tokens=5),
        "masked language model": lambda model: model.fill_mask(f"{text} [MASK]"),
    }
    return {name: (heedful.load(runs[name]), calls[name]) for name in models}


NAMES = ["rnn", "transformer", "language model", "masked language model"]
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_copies_of_a_used_predictor_predict_the_same(predictors, name, duplicate):
    predictor, call = predictors[name]
    expected = call(predictor)
    for _ in range(3):
        call(predictor)
    assert call(duplicate(predictor)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_repr_names_type_size_and_device(predictors, name):
    predictor, _ = predictors[name]
    text = repr(predictor)
    count = sum(parameter.numel() for parameter in predictor.model.parameters())
    assert text.startswith(f"<{type(predictor).__name__}: {count:,} parameters, vocabulary ")
    assert text.endswith(", on cpu>")


def test_one_text_returns_one_translation(predictors):
    translator, _ = predictors["transformer"]
    texts = [source for source, _ in PAIRS[:3]]
    one_by_one = [translator.translate(text).text for text in texts]
    assert one_by_one == [result.text for result in translator.translate(iter(texts))]
    assert isinstance(translator.translate(texts[:1]), list)


def test_one_text_returns_one_classification(monkeypatch):
    classifier = Classifier.__new__(Classifier)
    monkeypatch.setattr(Classifier, "predict", lambda self, texts: (text.upper() for text in texts))
    assert classifier.classify("a text") == "A TEXT"
    assert classifier.classify(["a", "b"]) == ["A", "B"]


def test_device_may_be_a_torch_device(trained):
    assert heedful.load(trained, device=torch.device("cpu")).device == torch.device("cpu")
    with pytest.raises(ConfigError, match="there is no device called 'meta'"):
        heedful.load(trained, device=torch.device("meta"))


def test_settings_of_load_may_be_a_dict(trained):
    assert heedful.load(trained, settings={"decoding": {"beam_size": 2}}).decoding.beam_size == 2


# ----- threads and types


def openmp_settings(program, *arguments):
    """Return the settings that the OpenMP runtime prints when torch loads it."""
    unset = {"OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT"}
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    command = [sys.executable, *program, *arguments]
    environment |= {"OMP_DISPLAY_ENV": "TRUE", "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = finished.stderr.splitlines()
    found = [line.strip() for line in lines if "OMP" in line and "=" in line]
    return [line for line in found if "SPINCOUNT" not in line]  # as busy as the machine is


@pytest.mark.wide  # two processes that import torch
@pytest.mark.skipif(sys.platform != "linux", reason="reads what libgomp prints")
@pytest.mark.slow
def test_threads_wait_the_same_from_python_and_from_the_command(trained):
    from_python = openmp_settings(["-c", f"import heedful; heedful.load({str(trained)!r})"])
    command = openmp_settings(["-m", "heedful"], "translate", str(trained), "/dev/null")
    assert any("OMP_WAIT_POLICY = 'PASSIVE'" in line for line in from_python)
    assert from_python == command


TYPED = """
import heedful
import torch
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.tagging.predictor import Tagger
from heedful.tasks.translation.translator import Translator

model = heedful.load("run", device=torch.device("cpu"))
translator = heedful.load_as("run", Translator, settings={"decoding.beam_size": 2})
reveal_type(heedful.train("default", "run", pairs=[("a", "b")], labeled="c", steps=5))
reveal_type(heedful.evaluate("run", labeled="c")[0])
reveal_type(translator.translate("a"))
reveal_type(translator.translate(["a"], beam_size=2)[0])
reveal_type(heedful.load_as("run", Captioner).caption(["a"])[0])
reveal_type(heedful.load_as("run", Tagger).tag("a"))
translator.classify("a")
model.translate("a")
heedful.train("default", "run", steps="5")
"""


@pytest.mark.wide
@pytest.mark.slow
def test_type_checkers_see_what_load_and_train_return(tmp_path):
    api = pytest.importorskip("mypy.api")
    (tmp_path / "user.py").write_text(TYPED)
    root = Path(heedful.__file__).parents[2]
    arguments = ["--config-file", str(root / "pyproject.toml"), "--follow-imports=silent"]
    arguments += ["--cache-dir", str(root / ".mypy_cache"), str(tmp_path / "user.py")]
    output = api.run(arguments)[0]
    types = [line.split('"')[1] for line in output.splitlines() if "Revealed type" in line]
    assert [name.replace("builtins.", "").rsplit(".", 1)[-1].strip("]") for name in types] == [
        "TrainingResult",
        "MetricScore",
        "Translation",
        "Translation",
        "Caption",
        "TaggedSentence",
    ], output
    errors = [line.split("error: ")[1] for line in output.splitlines() if "error: " in line]
    assert [line.rpartition("[")[2] for line in errors] == ["attr-defined]", "arg-type]"], output


def test_recipe_argument_is_not_changed():
    settings = copy.deepcopy(TINY)
    assert isinstance(load_recipe(settings, {"training.max_steps": 9}), Recipe)
    assert settings == TINY
