from heedful.comparison.results import Failure
from heedful.comparison.tables import comparison_notes
from tests.unit.comparison.numbers import comparison, judged, system


def test_one_run_needs_no_remark_but_its_test():
    found = comparison(system("one", judged(20.0)))
    assert list(comparison_notes(found)) == ["tested on 3 pairs of a and b"]


def test_all_that_the_table_does_not_say_is_said():
    found = comparison(
        system("one", judged(0.5, name="TER", better="lower"), num_runs=3),
        system("two", judged(0.5, name="TER", better="lower", p=1.0), num_runs=3),
        failures=[Failure("bad", "runs/bad-0", "no number")],
        budget="500 steps",
    )
    assert list(comparison_notes(found)) == [
        "tested on 3 pairs of a and b",
        "budget of each run: 500 steps",
        "lower is better: TER",
        "means and +- deviations of 3 runs",
        "nothing differs from one with p < 0.05, by approximate randomisation (10000 trials)",
        "failed: bad (runs/bad-0): no number",
    ]
