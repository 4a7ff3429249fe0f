"""What is shown while training: the same on a terminal and off it."""

import io

import pytest
from rich.console import Console

from heedful.training.engine import Report
from heedful.training.progress import Pace, watching


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand."""
    now = [100.0]
    monkeypatch.setattr("heedful.training.progress.time.monotonic", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def report(step, loss=2.0, num_tokens=500, **penalties):
    return Report(step, loss, 1.0, 0.1, num_tokens, penalties)


def test_steady_steps_give_steady_figures(clock):
    pace = Pace(max_steps=100, max_seconds=1e9)
    for step in range(1, 11):
        clock(0.5)
        pace.take(report(step))
    assert pace.loss == pytest.approx(2.0)
    assert pace.tokens_per_second == pytest.approx(1000)
    assert pace.seconds_left == pytest.approx(0.5 * 90)
    assert str(pace) == "loss 2.000  1,000 tokens/s  0:45 left"


def test_penalties_are_shown_by_name_if_there_are_any(clock):
    pace = Pace(max_steps=3, max_seconds=1e9)
    for step in range(1, 4):
        clock(0.5)
        pace.take(report(step, coverage=0.25, entropy=-1.5))
    assert str(pace) == "loss 2.000  coverage 0.250  entropy -1.500  1,000 tokens/s  0:00 left"


def test_penalties_are_smoothed_as_the_loss_is(clock):
    pace = Pace(max_steps=3, max_seconds=1e9)
    for step, number in enumerate([4.0, 1.0, 3.0], start=1):
        clock(0.5)
        pace.take(report(step, loss=number, coverage=number))
    assert pace.penalties["coverage"] == pytest.approx(pace.loss)


def test_the_time_left_is_that_of_the_nearer_end(clock):
    pace = Pace(max_steps=1000, max_seconds=60)
    clock(20)
    pace.take(report(1))
    assert pace.seconds_left == pytest.approx(40)
    clock(100)
    pace.take(report(2))
    assert pace.seconds_left == 0


@pytest.mark.parametrize("is_terminal", [False, True])
def test_plain_lines_come_every_ten_seconds_and_at_the_end(clock, monkeypatch, is_terminal):
    """Also on a terminal that cannot move its cursor."""
    monkeypatch.setenv("TERM", "dumb")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_terminal)
    with watching(console, step=0, max_steps=30) as show:
        for step in range(1, 31):
            clock(1)
            show(report(step))
    lines = screen.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 10/30", "step 20/30", "step 30/30"]


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    with watching(
        Console(file=screen, force_terminal=True, width=100), step=0, max_steps=2
    ) as show:
        show(report(1))
        show(report(2))
    drawn = screen.getvalue()
    assert "2/2" in drawn
    assert "tokens/s" in drawn
