"""The lab: what its pages tell of each claim is what its experiments measure."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch
import typer
from typer.testing import CliRunner

from experiments import cost, gradients
from heedful.attention.choices.attention import AttentionConfig
from tests.documents.markdown import ROOT, links

LAB = ROOT / "docs" / "lab"
NAMESPACE = "{http://www.w3.org/2000/svg}"
FEW = {"steps": 50, "seeds": 1}


def page(name):
    return (LAB / f"{name}.md").read_text(encoding="utf-8")


def tables(text):
    """The tables of a page or of what was printed: for each, its cells by row and column."""
    found = re.findall(r"(?:^\|.*\|\n)+", text + "\n", re.MULTILINE)
    return [table_of(block.splitlines()) for block in found]


def table_of(lines):
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {cells[0]: dict(zip(names[1:], cells[1:], strict=True)) for cells in rows}


def drawn(picture):
    """The points of every line of a chart, by name."""
    root = ElementTree.parse(picture).getroot()
    return {
        group.get("data-name"): {
            float(mark.get("data-x")): float(mark.get("data-y"))
            for mark in group.iter(f"{NAMESPACE}path")
            if "data-x" in mark.attrib
        }
        for group in root.iter(f"{NAMESPACE}g")
    }


def subject(name):
    return next(each for each in gradients.CLAIM + gradients.BEGINNINGS if each.name == name)


# --- pages and pictures --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gradients", "cost"])
def test_every_picture_of_a_page_is_there_and_is_described(name):
    pictures = [LAB / target for target in links(page(name)) if target.endswith(".svg")]
    assert len(pictures) == 2
    for picture in pictures:
        assert ElementTree.parse(picture).getroot().find(f"{NAMESPACE}desc").text


@pytest.mark.parametrize("name", ["gradients", "cost"])
def test_the_command_of_a_page_explains_itself(name):
    (command,) = set(re.findall(r"^python -m (experiments\.\w+)$", page(name), re.MULTILINE))
    outcome = subprocess.run(
        [sys.executable, "-m", command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert f"Example: python -m {command}" in outcome.stdout


def test_the_table_of_gradients_says_what_its_chart_shows():
    pictures = ["gradients", "gradients-beginnings"]
    for table, name in zip(tables(page("gradients")), pictures, strict=True):
        lines = drawn(LAB / "images" / f"{name}.svg")
        assert list(lines) == list(table)
        for line, cells in table.items():
            told = {float(k): float(v) for k, v in cells.items() if k.isdigit()}
            shared = told.keys() & lines[line].keys()
            assert len(shared) >= 6
            assert {k: told[k] for k in shared} == {
                k: pytest.approx(lines[line][k], rel=0.051) for k in shared
            }


def test_the_tables_of_cost_say_what_their_charts_show():
    _, counted, _, timed = tables(page("cost"))
    for table, name, unit in [(counted, "cost-operations", 1e6), (timed, "cost-time", 1)]:
        lines = drawn(LAB / "images" / f"{name}.svg")
        del table["last doubling"]
        for line, points in lines.items():
            told = {float(length): unit * float(cells[line]) for length, cells in table.items()}
            assert told == {k: pytest.approx(v, rel=0.04) for k, v in points.items()}


# --- gradients -----------------------------------------------------------------------------


def test_a_row_of_gradients_can_be_measured_again():
    norms = gradients.measure(subject("rnn"), steps=100, seeds=5)
    told = tables(page("gradients"))[0]["rnn"]
    assert [f"{norms[distance]:.1e}" for distance in (1, 5, 20, 100)] == [
        told[str(distance)] for distance in (1, 5, 20, 100)
    ]


def test_gradients_are_products_of_the_slopes_of_single_steps():
    torch.manual_seed(0)
    cell = subject("rnn").cell.build(input_size=gradients.SIZE, hidden_size=gradients.SIZE)
    AttentionConfig().build(query_size=gradients.SIZE, memory_size=gradients.SIZE)
    inputs = torch.randn(gradients.SEQUENCES, 11, gradients.SIZE).double()
    directions = torch.randn(gradients.SEQUENCES, 1, gradients.SIZE).double().squeeze(1)
    slopes = directions / directions.norm(dim=-1, keepdim=True)
    of_input, of_state, *biases = (weight.detach().double() for weight in cell.weights)
    states = [torch.zeros(gradients.SEQUENCES, gradients.SIZE).double()]
    for column in inputs.unbind(dim=1):
        told = column @ of_input.T + states[-1] @ of_state.T + sum(biases)
        states.append(told.tanh())
    norms = []
    for state in reversed(states[1:]):
        within = slopes * (1 - state**2)
        norms.append((within @ of_input).norm(dim=-1).log().mean().exp().item())
        slopes = within @ of_state
    measured = gradients.measure(subject("rnn"), steps=10, seeds=1)
    assert measured == pytest.approx([norm / norms[0] for norm in norms])


def test_without_attention_gradients_vanish_most_in_a_simple_cell():
    simple, gru, lstm = (
        gradients.measure(subject(name), **FEW)[50] for name in ("rnn", "gru", "lstm")
    )
    assert simple < 1e-14
    assert 1000 * simple < min(gru, lstm) < max(gru, lstm) < 1e-8


def test_through_attention_gradients_do_not_vanish():
    for name in gradients.CELLS:
        direct, attended = (
            gradients.measure(subject(each), **FEW) for each in (name, f"attention over {name}")
        )
        assert attended[20] > (1000 if name == "rnn" else 100) * direct[20]
        assert attended[40] == pytest.approx(attended[20], rel=0.2)
        assert 0.5 / 51 < attended[0] < 2 / 51, "at first, all places have the same weight"


def test_how_a_cell_begins_matters_as_much_as_its_gates():
    norms = {each.name: gradients.measure(each, **FEW)[50] for each in gradients.BEGINNINGS}
    assert norms["rnn, orthogonal"] > 1e4 * norms["rnn"]
    assert norms["lstm, forget bias 1"] > 1e4 * norms["lstm"]
    assert min(norms["lstm, gates open"], norms["gru, gates open"]) > 0.03


# --- cost ----------------------------------------------------------------------------------


def by_hand(source_length, target_length):
    """What matrix products cost: two operations for each multiplication."""
    size, direction, context = cost.SIZE, cost.SIZE // 2, cost.SIZE
    read = 2 * 3 * direction * (size + direction)  # two directions of three gates
    write = 3 * size * (size + context + size)  # the cell
    tell = (size + context + size) * size + size * cost.VOCABULARY
    bridge = context * size
    without = source_length * read + target_length * (write + tell) + bridge
    keys = source_length * context * size
    pairs = source_length * target_length * (size + context)
    return tuple(2 * cost.BATCH * each for each in (without, keys, pairs))


@pytest.mark.parametrize("lengths", [(1, 1), (7, 3), (20, 40)])
def test_operations_are_those_counted_by_hand(lengths):
    assert cost.operations(*lengths) == by_hand(*lengths)


@pytest.mark.parametrize("number", [1, 2])
def test_the_operations_of_the_page_are_those_counted_by_hand(number):
    table = tables(page("cost"))[number]
    table.pop("last doubling", None)
    for lengths, cells in table.items():
        sides = [int(length) for length in lengths.split(",")]
        without, keys, pairs = by_hand(*(sides * 2)[:2])
        counts = {
            "without attention": without,
            "keys made ready": keys,
            "scores and contexts": pairs,
            "whole, with attention": without + keys + pairs,
        }
        assert cells == {name: f"{counts[name] / 1e6:.3f}" for name in cells}


def test_attention_grows_with_the_product_of_lengths_and_the_rest_with_their_sum():
    one, doubled = cost.operations(30, 30), cost.operations(60, 60)
    assert doubled.pairs == 4 * one.pairs
    assert doubled.without == pytest.approx(2 * one.without, rel=0.01)
    assert cost.operations(60, 30).pairs == cost.operations(30, 60).pairs == 2 * one.pairs


def test_what_attention_takes_is_not_counted_where_none_is_asked():
    model = cost.transducer(None)
    assert not [name for name, _ in model.named_modules() if "attention" in name]


# --- the commands --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "options", "pictures", "rows"),
    [
        (gradients, ["--steps", "20", "--seeds", "1"], ["gradients", "gradients-beginnings"], 6),
        (cost, ["--longest", "20", "--repeats", "1"], ["cost-operations", "cost-time"], 3),
    ],
    ids=["gradients", "cost"],
)
def test_an_experiment_prints_tables_and_draws_them(tmp_path, experiment, options, pictures, rows):
    app = typer.Typer()
    app.command()(experiment.main)
    outcome = CliRunner().invoke(app, ["--out", str(tmp_path), *options])
    assert outcome.exit_code == 0, outcome.output
    assert f"torch {torch.__version__}" in outcome.output
    assert len(tables(outcome.stdout)[0]) == rows
    for name in pictures:
        picture = tmp_path / "images" / f"{name}.svg"
        assert f"wrote {picture}" in outcome.output
        assert all(drawn(picture).values())


def test_what_one_step_keeps_is_the_slope_of_a_fading_line():
    fading = [0.8**distance for distance in range(101)]
    assert gradients.kept_per_step(fading) == pytest.approx(0.8)
