"""Checkpoints of JoeyNMT and OpenNMT-py: which one a file is."""

from pathlib import Path

from heedful.conversion import joeynmt, opennmt
from heedful.conversion.checkpoint_files import read_checkpoint
from heedful.conversion.interface import ImportedRun
from heedful.errors import DataError

_SUFFIXES = {".pt", ".pth", ".ckpt", ".hub"}


def can_read(path: Path) -> bool:
    """Whether a path may be a checkpoint."""
    return path.is_file() and path.suffix in _SUFFIXES


def read_run(path: Path) -> ImportedRun:
    """Read a checkpoint of JoeyNMT or OpenNMT-py, without executing anything in it."""
    checkpoint = read_checkpoint(path)
    names = sorted(map(str, checkpoint)) if isinstance(checkpoint, dict) else []
    if "model_state" in names:
        return joeynmt.read_run(path, checkpoint)
    if {"vocab", "opt"} <= set(names):
        return opennmt.read_run(path, checkpoint)
    message = "neither a checkpoint of JoeyNMT (model_state) nor of OpenNMT-py (model, vocab, opt)"
    hint = f"it contains: {', '.join(names) or 'no dictionary'}"
    raise DataError(str(path), message, hint)
