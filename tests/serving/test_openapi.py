"""Requests that schemathesis makes up from /openapi.json get what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.servers import GOLDEN, running

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a run of every task with small limits, which make requests quick."""
    golden = sorted(path.with_suffix("") for path in GOLDEN.glob("*.json"))
    limits = ["--max-inputs", 4, "--max-characters", 40, "--max-outputs", 5, "--timeout", 100]
    limits += ["--max-new-tokens", 20, "--languages", "translation-transformer=la-en"]
    with running(tmp_path_factory.mktemp("openapi"), *golden, *limits) as server:
        yield server


@pytest.mark.parametrize(
    ("options", "num_cases"),
    [
        pytest.param(
            ["--phases", "examples,fuzzing", "--max-examples", "30"], 300, marks=pytest.mark.extras
        ),
        pytest.param(["--max-examples", "40"], 2000, marks=pytest.mark.slow),
    ],
    ids=["hundreds", "thousands"],
)
def test_requests_from_the_schema_pass_all_checks(server, tmp_path, options, num_cases):
    pytest.importorskip("schemathesis")
    workers = server.worker_pids()
    program = Path(sys.executable).with_name("schemathesis")
    words = [program, "--config-file", HERE / "schemathesis.toml", "run"]
    words += [f"{server.url}/openapi.json", "--seed", "1", "--no-color", *options]
    hooks = {"SCHEMATHESIS_HOOKS": "schema_checks", "PYTHONPATH": str(HERE)}
    environment = {**os.environ, **hooks}
    run = subprocess.run(
        words, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    assert int(re.search(r"(\d+) generated", run.stdout)[1]) >= num_cases
    assert server.worker_pids() == workers
