"""The environment: with what, on what and by which command was this trained?"""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from typing import Any

import torch

from heedful.training.ranks import Ranks
from heedful.version import VERSION


def environment(device: torch.device, ranks: Ranks) -> dict[str, Any]:
    """Say what results may depend on: a run resumes to the bit only where all this is the same."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "heedful": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device} ({name})",
        "threads": torch.get_num_threads(),
        "ranks": ranks.world,
        "command": shlex.join(sys.argv),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
