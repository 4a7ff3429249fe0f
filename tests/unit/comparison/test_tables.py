import csv
import io
import math
import re

import pytest

from heedful.comparison.results import Failure, RunStatistics
from heedful.comparison.tables import (
    comparison_notes,
    footnotes,
    format_scientific,
    make_columns,
    render_differences,
    render_length_table,
    render_table,
    to_csv,
    to_latex,
    to_markdown,
)
from heedful.evaluation.significance import Difference
from tests.example_comparisons import bare_system, example_comparison, example_system
from tests.unit.comparison.format_examples import comparison, cost, score, system

HOSTILE = r"a|b_c*d & <i>50% #1$ \x{y}~^`[z]"


def several():
    return comparison(
        system("dot", score(20.25, deviation=0.5), num_runs=2),
        system("additive", score(21.5, deviation=0.25, p=0.01), training_costs=cost(flops=None)),
        failures=[Failure("bad", "runs/bad-0", "no number")],
        budget="2 minutes",
    )


def test_csv_round_trip_is_exact():
    result = several()
    rows = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert [row["system"] for row in rows] == ["dot", "additive"]
    for row, expected in zip(rows, result.systems, strict=True):
        (bleu,) = expected.scores
        assert int(row["runs"]) == len(expected.runs)
        assert float(row["BLEU"]) == bleu.stats.mean
        assert float(row["BLEU std"]) == bleu.stats.std
        assert float(row["seconds"]) == expected.cost.training_seconds.mean
        assert float(row["memory"]) == expected.cost.peak_memory.mean
        assert float(row["steps"]) == expected.cost.steps.mean
        assert int(row["parameters"]) == expected.cost.num_parameters
        assert float(row["sentences/s"]) == expected.cost.sentences_per_second.mean
        assert float(row["tokens/s"]) == expected.cost.tokens_per_second.mean
    assert [row["training FLOPs"] for row in rows] == ["230000000000000.0", ""]
    assert [row["BLEU p"] for row in rows] == ["", "0.01"]
    assert {row["seconds std"] for row in rows} == {""}


def test_csv_quotes_any_name():
    (row,) = csv.DictReader(io.StringIO(to_csv(comparison(system('a,"b"\nc', score(1.0))))))
    assert row["system"] == 'a,"b"\nc'


def test_markdown_has_every_column_and_note():
    result = several()
    table, _, below = to_markdown(result).partition("\n\n")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert lines[0] == ["system", *(column.name for column in make_columns(result))]
    assert lines[1] == ["---", *["---:"] * len(make_columns(result))]
    assert {len(line) for line in lines} == {1 + len(make_columns(result))}
    assert lines[2][:3] == ["dot", "20.25 +- 0.50", "2.3e14"]
    assert lines[3][:3] == ["additive", r"**21.50 +- 0.25**\*", "-"]
    assert below.splitlines() == [
        "- tested on 3 pairs of a and b",
        "- budget of each run: 2 minutes",
        "- means +- standard deviations of 1 to 2 runs",
        r"- \* differs from dot with p \< 0.05, by approximate randomization (10000 trials)",
        "- failed: bad (runs/bad-0): no number",
    ]


def test_markdown_escapes_any_name():
    table, _, _ = to_markdown(comparison(system(HOSTILE, score(1.0)))).partition("\n\n")
    header, _, row = table.splitlines()
    bare = re.sub(r"\\.", "", row)  # what is left when signs that were escaped are gone
    assert bare.count("|") == header.count("|")
    assert not set("<>*_`[]#&~") & set(bare.split("|")[1])
    assert re.sub(r"\\(.)", r"\1", row).startswith(f"| {HOSTILE} | ")


def test_latex_table_uses_booktabs():
    lines = to_latex(several()).splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs}"
    assert all(line.startswith("% ") for line in lines[:6])
    assert lines[6:8] == [r"\begin{tabular}{lrrrrrrr}", r"\toprule"]
    assert lines[8].startswith("system & BLEU & training FLOPs & seconds & memory & ")
    assert lines[9] == r"\midrule"
    assert lines[10].startswith(r"dot & 20.25 $\pm$ 0.50 & $2.3 \cdot 10^{14}$ & 120 & 512 MiB & ")
    assert lines[11].startswith(r"additive & \textbf{21.50 $\pm$ 0.25}$^{*}$ & -- & ")
    assert lines[12:] == [r"\bottomrule", r"\end{tabular}"]


def test_latex_power_of_ten_can_be_bold():
    systems = [
        system("a", score(1.0)),
        system("b", score(1.0), training_costs=cost(flops=9e13)),
    ]
    *_, row, _, _ = to_latex(comparison(*systems)).splitlines()
    assert r" & $\mathbf{9.0 \cdot 10^{13}}$ & " in row


