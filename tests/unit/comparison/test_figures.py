from heedful.comparison.figures import (
    main_metric_label,
    main_metric_name,
    missing_system_notes,
    plotted_systems,
)
from tests.made_comparisons import made_comparison


def test_quality_is_the_first_metric_and_says_which_way_is_better():
    assert main_metric_name(made_comparison(2)) == "BLEU"
    assert main_metric_label(made_comparison(2)) == "BLEU (higher is better)"


def test_looks_follow_the_order_of_the_systems():
    assert [
        (each.style_index, each.system.name) for each in plotted_systems(made_comparison(3))
    ] == [
        (0, "system-0"),
        (1, "system-1"),
        (2, "system-2"),
    ]


def test_only_what_was_not_drawn_is_missing():
    comparison = made_comparison(3)
    assert (
        list(missing_system_notes(comparison, ["system-0", "system-1", "system-2"], "no reason"))
        == []
    )
    assert list(missing_system_notes(comparison, ["system-1"], "too small")) == [
        "Left out: system-0, system-2: too small."
    ]
