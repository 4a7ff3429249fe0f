import re
import signal
import subprocess
import sys

import pytest

import heedful as package
from heedful.tasks.registry import all_file_options
from tests.commands import heedful, start_heedful, write_recipe


def test_version_is_printed(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch, "--version")
    assert (ended.code, ended.out) == (0, f"heedful {package.__version__}\n")


def test_no_command_prints_help(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch)
    assert "demo" in ended.out + ended.err


def test_help_has_a_line_for_each_kind_of_data(capsys, monkeypatch):
    printed = heedful(capsys, monkeypatch, "--help").out.splitlines()
    table = [line.split() for line in printed]
    assert ["running", "text", "--text", "FILE", "a", "language", "model", "generate"] in table
    options = {option.single_file.flag() for option in all_file_options()} - {"--pairs"}
    assert all(any(option in line for line in table) for option in options)
    assert max(map(len, printed)) <= 80


def test_unknown_command_exits_with_2(capsys, monkeypatch):
    assert heedful(capsys, monkeypatch, "trian").code == 2


@pytest.mark.parametrize("words", [["x" * 9999], ["train", f"--{'x' * 9999}"]])
def test_usage_errors_fit_on_a_screen(capsys, monkeypatch, words):
    ended = heedful(capsys, monkeypatch, *words)
    assert ended.code == 2
    assert len(ended.err) < 1920  # 24 lines of 80 columns


MEMORY_ERRORS = [
    (MemoryError(), "not enough; "),
    (RuntimeError("can't allocate memory: you tried to allocate 80 bytes."), "for 80 bytes; "),
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU"), "for 2.00 GiB; "),
]


@pytest.mark.parametrize(("error", "message"), MEMORY_ERRORS, ids=repr)
def test_lack_of_memory_raises(capsys, monkeypatch, error, message):
    def fail(*arguments):
        raise error

    monkeypatch.setattr("heedful.recipes.load_recipe", fail)
    ended = heedful(capsys, monkeypatch, "recipes")
    assert ended.code == 2
    assert message in ended.err
    assert " GB are free" in ended.err


def test_other_errors_keep_traceback(capsys, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr("heedful.recipes.load_recipe", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        heedful(capsys, monkeypatch, "recipes")


@pytest.mark.parametrize("size", [1_000_000, 10**12])
def test_model_larger_than_memory_raises_with_both_sizes(capsys, monkeypatch, tmp_path, size):
    setting = f"model.encoder.hidden_size={size}"
    words = ["train", write_recipe(tmp_path), "--run", tmp_path / "run", "--set", setting]
    ended = heedful(capsys, monkeypatch, *words, "--device", "cpu")
    assert ended.code == 2
    assert re.search(
        r"parameters with their gradients need [\d,]+\.\d GB of memory, and \d+\.\d GB are free"
        r"|memory: not enough",
        ended.err,
    )


def test_help_imports_no_torch():
    program = (
        "import sys; from heedful.cli.main import app; "
        "app(['train', '--help'], standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "Train a model" in ended.stdout
    assert "heedful.cli.main" in ended.stderr.split()
    assert "torch" not in ended.stderr.split()


def test_interrupt_outside_training_exits_with_130(capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.recipes.load_recipe", interrupted)
    ended = heedful(capsys, monkeypatch, "recipes")
    assert ended.code == 128 + signal.SIGINT


@pytest.mark.parametrize(
    "words",
    [["--version"], ["train", "-h"], ["data", "latin"]],
)
@pytest.mark.wide
def test_closed_pipe_ends_a_command_quietly(words):
    process = start_heedful(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert (process.stderr.read(), process.wait(300)) == ("", 128 + signal.SIGPIPE)
