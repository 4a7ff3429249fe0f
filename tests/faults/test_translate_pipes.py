"""`heedful translate` between real pipes: it answers at once, holds little, and leaves nothing."""

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

pytestmark = pytest.mark.faults

PATIENT = 120  # seconds: a busy machine may take long to start torch
EACH_WAY = pytest.mark.parametrize("workers", [1, 2])


@pytest.fixture
def translating(trained):
    """Start the command with pipes at every end; nothing of it outlives the test."""
    started = []

    def start(*words, **options):
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = start_heedful("translate", trained, *words, bufsize=1, **(ends | options))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def read_line(process):
    ready, _, _ = select.select([process.stdout], [], [], PATIENT)
    assert ready, "no answer came"
    line = process.stdout.readline()
    assert line, f"ended without an answer: {process.stderr.read()}"
    return line


def ask(process, text):
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return read_line(process)


def descendants(process):
    """The processes below one, by number."""
    found, waiting = [], [process.pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            children = [int(number) for number in task.read_text().split()]
            found += children
            waiting += children
    return found


def workers_of(process):
    """Those below a process that do its work: the ones that hold a model."""
    return [each for each in descendants(process) if memory(each, "VmRSS") > 2**26]


def memory(process, name):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def assert_all_end(processes, within=10):
    until = time.monotonic() + within
    while left := [
        each for each in processes if Path(f"/proc/{each}").exists() and not is_dead(each)
    ]:
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.05)


def is_dead(process):
    """Whether a process has ended and only waits to be looked after."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@EACH_WAY
def test_a_line_is_answered_before_the_next_is_sent(translating, workers):
    process = translating("--num-workers", workers)
    assert ask(process, "a b") == "a b\n"  # loads the model
    began = time.monotonic()
    for text in ("c", "", "d e f", "a"):
        assert ask(process, text) == f"{text}\n"
    assert time.monotonic() - began < 10
    process.stdin.close()
    assert process.wait(PATIENT) == 0
    assert process.stderr.read() == ""


@EACH_WAY
def test_a_reader_that_goes_away_ends_the_command_though_the_writer_stays(translating, workers):
    process = translating("--num-workers", workers)
    assert ask(process, "a b") == "a b\n"
    below = descendants(process)
    process.stdout.close()
    process.stdin.write("c\n")
    process.stdin.flush()
    assert process.wait(10) == 1
    assert process.stderr.read() == (
        "heedful: standard output: the reader closed the pipe before all was written\n"
        "  what it took is complete lines; give the command again for the rest\n"
    )
    assert_all_end(below)


def test_head_ends_the_command(translating, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a b\n" * 20_000)
    process = translating(source, "--beam", 1, stdin=subprocess.DEVNULL)
    assert read_line(process) == "a b\n"
    process.stdout.close()
    assert process.wait(10) == 1


def test_memory_stays_flat_and_every_line_comes_back(translating):
    """50,000 lines; what the process held at most grows no more after the first tenth."""
    count = 50_000
    process = translating("--beam", 1)

    def write():
        for number in range(count):
            process.stdin.write(f"{LETTERS[number % 8]} {LETTERS[number // 8 % 8]}\n")
        process.stdin.close()

    threading.Thread(target=write, daemon=True).start()
    peaks = []
    for number in range(count):
        line = process.stdout.readline()
        assert line == f"{LETTERS[number % 8]} {LETTERS[number // 8 % 8]}\n"
        if number in (count // 10, count - 1):
            peaks.append(memory(process.pid, "VmHWM"))
    assert process.wait(PATIENT) == 0
    assert peaks[1] - peaks[0] < 32 * 2**20


@EACH_WAY
def test_no_more_is_read_than_can_be_written(translating, workers):
    """Nobody reads the output: the command stops reading too, long before memory fills."""
    process = translating("--num-workers", workers, "--beam", 1)
    assert ask(process, "a") == "a\n"
    os.set_blocking(process.stdin.fileno(), False)
    num_routed, quiet = 0, time.monotonic()
    while time.monotonic() - quiet < 5:
        try:
            num_routed += os.write(process.stdin.fileno(), b"a b c d\n" * 64) // 8
            quiet = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
        assert num_routed < 40_000
    assert num_routed > 1000  # two full pipes of 64 KiB, and a few chunks between them


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_killed_worker_ends_the_command_at_once(translating, tmp_path, is_busy):
    if is_busy:
        source = tmp_path / "in.txt"
        source.write_text("a b c d\n" * 20_000)
        process = translating(
            source, "--num-workers", 2, "--device", "cpu", stdin=subprocess.DEVNULL
        )
        assert read_line(process) == "a b c d\n"
    else:
        process = translating("--num-workers", 2, "--device", "cpu")
        assert ask(process, "a") == "a\n"
    below, workers = descendants(process), workers_of(process)
    assert len(workers) == 2
    threading.Thread(target=process.stdout.read, daemon=True).start()
    os.kill(workers[-1], signal.SIGKILL)
    assert process.wait(10) == 1
    said = process.stderr.read()
    assert said.startswith("heedful: worker ")
    assert said.endswith(
        ": the process died (killed by SIGKILL)\n"
        "  if memory ran out, use fewer processes or smaller batches; what was finished before is "
        "kept\n"
    )
    assert_all_end(below)


def hear_interrupts():
    """Whoever was started in the background is deaf to them, and so is whoever it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("moment", ["starting", "working"])
