"""Which peers are there, and how is each installed?

Every peer has an environment of its own under .setup/peers, made when it is first asked for: its
release from PyPI without the dependencies it declares, then what `benchmarks/requirements` lists
for it, at the versions of constraints.txt, the same torch for all. Declared dependencies cannot be
taken as they are: OpenNMT-py wants torch below 2.3, JoeyNMT wants protobuf below 3.21, and both,
like Eole, declare far more than decoding needs, and not all that it does need.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Peer(NamedTuple):
    """A system beside ours."""

    name: str  # and version, as printed
    module: str  # of benchmarks.peers: what is run by its Python
    release: str  # what PyPI calls it


JOEYNMT = Peer("JoeyNMT 2.3.0", "with_joeynmt", "joeynmt==2.3.0")
OPENNMT = Peer("OpenNMT-py 3.5.1", "with_opennmt", "OpenNMT-py==3.5.1")
EOLE = Peer("Eole 0.6.4", "with_eole", "eole==0.6.4")
TRANSFORMERS = Peer("transformers 5.22.2", "with_transformers", "transformers==5.22.2")


class NotInstalledError(Exception):
    """An environment could not be made; says why in a line."""


def python_of(peer: Peer) -> Path:
    """Give the Python of a peer's environment, which is made where it is not there yet."""
    package = peer.release.split("==")[0].lower()
    folder, listed = ROOT / ".setup/peers" / package, _requirements(package)
    python, ready = folder / "bin/python", folder / ".ready"
    wanted = f"{peer.release}\n{listed.read_text()}"
    if not ready.exists() or ready.read_text() != wanted:
        print(f"Installing {peer.name} into {folder.relative_to(ROOT)} (once) ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install(python, "--no-deps", peer.release)
        install(python, "-c", "constraints.txt", "-r", str(listed))
        ready.write_text(wanted)
    return python


def _requirements(package: str) -> Path:
    return ROOT / "benchmarks/requirements" / f"{package}.txt"


def install(python: Path, *what: str) -> None:
    """Install by pip, or say why that cannot be done."""
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--retries=2", *what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalledError((said or [f"pip ended with {done.returncode}"])[-1])
