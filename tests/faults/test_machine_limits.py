"""Limits of the machine and of the shell end a command with a message, not with a traceback."""

import os
import resource
import subprocess
import sys

import pytest

from tests.commands import start_heedful

pytestmark = pytest.mark.faults


def run(*words, **options):
    process = start_heedful(*words, stdout=-1, stderr=-1, **options)
    _, err = process.communicate(timeout=300)
    return process.returncode, err


def test_too_little_address_space_raises():
    limit = 200_000_000

    def lower_limit():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    code, err = run("recipes", preexec_fn=lower_limit)
    assert code == 2
    assert err.startswith("heedful: memory: not enough")
    assert "this process may use 0.2 GB (ulimit -v)\n  lower the sizes" in err


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_output_that_the_encoding_lacks_raises(trained, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    code, err = run("show", trained, "a \u03b2 c", env=environment, encoding=encoding)
    assert code == 2
    assert err.startswith(f"heedful: output: the encoding {encoding} has no '\\")
    assert err.endswith("\n  set the environment variable PYTHONIOENCODING=utf-8\n")


def test_deleted_working_directory_raises(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); from heedful.cli.main import main; main()"
    command = [sys.executable, "-c", program, "recipes"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "heedful: .: the working directory no longer exists\n  change to a folder that exists\n",
    )
