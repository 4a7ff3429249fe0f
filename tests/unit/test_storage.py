"""What is written is there whole or not at all."""

import errno
import hashlib
import itertools
import json
import os
import signal
from functools import partial
from threading import Event, Thread

import pytest

from heedful.errors import CorruptRunError, DiskFullError, StorageError
from heedful.storage import (
    add_sha256,
    atomic_replace,
    check_free_space,
    clean_up_interrupted,
    read_and_verify_manifest,
    read_manifest_unverified,
    remove_path,
    replace_with_manifest,
    write_manifest,
    write_text,
    write_with_manifest,
)


def test_atomic_replace_replaces_file(tmp_path):
    path = tmp_path / "inner" / "file.txt"
    write_text(path, "old")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file.txt"]


def test_failed_write_leaves_old_contents_and_no_temporary_files(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half():
        with atomic_replace(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_atomic_replace_replaces_folder(tmp_path):
    for contents in ("old", "new"):
        with atomic_replace(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / contents).write_text(contents)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["new"]


def test_failed_folder_exchange_restores_old_folder(tmp_path, monkeypatch):
    with atomic_replace(tmp_path / "folder") as temporary:
        temporary.mkdir()
        (temporary / "old").write_text("old")
    rename = os.rename

    def failing(source, target):
        if ".writing-" in str(source):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(StorageError), atomic_replace(tmp_path / "folder") as temporary:
        temporary.mkdir()
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["old"]


def die(work, moment):
    """Do work in a process that is killed at its so-manieth call to the disk; whether it ended."""
    child = os.fork()
    if child == 0:
        calls = itertools.count(1)

        def dying(function, *arguments):
            if next(calls) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        for name in ("fsync", "rename", "replace"):
            setattr(os, name, partial(dying, getattr(os, name)))
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def put_folder(folder, contents):
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
        (temporary / "contents").write_text(contents)
        write_manifest(temporary, [temporary / "contents"], {})


def test_killed_replacement_leaves_old_or_new_folder(tmp_path):
    for moment in range(1, 20):
        place = tmp_path / str(moment)
        put_folder(place / "state", "old")
        is_done = die(partial(put_folder, place / "state", "new"), moment)
        clean_up_interrupted(place)
        read_and_verify_manifest(place / "state")
        contents = (place / "state" / "contents").read_text()
        assert contents in ({"new"} if is_done else {"old", "new"})
        assert os.listdir(place) == ["state"]
        if is_done:
            break
    assert moment > 5


def listed(folder, contents):
    write = partial(write_plainly, contents)
    replace_with_manifest(folder, {"contents": write}, [folder / "kept"], {"is": contents})


def write_plainly(contents, path):
    path.write_text(contents)


def test_killed_replace_with_manifest_leaves_valid_folder(tmp_path):
    for moment in range(1, 20):
        folder = tmp_path / str(moment) / "state"
        folder.mkdir(parents=True)
        (folder / "kept").write_text("kept")
        listed(folder, "older")
        # Killed twice: what the first left half done, the second goes on from.
        for _ in range(2):
            is_done = die(partial(listed, folder, "new"), moment)
            contents = (folder / "contents").read_text()
            assert read_and_verify_manifest(folder)["is"] == contents
            assert contents in ({"new"} if is_done else {"older", "new"})
        clean_up_interrupted(folder)
        assert sorted(os.listdir(folder)) == ["contents", "kept", "manifest.json"]
        if is_done:
            break
    assert moment > 5


def test_killed_first_manifest_is_absent_or_valid(tmp_path):
    for moment in range(1, 20):
        folder = tmp_path / str(moment) / "state"
        folder.mkdir(parents=True)
        (folder / "kept").write_text("kept")
        if die(partial(listed, folder, "new"), moment):
            break
        if (folder / "manifest.json").exists():
            read_and_verify_manifest(folder)
    assert moment > 2
    assert read_and_verify_manifest(folder)["files"].keys() == {"contents", "kept"}


def test_kept_files_keep_their_recorded_hash(tmp_path):
    (tmp_path / "kept").write_text("kept")
    listed(tmp_path, "old")
    (tmp_path / "kept").write_text("bent")
    listed(tmp_path, "new")
    with pytest.raises(CorruptRunError, match="kept: the contents have changed"):
        read_and_verify_manifest(tmp_path)


def test_failed_writer_leaves_manifest_and_files_unchanged(tmp_path):
    (tmp_path / "kept").write_text("kept")
    listed(tmp_path, "old")

    def write_half(path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DiskFullError):
        replace_with_manifest(tmp_path, {"contents": write_half}, [], {})
    assert read_and_verify_manifest(tmp_path)["is"] == "old"
    assert sorted(os.listdir(tmp_path)) == ["contents", "kept", "manifest.json"]


def test_concurrent_reader_sees_valid_files(tmp_path):
    (tmp_path / "kept").write_text("kept")
    listed(tmp_path, "0")
    is_over = Event()

    def replace_again_and_again():
        for number in range(40):
            listed(tmp_path, str(number))
        is_over.set()

    writer = Thread(target=replace_again_and_again)
    writer.start()
    while not is_over.is_set():
        read_and_verify_manifest(tmp_path)
    writer.join()


def test_remove_path_removes_files_and_folders(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_text("contents")
    remove_path(tmp_path / "folder")
    assert os.listdir(tmp_path) == []


def test_manifest_lists_every_file(tmp_path):
    (tmp_path / "text").mkdir()
    files = [tmp_path / "weights", tmp_path / "text" / "words"]
    for file in files:
        file.write_bytes(b"contents")
    write_manifest(tmp_path, files, {"format": 1})
    manifest = read_and_verify_manifest(tmp_path)
    assert manifest["format"] == 1
    assert set(manifest["files"]) == {"weights", "text/words"}


@pytest.mark.parametrize("place", range(0, 64, 7))
def test_flipped_byte_is_detected(tmp_path, place):
    file = tmp_path / "weights"
    file.write_bytes(bytes(range(64)))
    write_manifest(tmp_path, [file], {})
    contents = bytearray(file.read_bytes())
    contents[place] ^= 1
    file.write_bytes(contents)
    with pytest.raises(CorruptRunError, match="SHA-256 differs"):
        read_and_verify_manifest(tmp_path)


def flipped(contents, place, bits):
    return contents[:place] + bytes([contents[place] ^ bits]) + contents[place + 1 :]


def test_flipped_byte_of_manifest_is_detected(tmp_path):
    (tmp_path / "a").write_text("contents")
    write_manifest(tmp_path, [tmp_path / "a"], {"format": 1, "score": 0.1, "name": None})
    manifest = tmp_path / "manifest.json"
    contents = manifest.read_bytes()
    for place in range(len(contents)):
        bits = 7 if contents[place : place + 1] == b"\n" else 1 << place % 8  # 7 makes it "\r"
        manifest.write_bytes(flipped(contents, place, bits))
        with pytest.raises(CorruptRunError):
            read_and_verify_manifest(tmp_path)
    manifest.write_bytes(contents)
    read_and_verify_manifest(tmp_path)


def test_metadata_round_trips_as_json(tmp_path):
    facts = {"counts": {10: 1, 9: 2}, "pair": (1, 2), "bound": float("inf"), "word": "\u00e9"}
    write_manifest(tmp_path, [], facts)
    assert read_and_verify_manifest(tmp_path) == {
        "counts": {"10": 1, "9": 2},
        "pair": [1, 2],
        "bound": float("inf"),
        "word": "\u00e9",
        "files": {},
    }


def test_altered_manifest_differs_from_invalid_manifest(tmp_path):
    write_manifest(tmp_path, [], {"format": 1})
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CorruptRunError) as caught:
        read_and_verify_manifest(tmp_path)
    assert str(caught.value) == (
        f"{path}: the manifest has changed since it was written\n"
        "  restore the folder from a copy, or train again into another folder"
    )


def test_folder_without_manifest_is_corrupt(tmp_path):
    with pytest.raises(CorruptRunError, match=r"manifest\.json: the file is missing"):
        read_and_verify_manifest(tmp_path)


def test_unreadable_file_is_corrupt_unless_forbidden(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("contents")
    write_manifest(tmp_path, [tmp_path / "a"], {})

    def failing_with(number):
        def digest(file, kind):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(hashlib, "file_digest", digest)

    failing_with(errno.EIO)
    with pytest.raises(CorruptRunError, match=r"a: cannot be read \(input/output error\)"):
        read_and_verify_manifest(tmp_path)
    failing_with(errno.EACCES)
    with pytest.raises(StorageError, match=r"a: cannot be read \(permission denied\)"):
        read_and_verify_manifest(tmp_path)


def test_page_sums_are_replaced_by_sha256(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    pieces = [b"", b"some", memoryview(bytes(10_000)), b"more"]
    write_with_manifest(folder, {"a": pieces, "b": []}, {"step": 3})
    for kind in ("page_sums", "sha256"):
        assert read_and_verify_manifest(folder)["step"] == 3
        assert (folder / "a").read_bytes() == b"".join(pieces)
        assert (folder / "b").read_bytes() == b""
        assert all(entry.keys() == {"size", kind} for entry in listing_of(folder))
        (folder / "a").write_bytes(flipped(b"".join(pieces), 5000, 1))
        with pytest.raises(CorruptRunError, match="the contents have changed since"):
            read_and_verify_manifest(folder)
        (folder / "a").write_bytes(b"".join(pieces))
        add_sha256(folder)


def listing_of(folder):
    return read_manifest_unverified(folder)["files"].values()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {"a": {}}}'])
def test_invalid_manifest_is_rejected(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CorruptRunError) as caught:
        read_and_verify_manifest(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/manifest.json: this is not a manifest\n"
        "  restore the folder from a copy, or train again into another folder"
    )


def test_manifest_is_indented_json(tmp_path):
    (tmp_path / "a").write_text("")
    write_manifest(tmp_path, [tmp_path / "a"], {"format": 1})
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    wanted = {"files": {"a": {"sha256": empty, "size": 0}}, "format": 1}
    seal = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
    wanted["manifest_sha256"] = seal
    text = (tmp_path / "manifest.json").read_text()
    assert text == json.dumps(wanted, indent=2) + "\n"


def test_full_disk_error_leaves_files_intact(tmp_path):
    """/dev/full takes nothing, as a full disk does."""

    def write():
        with atomic_replace(tmp_path / "file") as temporary:
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


def test_check_free_space_rejects_large_writes(tmp_path):
    check_free_space(tmp_path / "missing" / "small", 1000)
    with pytest.raises(DiskFullError) as caught:
        check_free_space(tmp_path / "large", 10**18)
    problem, remedy = str(caught.value).split("\n")
    assert problem.startswith(f"{tmp_path}/large: needs 1,200,000,000,000 MB, and ")
    assert problem.endswith(" MB are free; what was saved before is untouched")
    assert remedy == "  make space on the disk and give the same command again"
    assert os.listdir(tmp_path) == []
