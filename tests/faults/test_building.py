"""Tokens that are being made: killed at any moment, the same command makes the same tokens."""

import random
import signal
import subprocess
import sys
import time

import pytest

from heedful.data.sharded_dataset import load_prepared_dataset
from heedful.errors import CorruptRunError
from heedful.storage import MANIFEST

pytestmark = pytest.mark.faults

NUM_PAIRS = 6000
KILLS = 50

# Chunks and shards are made small, so that a kill meets many of them.
CODE = """
import sys
from pathlib import Path
from heedful.data import building, survey
building.CHUNK = survey.CHUNK = 100
from heedful.data.dataset_builder import Builder, Building
from heedful.data.filtering import SelectionConfig
from heedful.data.sources import FilesConfig
from heedful.tokenization.tokenizer_pair import SeparateTexts, WordConfig
folder = Path(sys.argv[1])
source = FilesConfig(source=str(folder / "source"), target=str(folder / "target"))
settings = Building(
    sources=[source.model_dump()], weights=[1.0],
    text=SeparateTexts(source=WordConfig(), target=WordConfig()),
    selection=SelectionConfig(max_tokens=8, duplicates=sys.argv[3]),
    seed=1, holds_out=True, vocabulary_lines=2000, shard_size=150,
)
print("begun", flush=True)
Builder(
    folder / sys.argv[2], [source], settings,
    tell=lambda line: print(line, flush=True), watch=lambda *_: None, workers=2,
).build()
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(0)
    lines = [
        " ".join(chance.choice("abcdef") for _ in range(chance.randint(0, 9)))
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
    assert process.stdout.readline() == "begun\n"
    began = time.monotonic()
    _, err = process.communicate()
    assert process.returncode == 0, err
    return time.monotonic() - began


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


def test_build_killed_fifty_times_gives_same_tokens(corpus, whole):
    seconds = build(corpus, "timed")
    chance = random.Random(1)
    unfinished = kept = 0
    for number in range(KILLS):
        name = f"killed-{number // 5}"  # five kills, one after the other, in the same folder
        process = start(corpus, name)
        process.stdout.readline()
        time.sleep(chance.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        unfinished += process.returncode == -signal.SIGKILL
        kept += len(list((corpus / name).glob("shard-*")))
        if number % 5 == 4:
            build(corpus, name)
            assert contents(corpus / name) == whole
            load_prepared_dataset(corpus / name)
    assert unfinished >= KILLS // 5  # the rest were done before they could be killed
    assert kept > 0


def test_flipped_bytes_are_detected_and_only_their_shard_is_rebuilt(corpus, whole):
    folder = corpus / "flipped"
    build(corpus, folder.name)
    shards = sorted(folder.glob("shard-*"))
    assert len(shards) == NUM_PAIRS // 150
    chance = random.Random(2)
    for shard in chance.sample(shards, 3):
        path = shard / chance.choice(["tokens.bin", MANIFEST])
        for place in range(0, path.stat().st_size, 1000 if path.suffix == ".bin" else 25):
            flip(path, place)
            with pytest.raises(CorruptRunError):
                load_prepared_dataset(folder)
            flip(path, place)
        flip(path, path.stat().st_size // 2)
        times = {each: (each / "tokens.bin").stat().st_ctime_ns for each in shards}
        build(corpus, folder.name)
        changed = [
            each for each in shards if (each / "tokens.bin").stat().st_ctime_ns != times[each]
        ]
        assert changed == [shard]
        assert contents(folder) == whole


def flip(path, place):
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_full_disk_is_reported_and_finished_shards_are_kept(corpus, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=240k", "none", disk]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a disk cannot be mounted here")
    try:
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
    finally:
        subprocess.run(["umount", disk], check=True)
