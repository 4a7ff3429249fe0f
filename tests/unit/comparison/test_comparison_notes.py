from heedful.comparison.results import Failure
from heedful.comparison.tables import comparison_notes
from tests.unit.comparison.format_examples import comparison, score, system


def test_single_run_has_only_a_note_on_the_test_set():
    result = comparison(system("one", score(20.0)))
    assert list(comparison_notes(result)) == ["tested on 3 pairs of a and b"]


def test_notes_cover_budget_direction_runs_significance_and_failures():
    result = comparison(
        system("one", score(0.5, name="TER", better="lower"), num_runs=3),
        system("two", score(0.5, name="TER", better="lower", p=1.0), num_runs=3),
        failures=[Failure("bad", "runs/bad-0", "no number")],
        budget="500 steps",
    )
    assert list(comparison_notes(result)) == [
        "tested on 3 pairs of a and b",
        "budget of each run: 500 steps",
        "lower is better: TER",
        "means +- standard deviations of 3 runs",
        "nothing differs from one with p < 0.05, by approximate randomization (10000 trials)",
        "failed: bad (runs/bad-0): no number",
    ]
