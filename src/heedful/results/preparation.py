"""The data of a result: files checked by their hashes, and what is prepared from them.

Invariant: the same files and settings give the same prepared files, byte for byte.
"""

import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.data.text_files import open_file, read_lines
from heedful.errors import DataError, check, format_count
from heedful.results.config import (
    LongSeriesConfig,
    ReferencesConfig,
    ResultConfig,
    RewriteConfig,
    SplitOffConfig,
    SplitTextConfig,
)
from heedful.storage.atomic import write_text

DATA_VARIABLE = "HEEDFUL_DATA"
_BINARY = (".npy", ".xz", ".npz", "-ubyte.gz")
_LARGE = 2**64


class DataState(NamedTuple):
    """Whether the files of a result are there."""

    folder: Path | None
    missing: Sequence[str]
    changed: Sequence[str] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all files are there and unchanged."""
        return not (self.missing or self.changed)


def data_root(folder: Path | None) -> Path | None:
    """Return the data folder: the given one, or that of the environment variable."""
    return folder or (Path(os.environ[DATA_VARIABLE]) if DATA_VARIABLE in os.environ else None)


def find_data(result: ResultConfig, root: Path | None, *, with_hashes: bool = True) -> DataState:
    """Look for the files of a result, and compare their hashes."""
    if result.data is None:
        return DataState(None, ())
    files = result.data.files
    folder = None if root is None else root / result.data.folder
    missing = [name for name in files if folder is None or not (folder / name).is_file()]
    changed: list[str] = []
    if folder is not None and with_hashes:
        there = [name for name in files if name not in missing]
        changed = [name for name in there if _sha256(folder / name) != files[name]]
    return DataState(folder, missing, changed)


def check_data(result: ResultConfig, state: DataState, root: Path | None) -> None:
    """Raise DataError that says which files are missing, and how to get them."""
    data = result.data
    if data is None or state.is_complete:
        return
    names = [*state.missing, *state.changed]
    reason = "missing" if state.missing else "another file than the published one (SHA-256)"
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    message = f"{format_count(len(names), 'file')} {reason}: {shown}"
    place = f"{root or 'FOLDER'}/{data.folder}"
    hint = f"put them into {place}, and give --data {root or 'FOLDER'} (or {DATA_VARIABLE}); "
    raise DataError(f"data/{data.folder}", message, f"{hint}they come from {data.get}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare(result: ResultConfig, folder: Path | None, prepared: Path, lines: int | None) -> Path:
    """Write the prepared files; return the folder of the data, cut if `lines` are given."""
    if folder is None:
        return prepared
    prepared.mkdir(parents=True, exist_ok=True)
    if lines is not None and result.data is not None:
        folder = _cut(folder, result.data.files, prepared / "data", lines)
    for step in result.prepare:
        _STEPS[type(step)](step, folder, prepared)
    return folder


def _cut(folder: Path, names: Iterable[str], to: Path, lines: int) -> Path:
    """Copy the beginning of each text file, under the same name."""
    for name in names:
        path, copied = folder / name, to / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(_BINARY):
            copied.unlink(missing_ok=True)
            copied.symlink_to(path.resolve())
            continue
        rows = [row for row, _ in zip(read_lines(str(path)), range(lines), strict=False)]
        data = "".join(f"{row}\n" for row in rows).encode()
        copied.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return to


def fill_in(value: Any, folders: Mapping[str, Path]) -> Any:
    """Replace {data} and {prepared} in all texts of settings."""
    if isinstance(value, dict):
        return {key: fill_in(inner, folders) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill_in(inner, folders) for inner in value]
    if isinstance(value, str):
        for name, path in folders.items():
            value = value.replace(f"{{{name}}}", str(path))
    return value


# ----- steps -----


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def _blocks(path: Path) -> Iterator[str]:
    block: list[str] = []
    for line in read_lines(str(path)):
        if line.strip():
            block.append(line)
        elif block:
            yield "\n".join([*block, ""])
            block = []
    if block:
        yield "\n".join([*block, ""])


def _split_off(step: SplitOffConfig, folder: Path, prepared: Path) -> None:
    read: Callable[[Path], Iterable[str]] = (
        _blocks if step.blocks else lambda path: read_lines(str(path))
    )
    columns = [list(read(folder / name)) for name in step.files]
    lengths = {len(column) for column in columns}
    names = ", ".join(step.files)
    check(len(lengths) == 1, names, "different numbers of lines", "get the files again", DataError)
    parts: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] = ([], [])
    for row in zip(*columns, strict=True):
        key = row[0] if step.key_column is None else row[0].split("\t")[step.key_column - 1]
        digest = hashlib.blake2b(f"{step.seed}\n{key}".encode(), digest_size=8).digest()
        parts[int.from_bytes(digest) < step.share * _LARGE].append(row)
    for rows, targets in zip(parts, (step.train, step.dev), strict=True):
        for index, name in enumerate(targets):
            _write_lines(prepared / name, (row[index] for row in rows))


_FORMATS: Mapping[str, Callable[[str], str]] = {
    "": str,
    "letters": lambda text: " ".join(text.replace(" ", "_")),
    "features": lambda text: " ".join(text.split(";")),
}


def _rewrite(step: RewriteConfig, folder: Path, prepared: Path) -> None:
    def fill(template: str, row: Sequence[str]) -> str:
        return re.sub(
            r"\{(\d+):?(\w*)\}", lambda field: _FORMATS[field[2]](row[int(field[1]) - 1]), template
        )

    rows = (line.split("\t") for line in read_lines(str(folder / step.file)) if line)
    lines = ("\t".join(fill(template, row) for template in step.columns) for row in rows)
    _write_lines(prepared / step.to, lines)


def _split_text(step: SplitTextConfig, folder: Path, prepared: Path) -> None:
    with open_file(str(folder / step.file)) as file:
        text = file.read().decode()
    count = int(step.share * len(text))
    for name, part in zip(step.to, (text[:count], text[count:]), strict=True):
        write_text(prepared / name, part)


def _long_series(step: LongSeriesConfig, folder: Path, prepared: Path) -> None:
    lines = ["id,time,value"]
    for row in read_lines(str(folder / step.file)):
        name, *values = row.split(",")
        kept = values[: len(values) - step.without_last]
        lines += [f"{name},{time},{value}" for time, value in enumerate(kept)]
    _write_lines(prepared / step.to, lines)


def _references(step: ReferencesConfig, folder: Path, prepared: Path) -> None:
    lines = []
    for line in read_lines(str(folder / step.file)):
        record = json.loads(line)
        source, targets = " ".join(record[step.source]), record[step.targets]
        lines += [json.dumps({"source": source, "target": target}) for target in targets]
    _write_lines(prepared / step.to, lines)


_STEPS: Mapping[type[Any], Callable[[Any, Path, Path], None]] = {
    SplitOffConfig: _split_off,
    RewriteConfig: _rewrite,
    SplitTextConfig: _split_text,
    LongSeriesConfig: _long_series,
    ReferencesConfig: _references,
}
