"""Debug dumps of steps whose loss or gradient is not finite: batches and random number states."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.pytree import tensors_of
from heedful.storage.atomic import atomic_replace

BAD_STEPS_FOLDER = "bad-steps"
MAX_DEBUG_DUMPS = 10  # per run; the first ones tell the most


class NonFiniteError(HeedfulError):
    """Too many consecutive steps with a loss or gradient that is not finite."""

    exit_code = 3


def write_debug_dump(
    folder: Path,
    micro_batches: Sequence[Any],
    rng_states: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
) -> Path | None:
    """Save what is needed to repeat a step from the last checkpoint; None if there are enough.

    Not the parameters: the last checkpoint and the same command lead to them.
    """
    if folder.exists() and len(list(folder.glob("step-*"))) >= MAX_DEBUG_DUMPS:
        return None
    path = folder / f"step-{metadata['step']:08d}"
    with atomic_replace(path) as temporary:
        temporary.mkdir()
        for index, batch in enumerate(micro_batches):
            tensors = {str(field): tensor for field, tensor in enumerate(tensors_of(batch))}
            (temporary / f"batch-{index}.safetensors").write_bytes(save(tensors))
        (temporary / "rng_states.safetensors").write_bytes(save(dict(rng_states)))
        text = json.dumps(metadata, indent=2) + "\n"
        (temporary / "metadata.json").write_text(text, encoding="utf-8")
    return path
