"""What a user is told about folders, disks and terminals that are not as usual: no traceback."""

import io
import os
import subprocess
import sys

import pytest

from heedful.cli.main import main
from heedful.errors import DataError
from heedful.terminal import echo
from tests.commands import heedful, mounted, start_heedful, without_privileges, write_random_run
from tests.exporting import TEXTS, TRANSFORMER, write_recipe_run
from tests.language_modeling import write_text_recipe

CHARACTERS = {"type": "shared", "tokenizer": {"type": "character"}}
SETTINGS = {"tokenizers": CHARACTERS, "model": {"encoder": TRANSFORMER, "decoder": TRANSFORMER}}
ACCESS = "  allow access there, or name another folder\n"


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words, stdin=""):
        return heedful(capsys, monkeypatch, *words, stdin=stdin)

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random") / "run"
    return write_random_run(folder, SETTINGS, TEXTS, TEXTS, seed=0)


@pytest.mark.parametrize(
    ("words", "location"),
    [
        ("export RUN --to safetensors --out locked/out", "locked/out"),
        ("export RUN --to safetensors --out locked", "locked"),
        ("export locked/run --to safetensors --out out", "locked/run/manifest.json"),
        ("import locked/model --run out", "locked/model"),
        ("import . --run locked/run", "locked/run"),
        ("translate RUN locked/text", "locked/text"),
        ("align --pairs locked/text.tsv", "locked/text.tsv"),
        ("runs locked", "locked"),
        ("features locked -o f.npy", "locked"),
    ],
)
def test_folder_that_may_not_be_entered(call, tmp_path, run, words, location):
    call("recipes")  # imports what comes with Python, which may also be locked
    (tmp_path / "locked").mkdir()
    os.chmod("locked", 0)
    copied = run if os.geteuid() else tmp_path / "run"
    if not os.geteuid():
        os.rename(run, copied)  # to where others may read
    try:
        with without_privileges():
            ended = call(*words.replace("RUN", "run").split())
    finally:
        os.chmod("locked", 0o755)
        if copied != run:
            os.rename(copied, run)
    assert ended.code == 2
    assert ended.err.endswith(f"heedful: {location}: permission denied\n{ACCESS}")


@pytest.mark.parametrize("target", ["safetensors", "hf"])
def test_full_disk_under_an_export(call, tmp_path, run, target):
    with mounted(tmp_path / "disk", "size=60k") as disk:
        ended = call("export", run, "--to", target, "--out", disk / "out")
        assert os.listdir(disk) == []
    assert ended.code == 2
    assert ended.err.endswith(
        f"heedful: {disk}/out: cannot be written (no space left on device); "
        "what was saved before is untouched\n"
        "  free disk space and run the same command again\n"
    )


@pytest.mark.extras
@pytest.mark.parametrize(
    "target", ["ct2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnx", "torch"))]
)
def test_full_disk_under_an_export_of_graphs(tmp_path, run, target):
    if target != "ct2":  # the graph of a language model is captured in a third of the time
        run = write_recipe_run(str(write_text_recipe(tmp_path / "text")), tmp_path / "run")
    with mounted(tmp_path / "disk", "size=16k") as disk:
        process = start_heedful(
            *("export", run, "--to", target, "--out", disk / "out"), stdout=-1, stderr=-1
        )
        _, err = process.communicate()
        assert os.listdir(disk) == []
    assert process.returncode == 2
    assert err.endswith("  free disk space and run the same command again\n")
    assert "Traceback" not in err


def test_export_onto_a_link_to_a_folder(call, tmp_path, run):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    assert call("export", run, "--to", "safetensors", "--out", "link").code == 0
    assert os.readlink("link") == "disk"
    assert "model.safetensors" in os.listdir("disk")
    assert sorted(os.listdir()) == ["disk", "link"]


CLOSED = """
import os, sys
for descriptor in map(int, sys.argv[1].split(",")):
    os.close(descriptor)
os.execv(sys.executable, [sys.executable, "-m", "heedful", *sys.argv[2:]])
"""


@pytest.mark.wide  # another process imports torch
def test_command_with_closed_standard_streams(tmp_path, run):
    """As cron and daemons may start a program; an open file must not get their numbers."""
    (tmp_path / "text").write_text("ab\ncd\n")
    command = [sys.executable, "-c", CLOSED, "0,1,2", "translate", run, "text", "-o", "out"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("words", [["recipes"], ["translate", "RUN"], ["show", "RUN", "ab"]])
def test_command_with_one_closed_stream(capsys, monkeypatch, run, name, words):
    monkeypatch.setattr(sys, "argv", ["heedful", *(str(run) if w == "RUN" else w for w in words)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\n")))
    monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_escape_sequences_in_names_shown(call):
    ended = call("translate", "\x1b[31mrun\x1b]0;title\x07\n\u202e", "text")
    assert ended.code == 2
    assert ended.err.startswith("heedful: \\x1b[31mrun\\x1b]0;title\\x07\\n\\u202e")
    assert "\x1b" not in str(DataError("a", "in \x1b[2J", "\x9b1m\udcff"))


def test_terminal_gets_no_escape_sequences_of_a_text(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    echo("\x1b[2Ja\tb")
    assert capsys.readouterr().out == "\\x1b[2Ja\tb\n"
