import signal
import subprocess
import sys

import pytest

import heedful as package
from tests.commands import heedful


def test_the_version_is_said(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch, "--version")
    assert (ended.code, ended.out) == (0, f"heedful {package.__version__}\n")


def test_without_a_command_help_is_given(capsys, monkeypatch):
    ended = heedful(capsys, monkeypatch)
    assert "demo" in ended.out + ended.err


def test_an_unknown_command_is_a_mistake_the_user_can_mend(capsys, monkeypatch):
    assert heedful(capsys, monkeypatch, "trian").code == 2


def test_help_imports_no_torch():
    program = (
        "import sys; from heedful.cli.main import app; assert 'torch' not in sys.modules; "
        "app(['train', '--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_an_interrupt_outside_training_ends_the_command(capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.recipes.load_recipe", interrupted)
    ended = heedful(capsys, monkeypatch, "recipes")
    assert ended.code == 128 + signal.SIGINT


@pytest.mark.parametrize(
    "command", ["demo", "train", "translate", "evaluate", "show", "recipes", "data"]
)
def test_every_command_of_the_contract_is_there(capsys, monkeypatch, command):
    assert heedful(capsys, monkeypatch, command, "--help").code == 0
