import math

from heedful.comparison.results import RunStatistics
from heedful.comparison.tables import (
    footnotes,
    make_columns,
    render_differences,
    render_length_table,
    render_table,
)
from heedful.evaluation.significance import Difference
from tests.example_comparisons import bare_system, example_comparison, example_system


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


def test_best_cell_is_bold_and_followed_by_its_mark():
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
