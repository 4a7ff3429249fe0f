"""`heedful translate` with real pipes: immediate output, bounded memory, no orphan processes."""

import os
import random
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.commands import LETTERS, heedful, start_heedful
from tests.forking import ForkedCommand

pytestmark = pytest.mark.faults

TIMEOUT = 120  # seconds: a busy machine may take long to start torch
one = pytest.param(1, marks=pytest.mark.slow)
each_num_workers = pytest.mark.parametrize("num_workers", [one, 2])


@pytest.fixture
def translating(trained):
    """Start the command with pipes; its processes are killed after the test."""
    processes = []

    def start(*arguments, **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        start = start_heedful if "preexec_fn" in options else ForkedCommand
        process = start("translate", trained, *arguments, **(pipes | options))
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def read_line(process):
    ready, _, _ = select.select([process.stdout], [], [], TIMEOUT)
    assert ready, "no output"
    line = process.stdout.readline()
    assert line, f"ended without output: {process.stderr.read()}"
    return line


def translate_line(process, text):
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return read_line(process)


def descendants(process):
    """Ids of all child processes, recursively."""
    ids, stack = [], [process.pid]
    while stack:
        for task in Path(f"/proc/{stack.pop()}/task").glob("*/children"):
            children = [int(pid) for pid in task.read_text().split()]
            ids += children
            stack += children
    return ids


def workers_of(process):
    """Ids of the descendants that have loaded a model."""
    return [pid for pid in descendants(process) if memory(pid, "VmRSS") > 2**26]


def memory(pid, name):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def check_all_exit(pids):
    deadline = time.monotonic() + TIMEOUT
    while running := [pid for pid in pids if Path(f"/proc/{pid}").exists() and not is_zombie(pid)]:
        assert time.monotonic() < deadline, f"still running: {running}"
        time.sleep(0.05)


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@each_num_workers
def test_line_is_translated_before_the_next_is_sent(translating, num_workers):
    process = translating("--num-workers", num_workers)
    assert translate_line(process, "a b") == "a b\n"  # loads the model
    for text in ("c", "", "d e f", "a"):
        assert translate_line(process, text) == f"{text}\n"
    process.stdin.close()
    assert process.wait(TIMEOUT) == 0
    assert process.stderr.read() == ""


@each_num_workers
def test_closed_output_pipe_ends_the_command(translating, num_workers):
    process = translating("--num-workers", num_workers)
    assert translate_line(process, "a b") == "a b\n"
    pids = descendants(process)
    process.stdout.close()
    process.stdin.write("c\n")
    process.stdin.flush()
    assert process.wait(TIMEOUT) == 141
    assert process.stderr.read() == ""
    check_all_exit(pids)


def test_head_ends_the_command(translating, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a b\n" * 20_000)
    process = translating(source, "--beam", 1, stdin=subprocess.DEVNULL)
    assert read_line(process) == "a b\n"
    process.stdout.close()
    assert process.wait(TIMEOUT) == 141


def test_memory_is_constant_for_a_long_stream(translating):
    """10,000 lines; peak memory does not grow after the first tenth."""
    num_lines = 10_000
    process = translating("--beam", 1)

    def write():
        for index in range(num_lines):
            process.stdin.write(f"{LETTERS[index % 8]} {LETTERS[index // 8 % 8]}\n")
        process.stdin.close()

    threading.Thread(target=write, daemon=True).start()
    peaks = []
    for index in range(num_lines):
        line = process.stdout.readline()
        assert line == f"{LETTERS[index % 8]} {LETTERS[index // 8 % 8]}\n"
        if index in (num_lines // 10, num_lines - 1):
            peaks.append(memory(process.pid, "VmHWM"))
    assert process.wait(TIMEOUT) == 0
    assert peaks[1] - peaks[0] < 32 * 2**20


@each_num_workers
def test_input_is_not_read_while_output_is_blocked(translating, num_workers):
    """If nobody reads the output, the command stops reading, too."""
    process = translating("--num-workers", num_workers, "--beam", 1)
    assert translate_line(process, "a") == "a\n"
    os.set_blocking(process.stdin.fileno(), False)
    num_sent, last_write = 0, time.monotonic()
    while time.monotonic() - last_write < 5:
        try:
            num_sent += os.write(process.stdin.fileno(), b"a b c d\n" * 64) // 8
            last_write = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
        assert num_sent < 40_000
    assert num_sent > 1000  # two full pipes of 64 KiB, and a few chunks between them


@pytest.mark.parametrize("is_busy", [True, False])
def test_killed_worker_ends_the_command(translating, tmp_path, is_busy):
    if is_busy:
        source = tmp_path / "in.txt"
        source.write_text("a b c d\n" * 20_000)
        process = translating(
            source, "--num-workers", 2, "--device", "cpu", stdin=subprocess.DEVNULL
        )
        assert read_line(process) == "a b c d\n"
    else:
        process = translating("--num-workers", 2, "--device", "cpu")
        assert translate_line(process, "a") == "a\n"
    pids, workers = descendants(process), workers_of(process)
    assert len(workers) == 2
    threading.Thread(target=process.stdout.read, daemon=True).start()
    os.kill(workers[-1], signal.SIGKILL)
    assert process.wait(TIMEOUT) == 1
    message = process.stderr.read()
    assert message.startswith("heedful: worker ")
    assert message.endswith(
        ": the process died (killed by SIGKILL)\n"
        "  if memory ran out, use fewer processes or smaller batches; finished work is kept\n"
    )
    check_all_exit(pids)


def enable_interrupts():
    """Restore SIGINT, which background processes inherit as ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("moment", ["starting", "working"])
def test_ctrl_c_ends_all_processes(translating, moment):
    """Ctrl-C reaches every process of the group."""
    process = translating(
        "--num-workers", 2, "--device", "cpu", start_new_session=True, preexec_fn=enable_interrupts
    )
    if moment == "working":
        assert translate_line(process, "a") == "a\n"
    else:
        deadline = time.monotonic() + TIMEOUT
        while len(descendants(process)) < 2:  # the workers
            assert time.monotonic() < deadline
            time.sleep(0.01)
    pids = descendants(process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(TIMEOUT) == 130
    assert process.stderr.read() == ""
    check_all_exit(pids)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_do_not_outlive_the_command(translating, tmp_path, signal_number):
    source = tmp_path / "in.txt"
    source.write_text("a b c d\n" * 50_000)
    process = translating(source, "--num-workers", 2, "--device", "cpu", stdin=subprocess.DEVNULL)
    read_line(process)
    pids = descendants(process)
    process.send_signal(signal_number)
    process.wait(TIMEOUT)
    check_all_exit(pids)


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--nbest", "2"), marks=pytest.mark.slow),
        pytest.param(("--set", "decoding.sampling={temperature: 2}"), marks=pytest.mark.slow),
    ],
    ids=["beam", "nbest", "sampling"],
)
def test_several_processes_return_the_output_of_one(
    capsys, monkeypatch, trained, tmp_path, options
):
    generator = random.Random(5)
    source = tmp_path / "in.txt"
    lines = (" ".join(generator.choices(LETTERS, k=generator.randint(0, 6))) for _ in range(700))
    source.write_text("".join(f"{line}\n" for line in lines))

    def translate(*more):
        links = tmp_path / "links"
        arguments = (trained, source, *options, "--save-alignments", links, *more)
        result = heedful(capsys, monkeypatch, "translate", *arguments)
        assert (result.code, result.err) == (0, "")
        return result.out, links.read_text()

    assert translate("--num-workers", "2", "--device", "cpu") == translate()


def test_missing_run_raises_once_by_several_processes(capsys, monkeypatch, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\n" * 600)
    absent = tmp_path / "absent" / "run"
    arguments = ("translate", absent, source, "--num-workers", "2", "--device", "cpu")
    result = heedful(capsys, monkeypatch, *arguments)
    assert result.code == 2
    assert result.err == (
        f"heedful: {absent}: no such folder\n  name a folder written by `heedful train`\n"
    )