def test_latex_escapes_any_name():
    result = to_latex(comparison(system(HOSTILE, score(1.0))))
    row = result.splitlines()[-3]
    assert row.startswith(
        r"a\textbar{}b\_c*d \& \textless{}i\textgreater{}50\% \#1\$ "
        r"\textbackslash{}x\{y\}\textasciitilde{}\textasciicircum{}`[z] & "
    )
    assert len(re.findall(r"(?<!\\)&", row)) == len(
        make_columns(comparison(system("a", score(1.0))))
    )


def test_latex_failure_of_several_lines_stays_a_comment():
    failure = Failure("bad", "runs/bad-0", "one\n\\input{two}")
    result = to_latex(comparison(system("a", score(1.0)), failures=[failure]))
    assert r"% failed: bad (runs/bad-0): one \input{two}" in result.splitlines()


def column(result, name):
    return next(each for each in make_columns(result) if each.name == name)


def test_columns_are_metrics_and_then_costs():
    result = comparison(system("one", score(20.0), score(0.5, name="TER", better="lower")))
    assert [each.name for each in make_columns(result)] == [
        "BLEU",
        "TER",
        "training FLOPs",
        "seconds",
        "memory",
        "parameters",
        "sentences/s",
        "tokens/s",
    ]
    assert [[cell.text for cell in each.cells] for each in make_columns(result)] == [
        ["20.00"],
        ["0.500"],
        ["2.3e14"],
        ["120"],
        ["512 MiB"],
        ["1.50 M"],
        ["10"],
        ["110"],
    ]


@pytest.mark.parametrize(("better", "best"), [("higher", "two"), ("lower", "one")])
def test_best_cell_follows_the_direction(better, best):
    systems = [
        system(name, score(value, better=better)) for name, value in (("one", 20.0), ("two", 21.0))
    ]
    (cells,) = [each.cells for each in make_columns(comparison(*systems)) if each.name == "BLEU"]
    assert [each.name for each, cell in zip(systems, cells, strict=True) if cell.is_best] == [best]


def test_numbers_with_equal_text_are_equally_best():
    values = (20.0, 21.001, 21.004)
    systems = [system(str(value), score(value, deviation=value - 20)) for value in values]
    cells = column(comparison(*systems), "BLEU").cells
    assert [cell.text for cell in cells] == ["20.00 +- 0.00", "21.00 +- 1.00", "21.00 +- 1.00"]
    assert [cell.is_best for cell in cells] == [False, True, True]


def test_equal_numbers_have_no_best():
    for values in ((20.0,), (20.0, 20.0), (20.001, 20.002)):
        result = comparison(*(system(str(place), score(v)) for place, v in enumerate(values)))
        assert not any(cell.is_best for each in make_columns(result) for cell in each.cells)


def test_significant_difference_is_marked():
    systems = [system(str(p), score(21.0, p=p)) for p in (None, 0.05, 0.049, 1.0)]
    marks = [cell.mark for cell in column(comparison(*systems), "BLEU").cells]
    assert marks == ["", "", "*", ""]


def test_unknown_cost_is_a_dash_and_never_best():
    silent = cost(seconds=None, flops=None, memory=None)
    systems = [
        system("silent", score(20.0), training_costs=silent),
        system("one", score(20.0)),
        system("two", score(20.0), training_costs=cost(flops=1e14, seconds=99.94, memory=2e9)),
    ]
    result = comparison(*systems)
    for name in ("training FLOPs", "seconds", "memory"):
        first, *others = column(result, name).cells
        assert first == ("-", None, False, "")
        assert [cell.is_best for cell in others] == [name == "memory", name != "memory"]
    assert [cell.text for cell in column(result, "seconds").cells] == ["-", "120", "99.9"]
    assert column(result, "memory").cells[2].text == "1.86 GiB"


def test_small_numbers_have_more_digits():
    training_costs = cost(parameters=19_532, speed=0.5)
    result = comparison(
        system("one", score(1.23456, name="bits per character"), training_costs=training_costs)
    )
    texts = {each.name: each.cells[0].text for each in make_columns(result)}
    assert texts["bits per character"] == "1.235"
    assert texts["parameters"] == "19,532"
    assert texts["sentences/s"] == "0.5"
    assert texts["tokens/s"] == "5.5"


@pytest.mark.parametrize(
    ("number", "text"), [(2.3e19, "2.3e19"), (9.96e14, "1.0e15"), (0.0, "0.0e0")]
)
def test_scientific_format(number, text):
    assert format_scientific(number) == text


def rows(table):
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def test_html_columns_are_those_of_the_other_tables():
    comparison = example_comparison(3)
    table = render_table(comparison)
    report = make_columns(comparison)
    assert rows(table)[0] == ["system", *(column.name for column in report)]
    for place, row in enumerate(list(table.iter("tr"))[1:]):
        values = [cell.get("data-value") for cell in list(row)[1:]]
        assert values == [repr(column.cells[place].value) for column in report]
        assert [header.get("scope") for header in row.iter("th")] == ["row"]


