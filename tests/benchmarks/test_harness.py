"""The benchmark harness: turns, ratios within rounds, quartiles, tables."""

import sys
from importlib import import_module

import pytest
import torch

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.endtoend import Step, speed_of
from benchmarks.harness import ROOT, Spread, Table, best_of, ratios, take_turns
from benchmarks.memory_use import peak_bytes

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in [*(ROOT / "benchmarks").glob("*.py"), ROOT / "benchmarks/gpu/__main__.py"]
    if "if __name__" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_benchmark_help_prints_help_and_runs_nothing(name, monkeypatch, capsys):
    module = import_module(name)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ending:
        module.main()
    assert ending.value.code == 0
    opening = module.__doc__.splitlines()[0]
    assert opening[:40] in " ".join(capsys.readouterr().out.split())


def test_systems_take_turns_in_alternating_order_after_a_warm_up():
    calls = []
    systems = {name: lambda name=name: calls.append(name) or 1.0 for name in "ab"}
    times = take_turns(systems, rounds=3, num_warmup=2)
    assert "".join(calls) == "aabb" + "ba" + "ab" + "ba"
    assert times == {"a": [1.0] * 3, "b": [1.0] * 3}


def test_system_that_fails_is_skipped(capsys):
    def fail():
        raise RuntimeError("CUDA out of memory")

    assert list(take_turns({"large": fail, "small": lambda: 1.0}, rounds=1)) == ["small"]
    assert capsys.readouterr().out == "left out: large: CUDA out of memory\n"


def test_ratios_are_taken_within_rounds():
    times = {"ours": [1.0, 2.0, 1.0], "slow": [4.0, 4.0, 4.0], "quick": [2.0, 3.0, 1.5]}
    assert best_of(times, ["slow", "quick"]) == "quick"
    assert ratios(times, "ours", "quick") == Spread(1.5, 1.5, 1.75)


def test_spread_is_median_and_quartiles():
    assert Spread.of([5.0, 1.0, 2.0, 3.0, 4.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([7.0]).format(".1f") == "7.0 (7.0-7.0)"


def test_table_is_markdown(capsys):
    Table("system", "speed").add("ours", 3)
    assert capsys.readouterr().out == "\n| system | speed |\n| --- | --- |\n| ours | 3 |\n"


def test_peak_bytes_counts_what_lives_at_one_time():
    one_after_another = peak_bytes(lambda: [torch.ones(1000).sum() for _ in range(5)])
    together = peak_bytes(lambda: [torch.ones(1000) for _ in range(5)])
    assert 4000 <= one_after_another < 8000 < 20_000 <= together


def test_speed_counts_targets_of_the_second_half_of_the_time():
    # Slow at first; then two steps of 50 targets are reported together every second.
    steps = [Step(float(second), 1) for second in range(9)]
    steps += [Step(float(second), 50) for second in range(9, 17) for _ in range(2)]
    assert speed_of(steps).median == pytest.approx(100)


def test_gpu_benchmark_without_gpu_raises(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    main()
    assert capsys.readouterr().out == "no CUDA device: nothing to measure\n"
