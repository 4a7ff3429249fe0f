import io

import pytest
from rich.console import Console

from heedful.cli.compare import WIDTH, print_table
from heedful.comparison.results import Failure
from heedful.comparison.tables import make_columns
from tests.unit.comparison.format_examples import comparison, cost, score, system


def shown(compared, *, width=WIDTH, terminal=False):
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=terminal, _environ={"TERM": "xterm"})
    print_table(compared, console, width=width)
    return text.getvalue()


def five(num_metrics):
    names = ["seq2seq-2014-small", "luong-2015-dot-small", "bahdanau-2015-small", "rnn", "convs2s"]
    metrics = ["exact match", "BLEU", "chrF", "TER"][:num_metrics]
    return comparison(
        *(
            system(
                name,
                *(score(20.5 + place, name=each, deviation=1.25, p=0.01) for each in metrics),
                num_runs=3,
            )
            for place, name in enumerate(names)
        )
    )


@pytest.mark.parametrize("num_metrics", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [60, WIDTH, 140])
def test_every_column_is_printed_once_within_the_width(num_metrics, width):
    compared = five(num_metrics)
    tables = shown(compared, width=width).partition("tested on")[0]
    assert max(map(len, tables.splitlines())) <= width
    for column in make_columns(compared):
        assert tables.count(f" {column.name}") == 1
    parts = tables.count("system")
    for each in compared.systems:
        assert tables.count(each.name) == parts


def test_narrow_comparison_is_one_table():
    compared = comparison(system("one", score(20.0)), system("two", score(21.0)))
    assert shown(compared).count("system") == 1


def test_best_score_is_bold_and_marked():
    compared = comparison(system("one", score(20.0)), system("two", score(21.0, p=0.01)))
    text = shown(compared, terminal=True)
    assert "\x1b[1m21.00*\x1b[0m" in text
    assert "\x1b[1m20.00" not in text


def test_names_are_not_markup():
    compared = comparison(
        system("[red]one[/red]", score(20.0), training_costs=cost(flops=None)),
        failures=[Failure("[b]two", "runs/two", "[/b] is no number")],
    )
    text = shown(compared)
    assert "[red]one[/red]" in text
    assert "failed: [b]two (runs/two): [/b] is no number" in text