def test_best_cell_is_bold_and_followed_by_the_mark():
    table = render_table(example_comparison(3))
    assert [bold.text for bold in table.iter("b")][:4] == ["1.1e13", "1,000", "800", "8,000"]
    best = [list(row)[1] for row in table.iter("tr")][-1]
    assert "".join(best.itertext()) == "24.10* \u00b1 0.10"
    assert best.find("b").text == "24.10"


def test_unknown_number_is_a_dash_without_value():
    systems = [bare_system(example_system(0)), example_system(1)]
    odd = systems[1].scores[0]._replace(stats=RunStatistics(math.inf))
    systems[1] = systems[1]._replace(scores=[odd, systems[1].scores[1]])
    table = render_table(example_comparison(systems=systems))
    _, first, second = table.iter("tr")
    operations = list(first)[3]
    assert (operations.text, operations.get("data-value")) == ("-", "")
    assert list(second)[1].get("data-value") == ""


def test_system_header_has_the_marker_of_the_plots():
    table = render_table(example_comparison(12))
    marks = [(path.get("class"), path.get("d")) for path in table.iter("path")]
    assert len(set(marks)) == 12
    assert [button.get("data-name") for button in table.iter("button")][-1] == "system-11"
    many = render_table(example_comparison(31, seeds=1))
    assert len(list(many.iter("path"))) == 30


def test_footnotes_explain_signs_and_test():
    systems = [example_system(place) for place in range(2)]
    systems = [
        each._replace(scores=[each.scores[0], each.scores[1]._replace(direction="lower")])
        for each in systems
    ]
    assert list(footnotes(example_comparison(systems=systems)))[1:] == [
        "Lower is better: chrF.",
        "\u00b1: one standard deviation over the runs of a system.",
        "*: differs from system-0 with p < 0.05, by approximate randomization (10,000 trials); p "
        "is the probability of a difference at least as large between two equally good systems.",
    ]
    bare = example_comparison(systems=[bare_system(example_system(0, seeds=1))])
    assert list(footnotes(bare)) == ["Bold: the best of a column. Click a header to sort by it."]


def test_footnote_is_shown_if_no_system_differs():
    system = example_system(1)
    alike = [each._replace(difference=Difference(0.0, 1.0)) for each in system.scores]
    comparison = example_comparison(systems=[example_system(0), system._replace(scores=alike)])
    assert list(footnotes(comparison))[-1].startswith("No system differs from system-0 with p < ")


def test_differences_have_p_values_and_intervals():
    assert rows(render_differences(example_comparison(2))) == [
        ["system", "BLEU", "chrF"],
        ["system-0", "baseline [19.10, 21.10]", "baseline [39.20, 41.20]"],
        ["system-1", "+2.10, p = 0.0123* [21.10, 23.10]", "+24.20, p = 0.0123* [43.20, 45.20]"],
    ]
    bare = [bare_system(example_system(place)) for place in range(2)]
    assert render_differences(example_comparison(systems=bare)) is None
    mixed = [example_system(0), bare_system(example_system(1))]
    assert rows(render_differences(example_comparison(systems=mixed)))[2] == ["system-1", "-", "-"]


def test_differences_without_intervals():
    systems = [
        system._replace(scores=[each._replace(interval=None) for each in system.scores])
        for system in example_comparison(2).systems
    ]
    result = render_differences(example_comparison(systems=systems))
    assert result.get("aria-label") == "Differences from system-0, with p-values"
    assert rows(result)[2] == ["system-1", "+2.10, p = 0.0123*", "+24.20, p = 0.0123*"]


def test_length_table_has_sizes_and_bold_best_scores():
    table = render_length_table(example_comparison(2))
    assert rows(table) == [
        ["system", "1-5 n=600", "6-10 n=300", "11-15 n=100"],
        ["system-0", "19.10", "22.10", "24.10"],
        ["system-1", "21.10", "24.10", "26.10"],
    ]
    assert [bold.text for bold in table.iter("b")] == ["21.10", "24.10", "26.10"]


def test_length_table_of_equal_scores_has_no_best():
    systems = [example_system(0), example_system(0, name="twin"), bare_system(example_system(2))]
    table = render_length_table(example_comparison(systems=systems))
    assert list(table.iter("b")) == []
    assert rows(table)[-1] == ["system-2", "-", "-", "-"]
    lower = [example_system(place) for place in range(2)]
    lower = [s._replace(scores=[s.scores[0]._replace(direction="lower")]) for s in lower]
    bold = render_length_table(example_comparison(systems=lower)).iter("b")
    assert [each.text for each in bold] == ["19.10", "22.10", "24.10"]


def test_no_length_table_without_lengths():
    assert render_length_table(example_comparison(systems=[bare_system(example_system(0))])) is None


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
