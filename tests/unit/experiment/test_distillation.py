"""Distillation: what a student learns, how large it is, and that nothing is lost by a kill."""

import pytest

import heedful
from heedful.errors import ConfigError, DataError, RunError
from heedful.experiment.distillation import FOLDER, StudentSize, choose_size, distill
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tasks.translation.distillation import choose_target, write_outputs
from heedful.tasks.translation.translator import TranslationOptions
from tests.commands import heedful as call

pytestmark = pytest.mark.wide

TEACHER = "demo"  # the model that comes with heedful
TEXTS = ["Puella rosam portat.", "Marcus est in horto.", "Servum dominus laudat."] * 4
TINY = {
    "tokenizers.source": {"type": "word"},
    "tokenizers.target": {"type": "word"},
    "training.max_steps": 2,
}


@pytest.fixture(scope="module")
def teacher():
    return heedful.load(TEACHER, device="cpu")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


@pytest.mark.parametrize("recipe", ["default", "transformer-2017-small"])
@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
@pytest.mark.parametrize("max_bytes", [900_000, 3_000_000])
def test_student_is_the_largest_that_fits(max_bytes, precision, recipe):
    size = choose_size(max_bytes, precision, recipe)
    larger = size._replace(hidden_size=size.hidden_size + 16)
    assert size.num_bytes() <= max_bytes < larger.num_bytes()


def test_student_smaller_than_the_smallest_is_rejected():
    with pytest.raises(ConfigError, match="the smallest student has"):
        choose_size(1000, "int8")


def test_sizes_of_a_recipe_stay_in_proportion():
    size = StudentSize(128, "int8", "convs2s-2017-multi30k")  # half of 256
    model = load_recipe(size.recipe, size.settings()).model
    assert model.encoder.embedding_size == model.decoder.embedding_size == 128
    assert [layer.hidden_size for layer in model.encoder.layers] == [128, 256]
    assert [layer.num_layers for layer in model.encoder.layers] == [4, 2]


def test_shared_tokenizer_has_subwords_of_both_languages():
    size = StudentSize(64, "int8", "transformer-2017-small")
    assert size.settings()["tokenizers.tokenizer.vocab_size"] == 2 * 16 * 64


@pytest.mark.parametrize("name", ["bytenet-2016-multi30k", "gpt-small"])
def test_recipe_without_subwords_of_a_translator_is_rejected(name):
    with pytest.raises(ConfigError, match="no size that follows from bytes"):
        choose_size(3_000_000, "int8", name)


def test_target_is_the_output_closest_to_the_reference(teacher):
    output = teacher.translate(TEXTS[0], beam_size=4, n_best=4)
    texts = [output.text, *(other.text for other in output.alternatives)]
    assert len(set(texts)) > 1
    for text in texts:
        assert choose_target(output, text) == text
    assert choose_target(output, None) == output.text


@pytest.mark.parametrize("num_bytes", [0, 1, 9, 30])
def test_outputs_go_on_after_a_kill(teacher, tmp_path, num_bytes):
    options = TranslationOptions(beam_size=2)
    write_outputs(teacher, TEXTS, tmp_path / "whole", options)
    whole = (tmp_path / "whole").read_bytes()
    assert whole.decode().splitlines() == list(teacher.predict_texts(TEXTS, options))
    (tmp_path / "torn").write_bytes(whole[:num_bytes])
    write_outputs(teacher, TEXTS, tmp_path / "torn", options)
    assert (tmp_path / "torn").read_bytes() == whole


@pytest.mark.wide
def test_student_learns_the_outputs_in_the_bytes_it_may_have(teacher, tmp_path, source):
    run = tmp_path / "student"
    result = distill(TEACHER, run, source=[source], max_bytes=200_000, settings=TINY, device="cpu")
    assert result.step == 2
    lines = (run / FOLDER / "target.txt").read_text().splitlines()
    assert lines == [output.text for output in teacher.translate(TEXTS, beam_size=5)]
    assert Run(run).weights_file.stat().st_size < 200_000
    recipe = Run(run).read_recipe()
    assert recipe.model.encoder.hidden_size == choose_size(200_000, "int8").hidden_size
    assert recipe.training.saved_precision == "int8"
    heedful.load(run, device="cpu").translate(TEXTS[0])
    again = distill(TEACHER, run, source=[source], max_bytes=200_000, settings=TINY, device="cpu")
    assert again.step == 2


def test_other_texts_are_rejected(tmp_path, source):
    run = tmp_path / "student"
    (run / FOLDER).mkdir(parents=True)
    (run / FOLDER / "source.txt").write_text("b\n")
    with pytest.raises(RunError, match="begun with other texts"):
        distill(TEACHER, run, source=[source], device="cpu")


def test_references_must_be_parallel(tmp_path, source):
    (tmp_path / "target.txt").write_text("a\n")
    with pytest.raises(DataError, match="1 line, but 12 lines of sources"):
        distill(TEACHER, tmp_path / "run", source=[source], target=[tmp_path / "target.txt"])


def test_command_distills(tmp_path, source, capsys, monkeypatch):
    run = tmp_path / "student"
    settings = ["tokenizers.source={type: word}", "tokenizers.target={type: word}"]
    options = [word for setting in settings for word in ("--set", setting)]
    options += ["--recipe", "luong-2015-general-multi30k", "--set", "training.validate_every=null"]
    options += ["--set", "training.max_steps=2", "--size", "0.2MB", "--device", "cpu", "--quiet"]
    command = ("distill", TEACHER, "--source", source, "--target", source, "--run", run)
    ended = call(capsys, monkeypatch, *command, *options)
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{run}: reached max_steps=2")
    assert StudentSize(32, "int8").settings()["training.saved_precision"] == "int8"
