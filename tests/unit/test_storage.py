"""What is written is there whole or not at all."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from heedful.errors import DamagedRunError, StorageError
from heedful.storage import read_manifest, replacing, sweep, write_manifest, write_text


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "inner" / "file.txt"
    write_text(path, "old")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file.txt"]


def test_a_writer_that_fails_leaves_the_old_contents_and_no_litter(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_folder_is_replaced_whole(tmp_path):
    for contents in ("old", "new"):
        with replacing(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / contents).write_text(contents)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["new"]


KILLED = """
    import os, sys
    from pathlib import Path
    import heedful.storage as storage

    calls = 0
    kill_at = int(sys.argv[2])

    def dying(function):
        def call(*arguments):
            global calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), 9)
            return function(*arguments)
        return call

    for name in ("fsync", "rename", "replace"):
        setattr(os, name, dying(getattr(os, name)))
    folder = Path(sys.argv[1]) / "state"
    with storage.replacing(folder) as temporary:
        temporary.mkdir()
        (temporary / "contents").write_text("new")
        storage.write_manifest(temporary, [temporary / "contents"], {})
"""


def test_killed_at_any_moment_a_folder_is_the_old_or_the_new(tmp_path):
    died = 0
    for moment in range(1, 20):
        place = tmp_path / str(moment)
        with replacing(place / "state") as temporary:
            temporary.mkdir()
            (temporary / "contents").write_text("old")
            write_manifest(temporary, [temporary / "contents"], {})
        program = [sys.executable, "-c", textwrap.dedent(KILLED), str(place), str(moment)]
        code = subprocess.run(program, check=False).returncode
        sweep(place)
        read_manifest(place / "state")
        contents = (place / "state" / "contents").read_text()
        assert contents in {"old", "new"}
        assert os.listdir(place) == ["state"]
        if code == 0:
            assert contents == "new"
            break
        died += 1
    assert died >= 5


def test_a_manifest_vouches_for_every_file(tmp_path):
    (tmp_path / "text").mkdir()
    files = [tmp_path / "weights", tmp_path / "text" / "words"]
    for file in files:
        file.write_bytes(b"contents")
    write_manifest(tmp_path, files, {"format": 1})
    manifest = read_manifest(tmp_path)
    assert manifest["format"] == 1
    assert set(manifest["files"]) == {"weights", "text/words"}


@pytest.mark.parametrize("place", range(0, 64, 7))
def test_any_flipped_byte_is_noticed(tmp_path, place):
    file = tmp_path / "weights"
    file.write_bytes(bytes(range(64)))
    write_manifest(tmp_path, [file], {})
    contents = bytearray(file.read_bytes())
    contents[place] ^= 1
    file.write_bytes(contents)
    with pytest.raises(DamagedRunError, match="SHA-256 differs"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {"a": {}}}'])
def test_what_is_no_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DamagedRunError) as caught:
        read_manifest(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/manifest.json: this is not a manifest\n"
        "  restore the folder from a copy, or train again into another folder"
    )


def test_a_manifest_reads_well(tmp_path):
    (tmp_path / "a").write_text("")
    write_manifest(tmp_path, [tmp_path / "a"], {"format": 1})
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    wanted = {"files": {"a": {"sha256": empty, "size": 0}}, "format": 1}
    text = (tmp_path / "manifest.json").read_text()
    assert text == json.dumps(wanted, indent=2) + "\n"


def test_a_full_disk_is_explained_and_spoils_nothing(tmp_path):
    """/dev/full takes nothing, as a full disk does."""

    def write():
        with replacing(tmp_path / "file") as temporary:
            os.symlink("/dev/full", temporary)
            temporary.write_text("contents")

    with pytest.raises(StorageError) as caught:
        write()
    assert str(caught.value) == (
        f"{tmp_path}/file: cannot be written (no space left on device); "
        "what was saved before is untouched\n"
        "  make space on the disk and give the same command again"
    )
    assert os.listdir(tmp_path) == []
