"""Builds of prepared datasets: killed at any moment, the same command gives the same files."""

import random
import signal
import subprocess
import sys
import time

import pytest

from heedful.data.text.sharded_dataset import load_prepared_dataset
from heedful.errors import CorruptRunError
from heedful.storage.manifest import MANIFEST
from tests.commands import mounted

pytestmark = pytest.mark.faults

NUM_PAIRS = 6000
NUM_KILLS = 8

# Chunks and shards are small, so that kills happen between many of them.
CODE = """
import sys
from pathlib import Path
from heedful.data.text import corpus_passes, dataset_builder
corpus_passes.CHUNK_SIZE = dataset_builder.CHUNK_SIZE = 100
from heedful.data.text.dataset_builder import DatasetBuilder, DatasetBuilderConfig
from heedful.data.text.filtering import FilterConfig
from heedful.data.sources import ParallelFilesConfig
from heedful.data.text.example_formats import PAIRS
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig
folder = Path(sys.argv[1])
source = ParallelFilesConfig(source=str(folder / "source"), target=str(folder / "target"))
config = DatasetBuilderConfig(
    sources=[source.model_dump()], corpus_weights=[1.0],
    tokenizers=SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=WordTokenizerConfig()
    ),
    example_format="pairs", filtering=FilterConfig(max_length=8, duplicates=sys.argv[3]),
    seed=1, needs_held_out=True, max_tokenizer_lines=2000, shard_size=150,
)
print("started", flush=True)
DatasetBuilder(
    folder / sys.argv[2], [source], config, PAIRS,
    log_message=lambda line: print(line, flush=True), on_progress=lambda *_: None, workers=2,
).build()
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    lines = [
        " ".join(generator.choice("abcdef") for _ in range(generator.randint(0, 9)))
        for _ in range(NUM_PAIRS)
    ]
    for side in ("source", "target"):
        (folder / side).write_text("".join(f"{line}\n" for line in lines))
    return folder


def start(folder, name, duplicates="drop"):
    command = [sys.executable, "-c", CODE, str(folder), name, duplicates]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def build(folder, name, duplicates="drop"):
    process = start(folder, name, duplicates)
    assert process.stdout.readline() == "started\n"
    start_time = time.monotonic()
    _, err = process.communicate()
    assert process.returncode == 0, err
    return time.monotonic() - start_time


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def whole(corpus):
    build(corpus, "whole")
    return contents(corpus / "whole")


def test_build_killed_at_random_moments_returns_same_tokens(corpus, whole):
    seconds = build(corpus, "timed")
    generator = random.Random(1)
    num_killed = num_shards = 0
    for index in range(NUM_KILLS):
        name = f"killed-{index // 4}"  # four kills, one after the other, in one folder
        process = start(corpus, name)
        process.stdout.readline()
        time.sleep(generator.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        num_killed += process.returncode == -signal.SIGKILL
        num_shards += len(list((corpus / name).glob("shard-*")))
        if index % 4 == 3:
            build(corpus, name)
            assert contents(corpus / name) == whole
            load_prepared_dataset(corpus / name)
    assert num_killed > 0  # the others finished before they were killed
    assert num_shards > 0


def test_flipped_bytes_detected_and_only_the_shard_is_rebuilt(corpus, whole):
    folder = corpus / "flipped"
    build(corpus, folder.name)
    shards = sorted(folder.glob("shard-*"))
    assert len(shards) == NUM_PAIRS // 150
    generator = random.Random(2)
    for shard in generator.sample(shards, 3):
        path = shard / generator.choice(["tokens.bin", MANIFEST])
        for position in range(0, path.stat().st_size, 1000 if path.suffix == ".bin" else 25):
            flip(path, position)
            with pytest.raises(CorruptRunError):
                load_prepared_dataset(folder)
            flip(path, position)
        flip(path, path.stat().st_size // 2)
        times = {path: (path / "tokens.bin").stat().st_ctime_ns for path in shards}
        build(corpus, folder.name)
        changed = [
            path for path in shards if (path / "tokens.bin").stat().st_ctime_ns != times[path]
        ]
        assert changed == [shard]
        assert contents(folder) == whole


def flip(path, position):
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_full_disk_is_reported_and_finished_shards_are_kept(corpus, tmp_path):
    with mounted(tmp_path / "disk", "size=280k") as disk:
        for side in ("source", "target"):
            (disk / side).symlink_to(corpus / side)
        process = start(disk, "tokens", "keep")
        _, err = process.communicate()
        assert process.returncode == 1
        assert "DiskFullError" in err
        finished = len(list((disk / "tokens").glob("shard-*")))
        assert 0 < finished < NUM_PAIRS // 150
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        build(disk, "tokens", "keep")
        build(disk, "whole", "keep")
        assert contents(disk / "tokens") == contents(disk / "whole")
