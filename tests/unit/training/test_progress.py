"""What is shown while training: the same on a terminal and off it."""

import io
import math

import pytest
from rich.cells import cell_len
from rich.console import Console

from heedful.training.callbacks import LoggedSample, StepMetrics, ValidationResult
from heedful.training.progress import ProgressMeter, ValidationStatus, print_samples, show_progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand."""
    now = [100.0]
    monkeypatch.setattr("heedful.training.progress.time.monotonic", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def report(step, loss=2.0, num_tokens=500, skipped="", **auxiliary_losses):
    return StepMetrics(step, loss, 1.0, 0.1, num_tokens, 200, auxiliary_losses, skipped)


def validation(step, loss, *, is_best, **scores):
    return ValidationResult(step, 1.0, {"loss": loss, **scores}, is_best)


def steps(most):
    return lambda step: step / most


def test_constant_steps_return_constant_means(clock):
    pace = ProgressMeter(steps(100))
    for step in range(1, 11):
        clock(0.5)
        pace.update(report(step))
    assert pace.loss == pytest.approx(2.0)
    assert pace.tokens_per_second == pytest.approx(1000)
    assert pace.seconds_left == pytest.approx(0.5 * 90)
    assert str(pace) == "smoothed loss 2.000  1,000 tokens/s  0:45 left"


def test_speed_of_steps_that_are_reported_together(clock):
    """As on a GPU, where losses are read every ten steps."""
    pace = ProgressMeter(steps(1000))
    for step in range(1, 501):
        clock(5.0 if step % 10 == 0 else 0.0)
        pace.update(report(step))
    assert pace.tokens_per_second == pytest.approx(1000, rel=0.1)
    assert pace.seconds_left == pytest.approx(0.5 * 500, rel=0.1)


def test_remaining_time_of_a_resumed_run_ignores_earlier_steps(clock):
    pace = ProgressMeter(steps(100), step=50)
    clock(2)
    pace.update(report(51))
    assert pace.seconds_left == pytest.approx(2 * 49)


def test_auxiliary_losses_shown_by_name(clock):
    pace = ProgressMeter(steps(3))
    for step in range(1, 4):
        clock(0.5)
        pace.update(report(step, coverage=0.25, entropy=-1.5))
    assert (
        str(pace)
        == "smoothed loss 2.000  coverage 0.250  entropy -1.500  1,000 tokens/s  0:00 left"
    )


def test_auxiliary_losses_smoothed_as_the_loss(clock):
    pace = ProgressMeter(steps(3))
    for step, number in enumerate([4.0, 1.0, 3.0], start=1):
        clock(0.5)
        pace.update(report(step, loss=number, coverage=number))
    assert pace.auxiliary_losses["coverage"] == pytest.approx(pace.loss)


def test_remaining_time_is_that_of_the_nearest_limit(clock):
    """Steps would go on for long, but the minutes are soon over."""
    seconds = [0.0]
    pace = ProgressMeter(lambda step: max(step / 1000, seconds[0] / 60))
    for step in range(1, 5):
        clock(10)
        seconds[0] += 10
        pace.update(report(step))
    assert pace.seconds_left == pytest.approx(20)


def test_no_remaining_time_is_shown_without_progress(clock):
    pace = ProgressMeter(lambda step: 0.0)
    clock(1)
    pace.update(report(1))
    assert pace.seconds_left == math.inf
    assert "left" not in str(pace)


def test_speed_excludes_validation_time(clock):
    pace = ProgressMeter(steps(100))
    clock(0.5)
    pace.update(report(1))
    clock(60)
    pace.pause()
    clock(0.5)
    pace.update(report(2))
    assert pace.tokens_per_second == pytest.approx(1000)


def test_skipped_steps_counted_and_not_in_the_loss(clock):
    pace = ProgressMeter(steps(10))
    for step, skipped in enumerate(["overflow", "", "loss is nan", ""], start=1):
        clock(0.5)
        pace.update(report(step, loss=math.nan if skipped else 2.0, skipped=skipped))
    assert str(pace) == "smoothed loss 2.000  1,000 tokens/s  0:03 left  2 skipped"


def test_dev_scores_shown_with_the_best():
    standing = ValidationStatus("loss")
    assert str(standing) == ""
    standing.update(validation(400, 1.3, is_best=False))
    assert str(standing) == "dev loss 1.300"  # the best was before an interruption
    standing.update(validation(500, 1.2, is_best=True))
    assert str(standing) == "dev loss 1.200 (best)"
    standing.update(validation(600, 1.234, is_best=False, accuracy=0.5))
    assert str(standing) == "dev loss 1.234, best 1.200 at step 500  accuracy 0.500"


def test_best_score_is_that_of_the_configured_metric():
    standing = ValidationStatus("bleu")
    standing.update(validation(500, 1.2, is_best=True, bleu=21.0))
    standing.update(validation(600, 1.1, is_best=False, bleu=20.5))
    assert str(standing) == "dev bleu 20.500, best 21.000 at step 500  loss 1.100"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_plain_lines_printed_every_ten_seconds_and_at_the_end(clock, monkeypatch, is_terminal):
    """Also on a terminal that cannot move its cursor."""
    monkeypatch.setenv("TERM", "dumb")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_terminal)
    with show_progress(console, step=0, fraction_done=steps(25)) as shown:
        for step in range(1, 26):
            clock(1)
            shown.on_step_end(report(step))
            if step == 15:
                shown.on_validation_end(validation(15, 1.5, is_best=True))
    lines = screen.getvalue().splitlines()
    starts = ["step 10 (40 %)", "step 20 (80 %)", "step 25 (100 %)"]
    assert [line.split("  ")[0] for line in lines] == starts
    assert ["dev loss 1.500" in line for line in lines] == [False, True, True]


def test_terminal_shows_a_bar_with_dev_scores_below(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with show_progress(console, step=0, fraction_done=steps(2)) as shown:
        shown.on_step_end(report(1))
        shown.on_validation_end(validation(1, 1.5, is_best=True))
        shown.on_step_end(report(2))
    drawn = screen.getvalue()
    assert "100%" in drawn
    assert "step 2" in drawn
    assert "tokens/s" in drawn
    assert "dev loss 1.500 (best)" in drawn


@pytest.mark.parametrize("is_terminal", [True, False])
def test_samples_cut_to_the_width_of_a_terminal_only(is_terminal):
    console = Console(file=io.StringIO(), width=30, force_terminal=is_terminal, color_system=None)
    source, output = "\u732b\u306f\u8d70\u308b" * 9, "the cat\nruns [red]and[/red] runs"
    samples = [LoggedSample([], "ref", [], output, (), source)] * 4
    print_samples(console, samples)
    lines = console.file.getvalue().split("\n")
    assert [line[:11].strip() for line in lines[:5]] == [
        "source",
        "reference",
        "output",
        "",
        "source",
    ]
    assert len(lines) == 3 * 4 + 1
    if is_terminal:
        assert all(cell_len(line) <= 30 for line in lines)
        assert lines[2] == "  output     the cat / runs [\u2026"
    else:
        assert lines[0] == f"  source     {source}"
        assert lines[2] == "  output     the cat / runs [red]and[/red] runs"


def test_quiet_console_prints_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, quiet=True)
    with show_progress(console, step=0, fraction_done=steps(1)) as shown:
        shown.on_step_end(report(1))
        shown.on_validation_end(validation(1, 1.5, is_best=True))
    assert screen.getvalue() == ""
