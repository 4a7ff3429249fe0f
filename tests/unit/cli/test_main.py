import signal
import subprocess
import sys

import pytest

import heedful as package
from tests.commands import heedful


def test_version_is_printed(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch, "--version")
    assert (ended.code, ended.out) == (0, f"heedful {package.__version__}\n")


def test_no_command_prints_help(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch)
    assert "demo" in ended.out + ended.err


def test_unknown_command_exits_with_2(capsys, monkeypatch):
    assert heedful(capsys, monkeypatch, "trian").code == 2


def test_help_imports_no_torch():
    program = (
        "import sys; from heedful.cli.main import app; assert 'torch' not in sys.modules; "
        "app(['train', '--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_interrupt_outside_training_exits_with_130(capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.recipes.load_recipe", interrupted)
    ended = heedful(capsys, monkeypatch, "recipes")
    assert ended.code == 128 + signal.SIGINT


@pytest.mark.parametrize(
    "command", ["demo", "train", "translate", "evaluate", "show", "recipes", "data"]
)
def test_command_has_help(capsys, monkeypatch, command):
    assert heedful(capsys, monkeypatch, command, "--help").code == 0