def test_an_interrupt_from_the_keyboard_ends_all(translating, moment):
    """Ctrl-C reaches every process of the group; one of them answers."""
    process = translating(
        "--num-workers", 2, "--device", "cpu", start_new_session=True, preexec_fn=hear_interrupts
    )
    if moment == "working":
        assert ask(process, "a") == "a\n"
    else:
        until = time.monotonic() + PATIENT
        while len(descendants(process)) < 2:  # the workers
            assert time.monotonic() < until
            time.sleep(0.01)
    below = descendants(process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(10) == 130
    assert process.stderr.read() == ""
    assert_all_end(below)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_do_not_outlive_the_command(translating, tmp_path, how):
    source = tmp_path / "in.txt"
    source.write_text("a b c d\n" * 50_000)
    process = translating(source, "--num-workers", 2, "--device", "cpu", stdin=subprocess.DEVNULL)
    read_line(process)
    below = descendants(process)
    process.send_signal(how)
    process.wait(10)
    assert_all_end(below)


@pytest.mark.parametrize(
    "words",
    [(), ("--nbest", "2"), ("--set", "decoding.sampling={temperature: 2}")],
    ids=["beam", "nbest", "drawn"],
)
def test_several_processes_write_what_one_writes(capsys, monkeypatch, trained, tmp_path, words):
    chance = random.Random(5)
    source = tmp_path / "in.txt"
    lines = (" ".join(chance.choices(LETTERS, k=chance.randint(0, 6))) for _ in range(700))
    source.write_text("".join(f"{line}\n" for line in lines))

    def translate(*more):
        links = tmp_path / "links"
        ended = heedful(
            capsys,
            monkeypatch,
            "translate",
            trained,
            source,
            *words,
            "--save-alignments",
            links,
            *more,
        )
        assert (ended.code, ended.err) == (0, "")
        return ended.out, links.read_text()

    assert translate("--num-workers", "2", "--device", "cpu") == translate()


def test_a_run_that_is_not_there_is_said_once_by_several_processes(capsys, monkeypatch, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\n" * 600)
    absent = tmp_path / "absent" / "run"
    words = ("translate", absent, source, "--num-workers", "2", "--device", "cpu")
    ended = heedful(capsys, monkeypatch, *words)
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {absent}: no such folder\n  name a folder written by `heedful train`\n"
    )
