"""Programs and commands in processes that have imported torch and heedful already.

A new interpreter takes four seconds to import them; a fork of one that has takes none.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import reduction
from pathlib import Path
from threading import Thread
from typing import IO, Any

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        *("heedful.experiment", "heedful.runs", "heedful.data.synthetic", "heedful.cli.main"),
        # Every optimizer imports the first, FSDP the others: seconds.
        *("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"),
    ]
)


def run_program(path: Path, *, max_seconds: float) -> tuple[int | None, str]:
    """Run a program in its folder; return its exit code, None after so long, and its output."""
    output = path.with_suffix(".out")
    process = FORKING.Process(target=_run, args=(str(path), str(output)))
    process.start()
    process.join(max_seconds)
    exit_code = process.exitcode
    process.kill()
    return exit_code, output.read_text(encoding="utf-8") if output.exists() else ""


def _run(path: str, output: str) -> None:
    with open(output, "wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.chdir(os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")


class ForkedCommand:
    """A heedful command in a forked process; it is used as a `subprocess.Popen` in text mode."""

    def __init__(
        self,
        *words: str | Path,
        stdin: int | IO | None = None,
        stdout: int | IO | None = None,
        stderr: int | IO | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        ends = [_open_stream(stream, index) for index, stream in enumerate((stdin, stdout, stderr))]
        self.stdin, self.stdout, self.stderr = [own for own, _, _ in ends]
        descriptors = [_Descriptor(theirs) for _, theirs, _ in ends]
        args = (
            [str(word) for word in words],
            descriptors,
            str(cwd or Path.cwd()),
            env or os.environ.copy(),
        )
        self._process = FORKING.Process(target=_run_command, args=args)
        self._process.start()
        for _, theirs, is_new in ends:
            if is_new:
                os.close(theirs)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("heedful", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Close the input; return all of the output and of the messages."""
        if self.stdin:
            self.stdin.close()
        texts = ["", ""]

        def read(index: int, stream: IO) -> None:
            texts[index] = stream.read()

        streams = [(i, stream) for i, stream in enumerate((self.stdout, self.stderr)) if stream]
        threads = [Thread(target=read, args=args, daemon=True) for args in streams]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join()
        return texts[0], texts[1]


class _Descriptor:
    """A file descriptor that is open in the forked process, too."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _detach, (reduction.DupFd(self.number),)


def _detach(duplicate: Any) -> int:
    return duplicate.detach()


def _open_stream(stream: int | IO | None, index: int) -> tuple[IO | None, int, bool]:
    """Return our end of a pipe, if there is one, their descriptor, and whether it is new."""
    if stream == subprocess.PIPE:
        read_end, write_end = os.pipe()
        if index == 0:
            return open(write_end, "w", buffering=1, encoding="utf-8"), read_end, True
        return open(read_end, encoding="utf-8"), write_end, True
    if stream == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR), True
    if stream is None:
        return None, index, False
    return None, stream if isinstance(stream, int) else stream.fileno(), False


def _run_command(
    words: list[str], descriptors: list[int], folder: str, env: Mapping[str, str]
) -> None:
    from heedful.cli.main import main

    for index, descriptor in enumerate(descriptors):
        os.dup2(descriptor, index)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["heedful", *words]
    main()
