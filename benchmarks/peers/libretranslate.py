"""LibreTranslate with the package of a run, in its own environment; it asks no network.

LibreTranslate cannot be told to end an output, which random parameters never do by themselves:
`make_ending` has every output end after the same number of tokens, at the same cost of a step.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.peers.environments import Peer, python_of
from heedful.conversion.exporting import export_run
from heedful.tokenization.vocabulary import BOS, EOS

LIBRETRANSLATE = Peer("LibreTranslate 1.9.6", "", "libretranslate==1.9.6", is_constrained=False)
_FIRST = 1000  # id of the first token of all outputs
_INSTALL = "import sys; from argostranslate import package; package.install_from_path(sys.argv[1])"
_FOLDERS = {"XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data"}


def make_ending(weights: dict[str, Tensor], num_tokens: int) -> None:
    """Let a Transformer without tied embeddings say tokens 1000, 1001 ... and then EOS."""
    for name, value in weights.items():
        if name.startswith("decoder.stack.layers") and ".output_projection." in name:
            value.zero_()  # the residual stream is the embedding of the last token
    embeddings = weights["decoder.embedding.embedding.weight"]
    head, bias = (weights[f"decoder.output_head.projection.{name}"] for name in ("weight", "bias"))
    spoken = [BOS, *range(_FIRST, _FIRST + num_tokens)]
    head.zero_()
    bias.zero_()
    head[torch.tensor([*spoken[1:], EOS])] = embeddings[torch.tensor(spoken)]


def install_package(run: Path, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    """Export a run and install it; return the command that serves it, without the port."""
    python = python_of(LIBRETRANSLATE)
    export_run(run, "argos", folder / "package", languages=("de", "en"))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **{name: str(folder / path) for name, path in _FOLDERS.items()},
        **{"ARGOS_BEAM_SIZE": "1", "ARGOS_COMPUTE_TYPE": "float32", "HOME": str(folder)},
    }
    (file,) = (folder / "package").glob("*.argosmodel")
    subprocess.run([python, "-c", _INSTALL, file], env=environment, check=True)
    (folder / "data/argos-translate/index.json").write_text("[]")  # what could be downloaded
    program = python.with_name("libretranslate")
    return [str(program), "--load-only", "de,en"], environment
