"""Files of odd shape, in every folder that can be imported, end in a message and take no time.

Each value of each file is removed, or replaced by one of another type or size, and each file as a
whole by bytes that no program writes. Whatever comes out is read, or an error for the user.
"""

import argparse
import json
import random
from contextlib import suppress
from copy import deepcopy

import pytest
import torch
import yaml

from heedful.conversion.checkpoint_files import read_checkpoint
from heedful.conversion.exporting import export_run
from heedful.conversion.registry import read_run
from heedful.errors import HeedfulError
from tests.commands import write_random_run
from tests.conformance.test_nmt_checkpoints import (
    JOEY_RECURRENT,
    JOEY_TRANSFORMERS,
    ONMT_RECURRENT,
    ONMT_TRANSFORMERS,
    joey_recurrent,
    joey_transformer,
    onmt_recurrent,
    onmt_transformer,
)
from tests.eole_folders import EOLE_RECURRENT, EOLE_TRANSFORMERS, eole_recurrent, eole_transformer
from tests.hf_encoders import write_encoder, write_gpt2
from tests.hf_models import (
    SOURCE_TEXTS,
    TARGET_TEXTS,
    transformer_settings,
    write_bart,
    write_marian,
)

NESTED = {"a": [{"b": [[]]}]}
VALUES = (None, True, -1, 10**9, 10**30, 1.5, float("nan"), "", "x", [], [[1]], ["x"], {}, NESTED)
CONTENTS = (b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe\0", b'"x"', b"[" * 10_000, b"\n" * 1000)
MAX_ITEMS = 3  # that are changed in a list or vocabulary


def export(to):
    def write(folder):
        run = folder.parent / f"{folder.name}-run"
        write_random_run(run, transformer_settings(), SOURCE_TEXTS, TARGET_TEXTS, seed=0)
        export_run(run, to, folder)

    return write


MODELS = {
    "marian": write_marian,
    "bart": write_bart,
    "bert": lambda folder: write_encoder(folder, "bert"),
    "roberta": lambda folder: write_encoder(folder, "roberta"),
    "distilbert": lambda folder: write_encoder(folder, "distilbert"),
    "gpt2": write_gpt2,
    "exported to Hugging Face": export("hf"),
    "exported to safetensors": export("safetensors"),
    "JoeyNMT, Transformer": lambda folder: joey_transformer(folder, JOEY_TRANSFORMERS[0]),
    "JoeyNMT, recurrent": lambda folder: joey_recurrent(folder, JOEY_RECURRENT[2]),
    "OpenNMT-py, Transformer": lambda folder: onmt_transformer(folder, ONMT_TRANSFORMERS[0]),
    "OpenNMT-py, recurrent": lambda folder: onmt_recurrent(folder, ONMT_RECURRENT[0]),
    "Eole, Transformer": lambda folder: eole_transformer(folder, EOLE_TRANSFORMERS[0]),
    "Eole, recurrent": lambda folder: eole_recurrent(folder, EOLE_RECURRENT[0]),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "model"
    MODELS[request.param](folder)
    return folder


def paths_in(value, path=()):
    """Yield the path of each value; of long lists and vocabularies only those of the first."""
    yield path
    items = []
    if isinstance(value, dict):
        items = list(value.items())
        items = items if len(items) < 60 else items[:MAX_ITEMS]
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))[:MAX_ITEMS]
    for key, item in items:
        yield from paths_in(item, (*path, key))


def changed(settings, path, value):
    """Return a copy with another value at a path; `KeyError` for one that is removed."""
    if not path:
        return value
    result = deepcopy(settings)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    if value is KeyError:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return result


def odd_settings(settings):
    """Yield a function that makes the settings, for each odd shape of them."""
    for path in paths_in(settings):
        for value in (*VALUES, *[KeyError] * bool(path)):
            yield lambda path=path, value=value: changed(settings, path, value)


def odd_contents(path):
    """Yield a function that writes the file anew, for each odd shape of it."""
    contents = path.read_bytes()
    halves = contents[: len(contents) // 2], contents[len(contents) // 2 :]
    for odd in (*CONTENTS, *halves, contents * 2):
        yield lambda odd=odd: path.write_bytes(odd)
    if path.suffix == ".json":
        for odd in odd_settings(json.loads(contents)):
            yield lambda odd=odd: path.write_text(json.dumps(odd()))
    elif path.suffix == ".yaml":
        for odd in odd_settings(yaml.safe_load(contents)):
            yield lambda odd=odd: path.write_text(yaml.safe_dump(odd()))
    elif path.suffix in {".pt", ".ckpt"}:
        for odd in odd_settings(read_checkpoint(path)):
            yield lambda odd=odd: torch.save(with_namespace(odd()), path)


def with_namespace(checkpoint):
    options = checkpoint.get("opt") if isinstance(checkpoint, dict) else None
    is_valid = isinstance(options, dict) and all(isinstance(name, str) for name in options)
    return {**checkpoint, "opt": argparse.Namespace(**options)} if is_valid else checkpoint


def read_odd(folder, *, num_chosen=None):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    source = next((path for path in files if path.suffix in {".pt", ".ckpt"}), folder)
    for path in files:
        original = path.read_bytes()
        writers = list(odd_contents(path))
        if num_chosen is not None:
            writers = random.Random(path.name).sample(writers, min(num_chosen, len(writers)))
        for write in writers:
            write()
            with suppress(HeedfulError):
                read_run(source)
        path.write_bytes(original)


@pytest.mark.wide
def test_odd_file_loads_or_reported(model):
    read_odd(model, num_chosen=3)


@pytest.mark.slow
def test_every_odd_file_loads_or_reported(model):
    read_odd(model)
