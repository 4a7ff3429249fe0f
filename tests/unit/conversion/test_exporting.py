"""Programs in exported folders, and the samples that compare an export with its run."""

import io
import runpy
import sys
from pathlib import Path

import pytest

from heedful.conversion.exporting import (
    Program,
    check_equal_outputs,
    check_installed,
    describe_program,
    greedy_outputs,
    sample_sources,
    sample_targets,
    write_program,
)
from heedful.conversion.registry import get_exporter
from heedful.errors import ConfigError, DataError
from heedful.runs import load_run
from heedful.tokenization.vocabulary import BOS, NUM_SPECIAL_TOKENS

CODE = """
def translate(text):
    tokens = source.encode(text)
    return f"{target.decode(tokens)} of {max_length(tokens)}"
"""
PROGRAM = Program("import json", CODE, "numpy", "It is small.")


@pytest.fixture(scope="module")
def run(trained):
    return load_run(trained)


def test_program_reads_lines_and_encodes_as_the_run(run, tmp_path, capsys, monkeypatch):
    write_program(run, tmp_path, PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("a b\nc\n"))
    runpy.run_path(str(tmp_path / "translate.py"), run_name="__main__")
    decoding = run.config.decoding
    limits = [
        int((length + 1) * decoding.max_length_ratio + decoding.max_length_offset)
        for length in (2, 1)
    ]
    assert capsys.readouterr().out == f"a b of {limits[0]}\nc of {limits[1]}\n"
    usage = describe_program(run, PROGRAM)
    assert "pip install numpy`. It is small. In this folder:" in usage
    assert "from translate import translate" in usage


def test_samples_are_logged_texts_and_then_random_ids_in_the_vocabulary(run):
    sources = sample_sources(run, 20)
    assert len(sources) == 20
    size, logged = len(run.tokenizers.source), (Path(run.folder) / "samples.jsonl").read_text()
    assert f'"{run.tokenizers.source.decode(sources[0])}"' in logged
    assert all(NUM_SPECIAL_TOKENS <= token < size for source in sources for token in source)
    targets = sample_targets(run, [sources[-1]])
    assert targets.tolist() == [[BOS, *sources[-1]]]


def test_greedy_outputs_of_a_copying_run_are_the_sources(run):
    sources = run.tokenizers.source.encode_batch(["a b c", "d"])
    outputs, limits = greedy_outputs(run, sources)
    assert (outputs, limits) == (sources, [16, 12])
    check_equal_outputs(sources, outputs, location="folder")


def test_other_output_is_reported_by_sample():
    with pytest.raises(DataError) as error:
        check_equal_outputs([[4], [5, 6]], [[4], [5]], location="folder")
    assert str(error.value) == (
        "folder: sample 2: the run gives [5, 6], the exported model [5]\n"
        "  please report this run: nothing was written"
    )


def test_missing_package_raises_with_the_extra(monkeypatch):
    monkeypatch.setattr("heedful.conversion.exporting.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"--to onnx: needs the package onnx[a-z]*\n  install it"):
        check_installed(get_exporter("onnx"))
