import sys

import pytest

from heedful.cli.options import command


@pytest.mark.parametrize(
    ("called", "said"),
    [
        ("heedful", "heedful"),
        (".venv/bin/heedful", ".venv/bin/heedful"),
        ("my folder/heedful", "'my folder/heedful'"),
        ("/somewhere/heedful/__main__.py", "python -m heedful"),
    ],
)
def test_a_hint_can_be_typed_as_it_stands(monkeypatch, called, said):
    monkeypatch.setattr(sys, "argv", [called])
    assert command() == said


def test_a_command_on_the_path_is_called_by_its_name(monkeypatch, tmp_path):
    script = tmp_path / "heedful"
    script.write_text("")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert command() == "heedful"
