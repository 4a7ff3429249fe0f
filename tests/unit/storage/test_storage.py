"""Writes are atomic, and manifests detect every change."""

import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import signal
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from heedful.errors import CorruptRunError, DiskFullError, StorageError
from heedful.storage.atomic import (
    atomic_replace,
    check_free_space,
    clean_up_interrupted,
    write_text,
)
from heedful.storage.manifest import (
    add_sha256,
    read_and_verify_manifest,
    read_manifest_unverified,
    replace_with_manifest,
    write_manifest,
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


def test_link_to_a_folder_stays_and_the_folder_is_replaced(tmp_path):
    folder, link = tmp_path / "disk" / "folder", tmp_path / "link"
    folder.mkdir(parents=True)
    (folder / "old").touch()
    link.symlink_to(folder)
    with atomic_replace(link) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert link.is_symlink()
    assert os.listdir(folder) == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["disk", "link"]
    assert os.listdir(folder.parent) == ["folder"]


@pytest.mark.parametrize("exists", [True, False])
def test_link_to_a_file_stays_and_the_file_is_replaced(tmp_path, exists):
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    if exists:
        file.write_text("old")
    write_text(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="pipe: this is a device or a pipe"):
        write_text(tmp_path / "pipe", "text")
    assert os.listdir(tmp_path) == ["pipe"]


def test_leftover_of_the_previous_folder_raises_after_the_replacement(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").touch()

    def fail(path):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def replace():
        with atomic_replace(folder) as temporary:
            temporary.mkdir()
            (temporary / "new").touch()

    monkeypatch.setattr("shutil.rmtree", fail)
    with pytest.raises(StorageError) as caught:
        replace()
    assert str(caught.value) == (
        f"{folder}: is written, but its previous contents cannot be removed (Permission denied)\n"
        f"  remove them: {tmp_path}/.aside-folder"
    )
    assert os.listdir(folder) == ["new"]


def test_file_does_not_replace_a_folder(tmp_path):
    folder = tmp_path / "images"
    write_text(folder / "01.txt", "kept")
    with pytest.raises(StorageError) as caught:
        write_text(folder, "a drawing")
    message = f"{folder}: this is a folder; a file cannot replace it\n  name a file in it"
    assert str(caught.value) == message
    assert os.listdir(tmp_path) == ["images"]
    assert (folder / "01.txt").read_text() == "kept"


@pytest.mark.parametrize("name", [".", "..", ""])
def test_file_without_a_name_is_not_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="this is a folder; a file cannot replace it"):
        write_text(Path(name), "a drawing")
    assert not os.listdir(tmp_path)


def test_leftovers_of_a_killed_writer_removed_by_the_next(tmp_path):
    def be_killed():
        with atomic_replace(tmp_path / "run") as temporary:
            temporary.mkdir()
            os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=be_killed)
    child.start()
    child.join()
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.startswith(".writing-")
    with atomic_replace(tmp_path / "other") as temporary:  # not locked, and of another name
        assert list(tmp_path.iterdir()) == []
        temporary.mkdir()
        with atomic_replace(tmp_path / "third") as second:
            assert temporary.exists()  # of a process that runs
            second.mkdir()
    assert sorted(os.listdir(tmp_path)) == ["other", "third"]


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


def run_and_kill(work, kill_at):
    """Run `work` in a process that is killed at this disk call; return whether it finished."""
    child = os.fork()
    if child == 0:
        calls = itertools.count(1)

        def dying(function, *arguments):
            if next(calls) == kill_at:
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


def replace_folder(folder, contents):
    with atomic_replace(folder) as temporary:
        temporary.mkdir()
        (temporary / "contents").write_text(contents)
        write_manifest(temporary, [temporary / "contents"], {})


def test_killed_replacement_leaves_old_or_new_folder(tmp_path):
    for kill_at in range(1, 20):
        folder = tmp_path / str(kill_at)
        replace_folder(folder / "state", "old")
        is_done = run_and_kill(partial(replace_folder, folder / "state", "new"), kill_at)
        clean_up_interrupted(folder)
        read_and_verify_manifest(folder / "state")
        contents = (folder / "state" / "contents").read_text()
        assert contents in ({"new"} if is_done else {"old", "new"})
        assert os.listdir(folder) == ["state"]
        if is_done:
            break
    assert kill_at > 5


