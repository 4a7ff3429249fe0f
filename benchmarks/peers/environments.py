"""The peers and their virtual environments.

Every peer has an environment under .setup/peers, created on first use: its release from PyPI
without declared dependencies, then the packages in `benchmarks/requirements` at the versions of
constraints.txt, with the same torch for all. Declared dependencies cannot be installed: OpenNMT-py
needs torch below 2.3, JoeyNMT protobuf below 3.21, and both, like Eole, declare more than decoding
needs and not all of what it does need.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Peer(NamedTuple):
    """A toolkit to compare with."""

    name: str  # and version, as printed
    module: str  # of benchmarks.peers: what is run by its Python
    release: str  # what PyPI calls it
    is_constrained: bool = True  # to the versions of constraints.txt


JOEYNMT = Peer("JoeyNMT 2.3.0", "with_joeynmt", "joeynmt==2.3.0")
OPENNMT = Peer("OpenNMT-py 3.5.1", "with_opennmt", "OpenNMT-py==3.5.1")
EOLE = Peer("Eole 0.6.4", "with_eole", "eole==0.6.4")
TRANSFORMERS = Peer("transformers 5.22.2", "with_transformers", "transformers==5.22.2")


class NotInstalledError(Exception):
    """An environment could not be created; the message is one line."""


def python_of(peer: Peer) -> Path:
    """Return the Python of a peer's environment, creating it if necessary."""
    package = peer.release.split("==")[0].lower()
    folder, listed = ROOT / ".setup/peers" / package, _requirements(package)
    python, ready = folder / "bin/python", folder / ".ready"
    expected = f"{peer.release}\n{listed.read_text()}"
    if not ready.exists() or ready.read_text() != expected:
        print(f"Installing {peer.name} into {folder.relative_to(ROOT)} (once) ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install(python, "--no-deps", peer.release)
        constraints = ["-c", "constraints.txt"] if peer.is_constrained else []
        install(python, *constraints, "-r", str(listed))
        ready.write_text(expected)
    return python


def _requirements(package: str) -> Path:
    return ROOT / "benchmarks/requirements" / f"{package}.txt"


def install(python: Path, *arguments: str) -> None:
    """Install with pip, or raise its error message."""
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--retries=2", *arguments]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if completed.returncode:
        errors = [line for line in completed.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalledError((errors or [f"pip ended with {completed.returncode}"])[-1])
