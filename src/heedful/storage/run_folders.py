"""Where runs are, and the names of files in them that are read without loading a model.

Invariant: nothing here imports torch, since the front process of a server does not.
"""

import re
from pathlib import Path

PACKAGED_RUN = Path(__file__).parents[1] / "demo"
"""A small translator from Latin, so that there is something to try before training."""
SAMPLES = "samples.jsonl"
CHECKPOINTS = "checkpoints"
_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")


def locate_run(run_dir: Path | str) -> Path:
    """Return the folder of a run; `demo`, if there is no such folder, comes with heedful."""
    is_packaged = str(run_dir) == PACKAGED_RUN.name and not Path(run_dir).exists()
    return PACKAGED_RUN if is_packaged else Path(run_dir)


def checkpoint_folders(checkpoints: Path) -> dict[int, Path]:
    """Return the folders of checkpoints by step, oldest first; they are not verified."""
    matches = ((_CHECKPOINT_NAME.fullmatch(path.name), path) for path in checkpoints.glob("step-*"))
    return dict(sorted((int(match[1]), path) for match, path in matches if match))
