"""Bundles: what is needed to look at a step that went wrong.

    batch-0.safetensors ...  the batches of the step
    random.safetensors       the random numbers as they were before it
    facts.json               the step, the place in the data, what was found, the last checkpoint

Everything but the weights: those of the last checkpoint come to the same step by the same command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from heedful.nested import leaves
from heedful.storage import replacing

MOST_BUNDLES = 10  # of a run; the first ones tell the most


def write_bundle(
    folder: Path, group: Sequence[Any], random: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> Path | None:
    """Write a bundle into a folder of bundles; nothing if there are many already."""
    if folder.exists() and len(list(folder.glob("step-*"))) >= MOST_BUNDLES:
        return None
    path = folder / f"step-{facts['step']:08d}"
    with replacing(path) as temporary:
        temporary.mkdir()
        for number, batch in enumerate(group):
            tensors = {f"{place}": tensor for place, tensor in enumerate(leaves(batch))}
            (temporary / f"batch-{number}.safetensors").write_bytes(save(tensors))
        (temporary / "random.safetensors").write_bytes(save(dict(random)))
        (temporary / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return path
