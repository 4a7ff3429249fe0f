from heedful.comparison.figures import (
    main_metric_label,
    main_metric_name,
    missing_system_notes,
)
from tests.example_comparisons import example_comparison


def test_main_metric_is_the_first_and_has_a_direction():
    assert main_metric_name(example_comparison(2)) == "BLEU"
    assert main_metric_label(example_comparison(2)) == "BLEU (higher is better)"


def test_missing_systems_have_a_note():
    comparison = example_comparison(3)
    assert (
        list(missing_system_notes(comparison, ["system-0", "system-1", "system-2"], "no reason"))
        == []
    )
    assert list(missing_system_notes(comparison, ["system-1"], "too small")) == [
        "Left out: system-0, system-2: too small."
    ]