def replace_contents(folder, contents):
    write = partial(write_contents, contents)
    replace_with_manifest(folder, {"contents": write}, [folder / "kept"], {"version": contents})


def write_contents(contents, path):
    path.write_text(contents)


def test_killed_replace_with_manifest_leaves_valid_folder(tmp_path):
    for kill_at in range(1, 20):
        folder = tmp_path / str(kill_at) / "state"
        folder.mkdir(parents=True)
        (folder / "kept").write_text("kept")
        replace_contents(folder, "older")
        # Killed twice: the second continues from what the first left.
        for _ in range(2):
            is_done = run_and_kill(partial(replace_contents, folder, "new"), kill_at)
            contents = (folder / "contents").read_text()
            assert read_and_verify_manifest(folder)["version"] == contents
            assert contents in ({"new"} if is_done else {"older", "new"})
        clean_up_interrupted(folder)
        assert sorted(os.listdir(folder)) == ["contents", "kept", "manifest.json"]
        if is_done:
            break
    assert kill_at > 5


def test_killed_first_manifest_is_absent_or_valid(tmp_path):
    for kill_at in range(1, 20):
        folder = tmp_path / str(kill_at) / "state"
        folder.mkdir(parents=True)
        (folder / "kept").write_text("kept")
        if run_and_kill(partial(replace_contents, folder, "new"), kill_at):
            break
        if (folder / "manifest.json").exists():
            read_and_verify_manifest(folder)
    assert kill_at > 2
    assert read_and_verify_manifest(folder)["files"].keys() == {"contents", "kept"}


def test_kept_files_keep_recorded_hash(tmp_path):
    (tmp_path / "kept").write_text("kept")
    replace_contents(tmp_path, "old")
    (tmp_path / "kept").write_text("bent")
    replace_contents(tmp_path, "new")
    with pytest.raises(CorruptRunError, match="kept: the contents have changed"):
        read_and_verify_manifest(tmp_path)


def test_failed_writer_leaves_manifest_and_files_unchanged(tmp_path):
    (tmp_path / "kept").write_text("kept")
    replace_contents(tmp_path, "old")

    def write_half(path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DiskFullError):
        replace_with_manifest(tmp_path, {"contents": write_half}, [], {})
    assert read_and_verify_manifest(tmp_path)["version"] == "old"
    assert sorted(os.listdir(tmp_path)) == ["contents", "kept", "manifest.json"]


def test_concurrent_reader_sees_valid_files(tmp_path):
    (tmp_path / "kept").write_text("kept")
    replace_contents(tmp_path, "0")
    is_over = Event()

    def replace_repeatedly():
        for version in range(40):
            replace_contents(tmp_path, str(version))
        is_over.set()

    writer = Thread(target=replace_repeatedly)
    writer.start()
    versions = [read_and_verify_manifest(tmp_path)["version"]]
    while not is_over.is_set():
        versions.append(read_and_verify_manifest(tmp_path)["version"])
    writer.join()
    assert versions == sorted(versions, key=int)
    assert read_and_verify_manifest(tmp_path)["version"] == "39"


def test_manifest_lists_every_file(tmp_path):
    (tmp_path / "text").mkdir()
    files = [tmp_path / "weights", tmp_path / "text" / "words"]
    for file in files:
        file.write_bytes(b"contents")
    write_manifest(tmp_path, files, {"format": 1})
    manifest = read_and_verify_manifest(tmp_path)
    assert manifest["format"] == 1
    assert set(manifest["files"]) == {"weights", "text/words"}


@pytest.mark.parametrize("position", range(0, 64, 7))
def test_flipped_byte_is_detected(tmp_path, position):
    file = tmp_path / "weights"
    file.write_bytes(bytes(range(64)))
    write_manifest(tmp_path, [file], {})
    contents = bytearray(file.read_bytes())
    contents[position] ^= 1
    file.write_bytes(contents)
    with pytest.raises(CorruptRunError, match="SHA-256 differs"):
        read_and_verify_manifest(tmp_path)


