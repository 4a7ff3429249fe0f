"""Parts: how are tensors kept of which each rank holds a part?

Every rank writes its own parts into one folder, with torch's distributed checkpoint format (DCP):
nothing is gathered, and any number of ranks can read them again. The format holds a pickle, which
runs what it is told when it is read: only read a folder whose hashes were found good, and whose
writer is trusted.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from heedful.errors import DiskFullError, HeedfulError
from heedful.storage import discard, explaining_failures, require_space
from heedful.training.ranks import Ranks
from heedful.weights import is_parted


def write_parts(tensors: Mapping[str, Tensor], folder: Path, ranks: Ranks) -> None:
    """Write this rank's parts; all ranks must do so, and all are told if one cannot."""
    # Slow to import, and few need it.
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    _make_ready(folder, sum(each.nbytes for each in tensors.values()), ranks)
    try:
        save(dict(tensors), storage_writer=FileSystemWriter(folder))
    except CheckpointException as failure:
        causes = [cause for cause, _ in failure.failures.values()]
        full = any(getattr(cause, "errno", 0) == errno.ENOSPC for cause in causes)
        with explaining_failures(folder):
            raise OSError(errno.ENOSPC if full else errno.EIO, str(causes[0])) from failure


def read_parts(folder: Path, like: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """Read tensors, parted as the weights that `like` gives for their names, or whole as those."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    names = FileSystemReader(folder).read_metadata().state_dict_metadata
    found = {name: torch.empty_like(like(name)) for name in names}
    is_alone = not any(map(is_parted, found.values()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as is meant
        load(found, storage_reader=FileSystemReader(folder), no_dist=is_alone)
    return found


def _make_ready(folder: Path, size: int, ranks: Ranks) -> None:
    problem: HeedfulError | None = None
    if ranks.is_first:
        try:
            if folder.exists():  # of a checkpoint that could not be saved
                discard(folder)
            require_space(folder, size)
        except HeedfulError as error:
            problem = error
    (is_refused,) = ranks.any(problem is not None)
    if is_refused:
        raise problem or DiskFullError(str(folder), "the first rank says why", "see its message")
