"""Training, resuming, translating and drawing without what only Linux or POSIX has."""

import os
import subprocess
import sys

import pytest

from tests.commands import write_recipe

# What Windows lacks, and macOS in part. Libraries are imported before: they may use it here.
HIDE = """
import concurrent.futures.thread, errno, fcntl, multiprocessing.connection, os, platform, shutil
import signal, subprocess, sys, types
import numpy, rich.console, sacrebleu, safetensors.torch, sentencepiece, torch, typer
import torch._dynamo

def locking(descriptor, mode, size, lockf=fcntl.lockf, flags=fcntl.LOCK_EX | fcntl.LOCK_NB):
    assert mode == "LK_NBLCK"
    try:
        lockf(descriptor, flags, size, os.lseek(descriptor, 0, os.SEEK_CUR))
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None

sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK="LK_NBLCK")
for name in ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty"):
    sys.modules[name] = None
for name in (
    "fork", "forkpty", "register_at_fork", "pread", "pwrite", "sched_getaffinity", "sysconf",
    "sysconf_names", "posix_fadvise", "getuid", "geteuid", "killpg", "setsid", "uname", "mkfifo",
    "fchmod", "nice", "getloadavg", "wait4", "getpgid",
):
    delattr(os, name)
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGPIPE", "SIGALRM"):
    delattr(signal, name)

def run(*words):
    from heedful.cli.main import main
    sys.argv = ["heedful", *words]
    try:
        main()
    except SystemExit as ending:
        assert not ending.code, ending.code
"""


def run_without_posix(program, *arguments, stdin=""):
    command = [sys.executable, "-c", HIDE + program, *map(str, arguments)]
    options = {"input": stdin, "capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(command, check=False, **options)


@pytest.mark.faults
def test_commands_need_nothing_that_only_posix_has(tmp_path):
    recipe = write_recipe(tmp_path, steps=4, every=2)
    program = """
recipe, folder = sys.argv[1:]
run("train", recipe, "--run", folder)
run("train", recipe, "--run", folder, "--set", "training.max_steps=6")
run("translate", folder)
run("show", folder, "a b")
"""
    ended = run_without_posix(program, recipe, tmp_path / "run", stdin="a b c\nc\n")
    assert ended.returncode == 0, ended.stderr
    assert "resuming from step 4" in ended.stderr
    assert ended.stdout.count("\n") > 2


LOCK = """
from pathlib import Path
from heedful.storage.atomic import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.faults
def test_folders_locked_without_flock(tmp_path):
    folder, command = tmp_path / "run", [sys.executable, "-c", HIDE + LOCK, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout.readline() == "locked\n"
        second = run_without_posix(LOCK, folder)
        assert second.returncode == 1
        assert f"{folder}: process {holder.pid} on " in second.stderr
        assert "is training here" in second.stderr
        holder.communicate("\n")
    assert not folder.exists(), "an empty folder is removed with its lock"
    assert run_without_posix(LOCK, folder).returncode == 0, "released with its process"


@pytest.mark.parametrize("has_sysconf", [True, False], ids=["macOS", "Windows"])
def test_memory_is_measured_without_proc(monkeypatch, tmp_path, has_sysconf):
    import ctypes

    import torch

    from heedful.experiment import environment

    class Kernel32:
        """Fills in the structures that Windows documents."""

        def GlobalMemoryStatusEx(self, status):
            assert status[0] == ctypes.sizeof(status) == 64
            status[1], status[2] = 16 << 30, 3 << 30  # ullTotalPhys, ullAvailPhys

        def K32GetProcessMemoryInfo(self, process, counters, size):
            assert counters[0] == ctypes.sizeof(counters) == size == 72
            counters[1], counters[2] = 5 << 20, 4 << 20  # PeakWorkingSetSize, WorkingSetSize

    monkeypatch.setattr(environment, "_STATUS", tmp_path / "no-proc")
    cpu = torch.device("cpu")
    if has_sysconf:
        assert environment.peak_memory(cpu) > 1 << 20
        assert environment.resident_memory() > 1 << 20
        assert environment.free_memory(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf(
            "SC_PHYS_PAGES"
        )
        return
    windows = type("windll", (), {"kernel32": Kernel32()})
    monkeypatch.setattr(ctypes, "windll", windows, raising=False)
    monkeypatch.setattr(environment, "resource", None)
    monkeypatch.delattr(os, "sysconf")
    assert environment.free_memory(tmp_path) == 3 << 30
    assert environment.peak_memory(cpu) == 5 << 20
    assert environment.resident_memory() == 4 << 20