def flip_bits(contents, position, bits):
    return contents[:position] + bytes([contents[position] ^ bits]) + contents[position + 1 :]


def test_flipped_byte_of_manifest_is_detected(tmp_path):
    (tmp_path / "a").write_text("contents")
    write_manifest(tmp_path, [tmp_path / "a"], {"format": 1, "score": 0.1, "name": None})
    manifest = tmp_path / "manifest.json"
    contents = manifest.read_bytes()
    for position in range(len(contents)):
        bits = (
            7 if contents[position : position + 1] == b"\n" else 1 << position % 8
        )  # 7 gives "\r"
        manifest.write_bytes(flip_bits(contents, position, bits))
        with pytest.raises(CorruptRunError):
            read_and_verify_manifest(tmp_path)
    manifest.write_bytes(contents)
    read_and_verify_manifest(tmp_path)


def test_metadata_round_trips_as_json(tmp_path):
    metadata = {"counts": {10: 1, 9: 2}, "pair": (1, 2), "bound": float("inf"), "word": "\u00e9"}
    write_manifest(tmp_path, [], metadata)
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


def test_page_sums_replaced_by_sha256(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    buffers = [b"", b"some", memoryview(bytes(10_000)), b"more"]
    write_with_manifest(folder, {"a": buffers, "b": []}, {"step": 3})
    for name in ("page_sums", "sha256"):
        assert read_and_verify_manifest(folder)["step"] == 3
        assert (folder / "a").read_bytes() == b"".join(buffers)
        assert (folder / "b").read_bytes() == b""
        assert all(entry.keys() == {"size", name} for entry in file_entries(folder))
        (folder / "a").write_bytes(flip_bits(b"".join(buffers), 5000, 1))
        with pytest.raises(CorruptRunError, match="the contents have changed since"):
            read_and_verify_manifest(folder)
        (folder / "a").write_bytes(b"".join(buffers))
        add_sha256(folder)


def file_entries(folder):
    return read_manifest_unverified(folder)["files"].values()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": 3}', '{"files": {"a": {}}}'])
def test_invalid_manifest_raises(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CorruptRunError) as caught:
        read_and_verify_manifest(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/manifest.json: not a manifest\n"
        "  restore the folder from a copy, or train again into another folder"
    )


def test_manifest_is_indented_json(tmp_path):
    (tmp_path / "a").write_text("")
    write_manifest(tmp_path, [tmp_path / "a"], {"format": 1})
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    expected = {"files": {"a": {"sha256": empty, "size": 0}}, "format": 1}
    digest = hashlib.sha256(json.dumps(expected).encode()).hexdigest()
    expected["manifest_sha256"] = digest
    text = (tmp_path / "manifest.json").read_text()
    assert text == json.dumps(expected, indent=2) + "\n"


def test_full_disk_error_leaves_files_intact(tmp_path):
    """/dev/full rejects all writes, as a full disk does."""

    def write():
        with atomic_replace(tmp_path / "file") as temporary:
            os.symlink("/dev/full", temporary)
            temporary.write_text("contents")

    with pytest.raises(StorageError) as caught:
        write()
    assert str(caught.value) == (
        f"{tmp_path}/file: cannot be written (no space left on device); "
        "what was saved before is untouched\n"
        "  free disk space and run the same command again"
    )
    assert os.listdir(tmp_path) == []


def test_check_free_space_rejects_large_writes(tmp_path):
    check_free_space(tmp_path / "missing" / "small", 1000)
    with pytest.raises(DiskFullError) as caught:
        check_free_space(tmp_path / "large", 10**18)
    message, hint = str(caught.value).split("\n")
    assert message.startswith(f"{tmp_path}/large: needs 1,200,000,000,000 MB, and ")
    assert message.endswith(" MB are free; what was saved before is untouched")
    assert hint == "  free disk space and run the same command again"
    assert os.listdir(tmp_path) == []
