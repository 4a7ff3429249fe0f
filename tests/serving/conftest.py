"""Servers that many tests share; each test leaves them ready."""

import pytest

from tests.serving.servers import GOLDEN, START_SECONDS, running


@pytest.fixture(scope="session")
def server(tmp_path_factory, trained):
    """Serve a run of every task, and one that copies letters, by one command."""
    golden = sorted(path.with_suffix("") for path in GOLDEN.glob("*.json"))
    folder = tmp_path_factory.mktemp("server")
    limits = ["--timeout", START_SECONDS, "--header-timeout", 5]
    with running(folder, f"letters={trained}", *golden, *limits) as server:
        yield server
