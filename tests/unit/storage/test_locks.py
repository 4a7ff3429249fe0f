"""Two processes cannot lock a folder, and a dead one holds no lock."""

import os
import signal
import socket
import time

import pytest

from heedful.errors import RunError
from heedful.storage.atomic import lock_folder


def fork(work):
    """Run `work` in a forked process; return its id once it is ready."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda: os.write(writing, b"."))
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"."
    os.close(reading)
    return child


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def hold_lock(folder):
    def work(ready):
        with lock_folder(folder):
            ready()
            time.sleep(60)

    return fork(work)


def test_second_lock_error_names_holder(tmp_path):
    holder = hold_lock(tmp_path / "run")
    with pytest.raises(RunError) as caught, lock_folder(tmp_path / "run"):
        pass
    kill(holder)
    assert str(caught.value) == (
        f"{tmp_path}/run: process {holder} on {socket.gethostname()} is training here\n"
        "  wait until it is finished, or name another folder with --run"
    )


def test_lock_error_names_activity_of_holder_and_option(tmp_path):
    with lock_folder(tmp_path, activity="preparing data", option="--output-dir"):
        with pytest.raises(RunError) as train, lock_folder(tmp_path):
            pass
        with pytest.raises(RunError) as prepare, lock_folder(tmp_path, option="--output-dir"):
            pass
    holder = f"{tmp_path}: process {os.getpid()} on {socket.gethostname()} is preparing data here\n"
    hint = "  wait until it is finished, or name another folder with"
    assert str(train.value) == f"{holder}{hint} --run"
    assert str(prepare.value) == f"{holder}{hint} --output-dir"


def test_killed_process_releases_lock(tmp_path):
    kill(hold_lock(tmp_path))
    with lock_folder(tmp_path):
        assert (tmp_path / ".lock").read_text() == (
            f"process {os.getpid()} on {socket.gethostname()} is training\n"
        )


def test_forked_workers_of_killed_process_hold_no_lock(tmp_path):
    pid_file = tmp_path / "worker"

    def work(ready):
        with lock_folder(tmp_path):
            worker = os.fork()
            if worker == 0:
                time.sleep(60)
                os._exit(0)
            pid_file.write_text(str(worker))
            ready()
            time.sleep(60)

    kill(fork(work))
    worker = int(pid_file.read_text())
    os.kill(worker, 0)  # still alive
    with lock_folder(tmp_path):
        os.kill(worker, signal.SIGKILL)


def test_lock_error_without_holder_name(tmp_path):
    with lock_folder(tmp_path):
        (tmp_path / ".lock").write_text("")
        with (
            pytest.raises(RunError, match="another process is writing here"),
            lock_folder(tmp_path),
        ):
            pass
