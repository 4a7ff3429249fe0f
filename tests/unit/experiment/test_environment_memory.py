import subprocess
import sys

import torch

from heedful.experiment.environment import peak_memory, read_kib_field, resident_memory


def test_the_peak_grows_with_what_is_held_and_never_falls():
    before = peak_memory(torch.device("cpu"))
    held = torch.ones(before // 4 + 25_000_000)  # 4 bytes each: more than all there was, and 100 MB
    grown = peak_memory(torch.device("cpu"))
    assert grown >= before + 100_000_000
    del held
    assert peak_memory(torch.device("cpu")) >= grown - (1 << 20)  # kernels count roughly


def test_a_process_is_not_charged_with_what_its_parent_held():
    held = bytearray(1 << 30)
    held[::4096] = b"x" * len(held[::4096])
    asking = (
        "import torch; from heedful.experiment.environment import *;"
        "print(resident_memory(), peak_memory(torch.device('cpu')))"
    )
    found = subprocess.check_output([sys.executable, "-c", asking], text=True)
    resident, peak = map(int, found.split())
    assert resident <= peak < resident + len(held) / 4


def test_this_process_has_taken_what_it_holds():
    before = resident_memory()
    held = bytearray(64 << 20)
    held[::4096] = b"x" * len(held[::4096])
    assert resident_memory() - before >= 60 << 20


def test_what_a_system_does_not_tell_is_zero(tmp_path):
    table = tmp_path / "status"
    table.write_text("VmRSS:  12 kB\n\nother words\n")
    assert (read_kib_field(table, "VmRSS:"), read_kib_field(table, "VmHWM:")) == (12 * 1024, 0)
    assert read_kib_field(tmp_path / "nowhere", "VmRSS:") == 0
