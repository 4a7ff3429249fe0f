"""Runs with compressed weights: the same model in a half, a quarter or an eighth of the bytes."""

from pathlib import Path
from typing import NamedTuple

from heedful.errors import RunError, check
from heedful.runs import Run
from heedful.storage.atomic import atomic_replace
from heedful.storage.compression import Precision
from heedful.storage.state_dict import read_weights


class FileSizes(NamedTuple):
    """Bytes of the weights before and after."""

    before: int
    after: int

    def __str__(self) -> str:
        before, after = (f"{size / 1e6:.2f} MB" for size in self)
        return f"{after} of weights, {before} before"


def compress_run(run_dir: Path | str, output_dir: Path | str, precision: Precision) -> FileSizes:
    """Write a run folder with compressed weights, which loads as any other."""
    run, output_dir = Run.open(run_dir), Path(output_dir)
    hint = "use a folder that does not exist yet"
    check(not output_dir.exists(), str(output_dir), "already exists", hint, RunError)
    step = run.verify()["step"]
    recipe, weights = run.read_recipe(), read_weights(run.weights_file)
    with atomic_replace(output_dir) as temporary:
        compressed = Run(temporary)
        compressed.initialize(recipe, run.read_tokenizers(recipe), run.original_files())
        compressed.save_model(weights, step=step, precision=precision)
    files = (run.weights_file, Run(output_dir).weights_file)
    return FileSizes(*(file.stat().st_size for file in files))
