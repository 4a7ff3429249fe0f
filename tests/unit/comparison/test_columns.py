import pytest

from heedful.comparison.tables import format_scientific, make_columns
from tests.unit.comparison.format_examples import comparison, cost, score, system


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
