"""The lab: what its pages tell of each claim is what its experiments measure."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import sacrebleu
import torch
import typer
from typer.testing import CliRunner

from experiments import copying, cost, gradients, length
from heedful.attention.config import AttentionConfig
from heedful.recipes import load_recipe
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


def run(experiment, *options):
    app = typer.Typer()
    app.command()(experiment.main)
    return CliRunner().invoke(app, list(options))


def subject(name):
    return next(each for each in gradients.CLAIM + gradients.BEGINNINGS if each.name == name)


# --- pages and pictures --------------------------------------------------------------------


def test_every_page_of_the_lab_is_in_its_list():
    pages = {path.name for path in LAB.glob("*.md")} - {"README.md"}
    assert pages == {target for target in links(page("README")) if target.endswith(".md")}


@pytest.mark.parametrize("name", ["gradients", "cost", "length"])
def test_every_picture_of_a_page_is_there_and_is_described(name):
    pictures = [LAB / target for target in links(page(name)) if target.endswith(".svg")]
    assert len(pictures) == 2
    for picture in pictures:
        assert ElementTree.parse(picture).getroot().find(f"{NAMESPACE}desc").text


@pytest.mark.parametrize("name", ["gradients", "cost", "length"])
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


def test_the_tables_of_length_say_what_their_charts_show():
    pictures = ["length", "length-tokens"]
    for table, name in zip(tables(page("length"))[1:3], pictures, strict=True):
        lines = drawn(LAB / "images" / f"{name}.svg")
        assert lines.pop("longest learned from") == {16: 100}
        assert list(lines) == list(table) == list(copying.SYSTEMS)
        for line, cells in table.items():
            told = {float(k): float(v) for k, v in cells.items() if k.isdigit()}
            assert len(told) == len(length.TOLD)
            assert told == {k: pytest.approx(lines[line][k], abs=0.51) for k in told}


@pytest.mark.parametrize("name", ["multi30k", "transformers"])
def test_every_picture_of_a_page_of_systems_is_there_and_is_described(name):
    targets = [target for target in links(page(name)) if target.endswith(".svg")]
    assert len(targets) >= 4
    assert set(targets) == {f"images/{path.name}" for path in LAB.glob(f"images/{name}-*.svg")}
    for target in targets:
        assert ElementTree.parse(LAB / target).getroot().find(f"{NAMESPACE}desc").text


@pytest.mark.parametrize("name", ["multi30k", "transformers"])
def test_the_tables_of_systems_against_length_say_what_their_charts_show(name):
    (table,) = [each for each in tables(page(name)) if "all" in each]
    del table["all"]
    for line, points in drawn(LAB / "images" / f"{name}-length.svg").items():
        told = {span: cells[line] for span, cells in table.items() if cells[line] != "too few"}
        middles = [sum(map(int, span.split("-"))) / 2 for span in told]
        assert dict(zip(middles, map(float, told.values()), strict=True)) == {
            middle: pytest.approx(value, abs=0.051) for middle, value in points.items()
        }


def systems_of(name):
    """The first table of a page of systems: their scores, by recipe."""
    return {recipe.strip("`"): cells for recipe, cells in tables(page(name))[0].items()}


def test_recurrent_systems_have_the_same_scores_on_both_of_their_pages():
    alone, beside = systems_of("multi30k"), systems_of("transformers")
    shared = ["BLEU", "chrF", "minutes", "steps", "best validation loss"]
    assert len(alone) == 3
    for recipe, cells in alone.items():
        assert cells == {column: beside[recipe][column] for column in shared}


def test_systems_have_as_many_weights_as_their_table_says():
    for recipe, cells in systems_of("transformers").items():
        with torch.device("meta"):
            model = load_recipe(recipe).model.build(source_vocab_size=8000, target_vocab_size=8000)
        count = sum(weight.numel() for weight in model.parameters())
        assert cells["weights"] == f"{count / 1e6:.1f} M"


def test_best_losses_are_the_lowest_of_the_chart():
    lines = drawn(LAB / "images" / "multi30k-curves.svg")
    for points, cells in zip(lines.values(), systems_of("multi30k").values(), strict=True):
        told, _, where = cells["best validation loss"].partition(" at ")
        best = min(points, key=points.get)
        assert float(told) == pytest.approx(points[best], abs=0.00051)
        assert where == ("the last step" if best == max(points) else f"step {best:,.0f}")
        assert cells["steps"] == f"{max(points):,.0f}"


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


# --- length --------------------------------------------------------------------------------


def test_systems_have_about_as_many_parameters():
    counts = {
        system: length.num_parameters(copying.transducer(system, copying.widest(system)))
        for system in copying.SYSTEMS
    }
    assert max(counts.values()) <= copying.PARAMETERS
    assert min(counts.values()) > 0.95 * copying.PARAMETERS


@pytest.mark.parametrize("system", copying.SYSTEMS)
def test_a_system_asks_attention_or_has_none(system):
    names = [name for name, _ in copying.transducer(system, 4).named_modules()]
    assert any("attention" in name for name in names) == (system in copying.ATTENDING)


def test_words_are_to_be_copied():
    batch = copying.words(5, 7, torch.Generator().manual_seed(0))
    assert torch.equal(batch.sources.tokens, batch.targets)
    assert torch.equal(batch.decoder_inputs[:, 1:], batch.targets[:, :-1])
    assert set(batch.sources.lengths.tolist()) == {8}
    names = [copying.NAMES[token] for token in batch.decoder_inputs[:, 1:].flatten().tolist()]
    assert len(names) == 35
    assert all("a" <= name <= "z" for name in names)


def test_systems_are_tested_on_the_same_words_of_every_length():
    one, other = (
        copying.write(copying.transducer(system, 4).eval(), longest=3, tested=2)
        for system in ("final-state", "attend-then-step")
    )
    assert one.sources == other.sources == one.references == other.references
    assert [len(source.split()) for source in one.sources] == [1, 1, 2, 2, 3, 3]
    assert len(one.outputs) == 6


def test_tokens_are_right_where_the_reference_has_them():
    outputs, references = ["a b c", "b a", "a b c d", ""], ["a x c", "a b", "a b", "a"]
    assert length.tokens_right(outputs, references).value == 100 * (2 + 0 + 2 + 0) / 8


def test_reach_ends_before_the_first_length_that_is_not_good():
    assert length.reach({1: 100, 2: 90, 3: 89, 4: 100}) == 2
    assert length.reach({1: 50, 2: 100}) == 0
    assert length.reach({1: 100, 2: 95}) == 2


def test_curves_are_averaged_length_by_length():
    assert length.mean([{1: 100, 2: 0}, {1: 50, 2: 10}]) == {1: 75, 2: 5}


@pytest.mark.learning
def test_with_attention_long_words_are_copied_and_without_they_are_not():
    options = {"steps": 1000, "rate": length.RATE, "seed": 0}
    with_it, without = (
        length.curve(
            copying.write(copying.learned(system, **options), longest=16, tested=50),
            length.exact_match,
        )
        for system in ("attend-then-step", "final-state")
    )
    assert min(with_it.values()) >= 95
    assert min(without[each] for each in (1, 2, 3)) >= 95
    assert max(without[each] for each in (12, 14, 16)) <= 10


# --- length, of texts ----------------------------------------------------------------------

SOURCES = ["eins", "eins zwei", "eins zwei drei", "vier funf sechs", "eins zwei drei vier funf"]
REFERENCES = [
    *("one", "one two", "one two three four", "five six seven eight"),
    "one two three four five six seven",
]
GOOD = ["one", "one two", "one two three four", "five six seven nine", "seven six five four"]
POOR = ["two", "two one", "one two five four", "one six two eight", "one"]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"src": SOURCES, "ref": REFERENCES, "good": GOOD, "poor": POOR, "short": GOOD[1:]}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "empty").touch()
    return tmp_path


def run_texts(*outputs, sources="src", references="ref", more=()):
    given = [part for each in outputs for part in ("--outputs", each)]
    files = ["--sources", sources, "--references", references]
    return run(length, "--out", ".", *files, *given, *more)


def test_texts_are_measured_by_the_length_of_their_sources(texts):
    outcome = run_texts("good=good", "poor=poor", more=["--width", "2", "--least", "2"])
    assert outcome.exit_code == 0, outcome.output
    expected = {
        name: [
            sacrebleu.corpus_bleu(outputs[part], [REFERENCES[part]]).score
            for part in (slice(0, 2), slice(2, 4), slice(0, 5))
        ]
        for name, outputs in {"good": GOOD, "poor": POOR}.items()
    }
    (table,) = tables(outcome.stdout)
    assert list(table) == ["1-2", "3-4", "5-6", "all"]
    assert [cells["sentences"] for cells in table.values()] == ["2", "2", "1", "5"]
    for name, (short, long, whole) in expected.items():
        assert [cells[name] for cells in table.values()] == [
            *(f"{short:.1f}", f"{long:.1f}", "too few", f"{whole:.1f}")
        ]
        points = drawn(texts / "images" / "length-bleu.svg")[name]
        assert points == {1.5: pytest.approx(short, rel=1e-5), 3.5: pytest.approx(long, rel=1e-5)}
    assert "BLEU, nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in outcome.stdout


def test_the_chart_of_texts_can_be_given_a_name(texts):
    outcome = run_texts("good=good", more=["--least", "1", "--picture", "mine"])
    assert outcome.exit_code == 0, outcome.output
    assert (texts / "images" / "mine.svg").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"outputs": ["good=good", "cut=short"]},
            "short: 4 lines, but src has 5\n  line n of all files must belong together\n",
        ),
        (
            {"outputs": ["good"]},
            "--outputs: 'good' is not NAME=FILE\n  name what wrote the file\n",
        ),
        (
            {"outputs": []},
            "experiments.length: some files are missing\n"
            "  give --sources, --references and --outputs together\n",
        ),
        (
            {"outputs": ["good=good"], "sources": "empty"},
            "on_empty: holds no lines\n  give a file with text in it\n",
        ),
        (
            {"outputs": ["good=godo"]},
            "godo: no such file; did you mean 'good'?\n  check the path\n",
        ),
    ],
)
@pytest.mark.usefixtures("texts")
def test_texts_that_cannot_be_measured_are_refused(options, message):
    outcome = run_texts(*options.pop("outputs"), **options)
    assert (outcome.exit_code, outcome.stderr) == (2, message)


def test_a_system_that_does_not_exist_is_refused():
    outcome = run(length, "--only", "final-stat")
    assert outcome.exit_code == 2
    assert outcome.stderr == (
        "--only: no system is called 'final-stat'; did you mean 'final-state'?\n"
        "  choose from: attend-then-step, constant-context, final-state, step-then-attend\n"
    )


# --- the commands --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "options", "pictures", "rows"),
    [
        (
            gradients,
            ["--steps", "20", "--num-seeds", "1"],
            ["gradients", "gradients-beginnings"],
            6,
        ),
        (cost, ["--longest", "20", "--repeats", "1"], ["cost-operations", "cost-time"], 3),
        (
            length,
            ["--steps", "2", "--num-seeds", "1", "--tested", "1", "--only", "final-state"],
            ["length", "length-tokens"],
            1,
        ),
    ],
    ids=["gradients", "cost", "length"],
)
def test_an_experiment_prints_tables_and_draws_them(tmp_path, experiment, options, pictures, rows):
    outcome = run(experiment, "--out", str(tmp_path), *options)
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
