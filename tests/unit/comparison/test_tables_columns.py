import pytest

from heedful.comparison.tables import format_scientific, make_columns
from tests.unit.comparison.numbers import comparison, cost, judged, system


def column(found, name):
    return next(each for each in make_columns(found) if each.name == name)


def test_quality_comes_first_and_costs_follow():
    found = comparison(system("one", judged(20.0), judged(0.5, name="TER", better="lower")))
    assert [each.name for each in make_columns(found)] == [
        "BLEU",
        "TER",
        "training FLOPs",
        "seconds",
        "memory",
        "parameters",
        "sentences/s",
        "tokens/s",
    ]
    assert [[cell.text for cell in each.cells] for each in make_columns(found)] == [
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
def test_the_best_is_the_better_one_by_the_metric(better, best):
    systems = [
        system(name, judged(value, better=better)) for name, value in (("one", 20.0), ("two", 21.0))
    ]
    (cells,) = [each.cells for each in make_columns(comparison(*systems)) if each.name == "BLEU"]
    assert [each.name for each, cell in zip(systems, cells, strict=True) if cell.is_best] == [best]


def test_numbers_that_read_alike_are_equally_good():
    values = (20.0, 21.001, 21.004)
    systems = [system(str(value), judged(value, deviation=value - 20)) for value in values]
    cells = column(comparison(*systems), "BLEU").cells
    assert [cell.text for cell in cells] == ["20.00 +- 0.00", "21.00 +- 1.00", "21.00 +- 1.00"]
    assert [cell.is_best for cell in cells] == [False, True, True]


def test_none_is_the_best_of_equals_nor_of_one():
    for values in ((20.0,), (20.0, 20.0), (20.001, 20.002)):
        found = comparison(*(system(str(place), judged(v)) for place, v in enumerate(values)))
        assert not any(cell.is_best for each in make_columns(found) for cell in each.cells)


def test_a_significant_difference_is_marked():
    systems = [system(str(p), judged(21.0, p=p)) for p in (None, 0.05, 0.049, 1.0)]
    marks = [cell.mark for cell in column(comparison(*systems), "BLEU").cells]
    assert marks == ["", "", "*", ""]


def test_what_was_not_told_is_a_dash_and_never_the_best():
    silent = cost(seconds=None, operations=None, memory=None)
    systems = [
        system("silent", judged(20.0), training_costs=silent),
        system("one", judged(20.0)),
        system(
            "two", judged(20.0), training_costs=cost(operations=1e14, seconds=99.94, memory=2e9)
        ),
    ]
    found = comparison(*systems)
    for name in ("training FLOPs", "seconds", "memory"):
        first, *others = column(found, name).cells
        assert first == ("-", None, False, "")
        assert [cell.is_best for cell in others] == [name == "memory", name != "memory"]
    assert [cell.text for cell in column(found, "seconds").cells] == ["-", "120", "99.9"]
    assert column(found, "memory").cells[2].text == "1.86 GiB"


def test_small_numbers_keep_digits_that_tell():
    training_costs = cost(parameters=19_532, speed=0.5)
    found = comparison(
        system("one", judged(1.23456, name="bits per character"), training_costs=training_costs)
    )
    texts = {each.name: each.cells[0].text for each in make_columns(found)}
    assert texts["bits per character"] == "1.235"
    assert texts["parameters"] == "19,532"
    assert texts["sentences/s"] == "0.5"
    assert texts["tokens/s"] == "5.5"


@pytest.mark.parametrize(
    ("number", "text"), [(2.3e19, "2.3e19"), (9.96e14, "1.0e15"), (0.0, "0.0e0")]
)
def test_large_numbers_are_written_by_powers(number, text):
    assert format_scientific(number) == text
