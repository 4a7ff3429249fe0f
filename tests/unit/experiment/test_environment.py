"""Memory, backends and stop signals."""

import hashlib
import os
import platform
import signal
import subprocess
import sys
import threading

import pytest
import torch

from heedful.experiment.environment import (
    StopSignalLogger,
    configure_backends,
    free_memory,
    handle_stop_signals,
    notify_on_signal,
    peak_memory,
    resident_memory,
    restore_stop_signals,
)

MEMINFO = "MemTotal:  2000000 kB\nMemFree:  100 kB\nMemAvailable:  1000000 kB\n"


@pytest.fixture
def machine(tmp_path):
    """Write files as a kernel shows them; return their root."""

    def write(**files):
        for name, text in {"proc/meminfo": MEMINFO, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_free_memory_without_cgroups_is_that_of_the_machine(machine):
    assert free_memory(machine()) == 1_000_000 * 1024


def test_free_memory_counts_headroom_and_cache_of_a_cgroup(machine):
    root = machine(
        **{
            "proc/self/cgroup": "0::/jobs/one\n",
            "sys/fs/cgroup/jobs/one/memory.max": "max\n",
            "sys/fs/cgroup/jobs/one/memory.current": "1000\n",
            "sys/fs/cgroup/jobs/memory.max": "500000\n",
            "sys/fs/cgroup/jobs/memory.current": "200000\n",
            "sys/fs/cgroup/jobs/memory.stat": "anon 1\ninactive_file 50000\n",
        }
    )
    assert free_memory(root) == 350_000


def test_free_memory_supports_cgroups_of_version_1(machine):
    root = machine(
        **{
            "proc/self/cgroup": "4:memory:/job\n1:cpu:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "700000\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "800000\n",
            "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 150000\n",
        }
    )
    assert free_memory(root) == 50_000


def test_full_cgroup_has_no_free_memory(machine):
    root = machine(
        **{
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "2000\n",
        }
    )
    assert free_memory(root) == 0


def test_free_memory_without_proc_is_the_whole_machine(tmp_path):
    assert free_memory(tmp_path) >= free_memory() > 0


def test_peak_memory_grows_and_never_falls():
    before = peak_memory(torch.device("cpu"))
    buffer = torch.ones(
        before // 4 + 25_000_000
    )  # 4 bytes each: more than all there was, and 100 MB
    grown = peak_memory(torch.device("cpu"))
    assert grown >= before + 100_000_000
    del buffer
    assert peak_memory(torch.device("cpu")) >= grown - (1 << 20)  # kernels count roughly


@pytest.mark.wide  # another process imports torch
def test_peak_memory_of_a_child_excludes_the_parent():
    buffer = bytearray(1 << 30)
    buffer[::4096] = b"x" * len(buffer[::4096])
    code = (
        "import torch; from heedful.experiment.environment import *;"
        "print(resident_memory(), peak_memory(torch.device('cpu')))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    resident, peak = map(int, output.split())
    assert resident <= peak < resident + len(buffer) / 4


def test_resident_memory_grows_with_allocations():
    before = resident_memory()
    buffer = bytearray(64 << 20)
    buffer[::4096] = b"x" * len(buffer[::4096])
    assert resident_memory() - before >= 60 << 20


def test_backends_unchanged_for_a_cpu():
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    configure_backends(torch.device("cpu"))
    assert (torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()) == before


@pytest.mark.wide  # another process imports torch
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_training_on_a_cpu_keeps_freed_memory_for_the_next_step():
    code = (
        "import torch; from heedful.experiment.environment import *\n"
        "{}\n"
        "tensors = [torch.ones(1 << 20) for _ in range(64)]\n"
        "before = resident_memory(); del tensors\n"
        "print(before - resident_memory())"
    )
    configure = "configure_backends(torch.device('cpu'))"
    returned, kept = (
        int(subprocess.check_output([sys.executable, "-c", code.format(line)], text=True))
        for line in ("", configure)
    )
    assert kept < 16 << 20 < 128 << 20 < returned


def test_backends_configured_for_a_gpu():
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    try:
        configure_backends(torch.device("cuda"))
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cuda.enable_cudnn_sdp(before[1])


@pytest.mark.wide  # another process imports torch
def test_memory_limit_rejects_large_allocations_only():
    code = (
        "import torch; from heedful.experiment.environment import limit_memory\n"
        "limit_memory(torch.device('cpu'), 200 << 20)\n"
        "torch.ones(20 << 20, dtype=torch.uint8)\n"
        "try: torch.ones(1 << 30, dtype=torch.uint8)\n"
        "except RuntimeError as error: print('refused')\n"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "refused\n"


def test_first_stop_signal_is_recorded_and_handlers_restored():
    previous = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    calls = []
    with handle_stop_signals(on_stop=lambda: calls.append("stop")) as is_stopped:
        assert not is_stopped()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert is_stopped()
        assert signal.getsignal(signal.SIGUSR1) == previous[signal.SIGUSR1], "acts as usual"
        os.kill(os.getpid(), signal.SIGTERM)
    assert calls == ["stop"]
    assert {number: signal.getsignal(number) for number in previous} == previous


def test_signal_is_notified_before_a_long_operation_ends():
    """One call of OpenSSL, which no Python handler interrupts."""
    events = []
    send = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    handling = handle_stop_signals(on_stop=lambda: events.append("handled"))
    with handling, notify_on_signal(events.append):
        send.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
    send.join()
    assert events == [signal.SIGUSR1, "handled"]
    assert signal.set_wakeup_fd(-1) == -1


def test_saved_training_ignores_signals_until_handlers_are_restored():
    handler, lines = signal.getsignal(signal.SIGINT), []
    notice = StopSignalLogger(lines.append)
    with restore_stop_signals():
        with handle_stop_signals():
            os.kill(os.getpid(), signal.SIGINT)
            notice.finish()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            notice(number)
    assert lines == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_second_signal_before_training_is_saved_interrupts_it():
    lines = []
    notice = StopSignalLogger(lines.append)
    notice.get_step = lambda: 3
    notice(signal.SIGINT)
    notice(signal.SIGINT)
    with restore_stop_signals(), pytest.raises(KeyboardInterrupt):
        notice.finish()
    assert lines[1:] == ["stopping without saving"]


@pytest.mark.parametrize("line", range(12))
def test_signal_while_a_signal_is_handled_is_received(line):
    """The handler is interrupted at each of its lines, those of what it calls included."""

    def give_up(number, frame):
        raise AssertionError("the handler waits for itself")

    previous = signal.signal(signal.SIGALRM, give_up), signal.getsignal(signal.SIGTERM)
    tracer = sys.gettrace()  # that of coverage
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    num_lines = 0

    def trace(frame, event, argument):
        nonlocal num_lines
        num_lines += event == "line"
        if event == "line" and num_lines == line + 1:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
        return trace

    try:
        with handle_stop_signals() as is_stopped:
            handler = signal.getsignal(signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, 5)
            sys.settrace(trace)
            handler(signal.SIGTERM, None)
            sys.settrace(tracer)
            assert is_stopped()
    finally:
        sys.settrace(tracer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous[0])
        signal.signal(signal.SIGTERM, previous[1])


def test_stop_signals_ignored_outside_the_main_thread():
    results = []

    def run():
        with handle_stop_signals() as is_stopped:
            results.append(is_stopped())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [False]
