"""Pages of the lab agree with their charts and with the experiments."""

import gzip
import json
import re
import runpy
import sys
from xml.etree import ElementTree

import pytest
import sacrebleu
import torch
import typer
from typer.testing import CliRunner

from experiments import copying, cost, features, forcing, gradients, length, markov, transfer
from heedful.attention.config import AttentionConfig
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import METRICS
from heedful.recipes import load_recipe
from tests.documents.markdown import ROOT, links, python_of
from tests.hf_encoders import write_encoder

LAB = ROOT / "docs" / "lab"
NAMESPACE = "{http://www.w3.org/2000/svg}"
SMALL = {"steps": 50, "seeds": 1}


def page(name):
    return (LAB / f"{name}.md").read_text(encoding="utf-8")


def tables(text):
    """Return the Markdown tables of a text: cells by row and column."""
    matches = re.findall(r"(?:^\|.*\|\n)+", text + "\n", re.MULTILINE)
    return [table_of(block.splitlines()) for block in matches]


def table_of(lines):
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {cells[0]: dict(zip(names[1:], cells[1:], strict=True)) for cells in rows}


def chart_points(image):
    """Return the points of every line of a chart, by name."""
    root = ElementTree.parse(image).getroot()
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
    return next(
        subject for subject in gradients.CLAIM + gradients.INITIALIZATIONS if subject.name == name
    )


# --- pages and charts --------------------------------------------------------------------


def test_lab_index_lists_every_page():
    pages = {path.name for path in LAB.glob("*.md")} - {"README.md"}
    assert pages == {target for target in links(page("README")) if target.endswith(".md")}


@pytest.mark.parametrize("name", ["gradients", "cost", "length", "markov"])
def test_charts_of_page_exist_with_description(name):
    charts = [LAB / target for target in links(page(name)) if target.endswith(".svg")]
    assert len(charts) == 2
    for image in charts:
        assert ElementTree.parse(image).getroot().find(f"{NAMESPACE}desc").text


@pytest.mark.parametrize("name", ["gradients", "cost", "length", "markov", "names", "transfer"])
def test_command_of_page_has_help(name, monkeypatch, capsys):
    (command,) = set(re.findall(r"^(?:\$ )?python -m (experiments\.\w+)", page(name), re.MULTILINE))
    monkeypatch.setattr(sys, "argv", [f"{command.replace('.', '/')}.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / sys.argv[0]), run_name="__main__")
    assert end.value.code == 0
    assert f"Example: python -m {command}" in capsys.readouterr().out


def test_gradients_table_same_as_chart():
    charts = ["gradients", "gradients-initialization"]
    for table, name in zip(tables(page("gradients")), charts, strict=True):
        lines = chart_points(LAB / "images" / f"{name}.svg")
        assert list(lines) == list(table)
        for line, cells in table.items():
            expected = {float(k): float(v) for k, v in cells.items() if k.isdigit()}
            shared = expected.keys() & lines[line].keys()
            assert len(shared) >= 6
            assert {k: expected[k] for k in shared} == {
                k: pytest.approx(lines[line][k], rel=0.051) for k in shared
            }


def test_cost_tables_match_charts():
    _, counted, _, timed = tables(page("cost"))
    for table, name, unit in [(counted, "cost-operations", 1e6), (timed, "cost-time", 1)]:
        lines = chart_points(LAB / "images" / f"{name}.svg")
        del table["last doubling"]
        for line, points in lines.items():
            expected = {float(length): unit * float(cells[line]) for length, cells in table.items()}
            assert expected == {k: pytest.approx(v, rel=0.04) for k, v in points.items()}


def test_markov_tables_match_charts():
    charts = [LAB / target for target in links(page("markov")) if target.endswith(".svg")]
    for table, image in zip(tables(page("markov")), charts, strict=True):
        lines = chart_points(image)
        assert list(lines) == list(table)
        for line, cells in table.items():
            expected = {float(k.replace(",", "")): float(v) for k, v in cells.items()}
            assert expected == {k: pytest.approx(v, abs=0.0000501) for k, v in lines[line].items()}


def test_features_table_same_as_chart():
    lines = chart_points(LAB / "images" / "features.svg")
    table = tables(page("features"))[0]
    assert list(lines) == list(table) == list(features.SYSTEMS)
    for line, cells in table.items():
        expected = {float(k.removesuffix(" %")): float(v) for k, v in cells.items() if v}
        assert expected == pytest.approx(lines[line])


def test_length_tables_match_charts():
    charts = ["length", "length-tokens"]
    for table, name in zip(tables(page("length"))[1:3], charts, strict=True):
        lines = chart_points(LAB / "images" / f"{name}.svg")
        assert lines.pop("longest in training") == {16: 100}
        assert list(lines) == list(table) == list(copying.SYSTEMS)
        for line, cells in table.items():
            expected = {float(k): float(v) for k, v in cells.items() if k.isdigit()}
            assert len(expected) == len(length.TABLE_LENGTHS)
            assert expected == {k: pytest.approx(lines[line][k], abs=0.51) for k in expected}


@pytest.mark.parametrize("name", ["multi30k", "transformers"])
def test_charts_of_systems_page_exist_with_description(name):
    targets = [target for target in links(page(name)) if target.endswith(".svg")]
    assert len(targets) >= 4
    assert set(targets) == {f"images/{path.name}" for path in LAB.glob(f"images/{name}-*.svg")}
    for target in targets:
        assert ElementTree.parse(LAB / target).getroot().find(f"{NAMESPACE}desc").text


@pytest.mark.parametrize("name", ["multi30k", "transformers"])
def test_length_table_of_systems_same_as_chart(name):
    (table,) = [table for table in tables(page(name)) if "all" in table]
    del table["all"]
    for line, points in chart_points(LAB / "images" / f"{name}-length.svg").items():
        expected = {span: cells[line] for span, cells in table.items() if cells[line] != "too few"}
        middles = [sum(map(int, span.split("-"))) / 2 for span in expected]
        assert dict(zip(middles, map(float, expected.values()), strict=True)) == {
            middle: pytest.approx(value, abs=0.051) for middle, value in points.items()
        }


def systems_of(name):
    """Return the first table of a page: scores by recipe."""
    return {recipe.strip("`"): cells for recipe, cells in tables(page(name))[0].items()}


def test_rnns_have_equal_scores_on_both_pages():
    alone, beside = systems_of("multi30k"), systems_of("transformers")
    shared = ["BLEU", "chrF", "minutes", "steps", "best validation loss"]
    assert len(alone) == 3
    for recipe, cells in alone.items():
        assert cells == {column: beside[recipe][column] for column in shared}


def test_parameter_counts_match_the_table():
    for recipe, cells in systems_of("transformers").items():
        with torch.device("meta"):
            model = load_recipe(recipe).model.build(source_vocab_size=8000, target_vocab_size=8000)
        count = sum(parameter.numel() for parameter in model.parameters())
        assert cells["parameters"] == f"{count / 1e6:.1f} M"


def test_best_losses_are_the_minima_of_the_chart():
    lines = chart_points(LAB / "images" / "multi30k-curves.svg")
    for points, cells in zip(lines.values(), systems_of("multi30k").values(), strict=True):
        expected, _, where = cells["best validation loss"].partition(" at ")
        best = min(points, key=points.get)
        assert float(expected) == pytest.approx(points[best], abs=0.00051)
        assert where == ("the last step" if best == max(points) else f"step {best:,.0f}")
        assert cells["steps"] == f"{max(points):,.0f}"


# --- gradients -----------------------------------------------------------------------------


def test_gradients_of_simple_rnn_are_reproducible():
    norms = gradients.measure(subject("rnn"), steps=100, seeds=5)
    expected = tables(page("gradients"))[0]["rnn"]
    assert [f"{norms[distance]:.1e}" for distance in (1, 5, 20, 100)] == [
        expected[str(distance)] for distance in (1, 5, 20, 100)
    ]


def test_gradients_are_products_of_step_jacobians():
    torch.manual_seed(0)
    cell = subject("rnn").cell.build(input_size=gradients.SIZE, hidden_size=gradients.SIZE)
    AttentionConfig().build(query_size=gradients.SIZE, memory_size=gradients.SIZE)
    inputs = torch.randn(gradients.NUM_SEQUENCES, 11, gradients.SIZE).double()
    directions = torch.randn(gradients.NUM_SEQUENCES, 1, gradients.SIZE).double().squeeze(1)
    gradient = directions / directions.norm(dim=-1, keepdim=True)
    weight_ih, weight_hh, *biases = (weight.detach().double() for weight in cell.weights)
    states = [torch.zeros(gradients.NUM_SEQUENCES, gradients.SIZE).double()]
    for column in inputs.unbind(dim=1):
        expected = column @ weight_ih.T + states[-1] @ weight_hh.T + sum(biases)
        states.append(expected.tanh())
    norms = []
    for state in reversed(states[1:]):
        within = gradient * (1 - state**2)
        norms.append((within @ weight_ih).norm(dim=-1).log().mean().exp().item())
        gradient = within @ weight_hh
    measured = gradients.measure(subject("rnn"), steps=10, seeds=1)
    assert measured == pytest.approx([norm / norms[0] for norm in norms])


def test_gradients_vanish_fastest_in_simple_rnn():
    simple, gru, lstm = (
        gradients.measure(subject(name), **SMALL)[50] for name in ("rnn", "gru", "lstm")
    )
    assert simple < 1e-14
    assert 1000 * simple < min(gru, lstm) < max(gru, lstm) < 1e-8


def test_gradients_through_attention_do_not_vanish():
    for name in gradients.CELLS:
        direct, attended = (
            gradients.measure(subject(variant), **SMALL)
            for variant in (name, f"attention over {name}")
        )
        assert attended[20] > (1000 if name == "rnn" else 100) * direct[20]
        assert attended[40] == pytest.approx(attended[20], rel=0.2)
        assert 0.5 / 51 < attended[0] < 2 / 51, "weights are uniform at initialization"


def test_initialization_matters_as_much_as_gates():
    norms = {
        variant.name: gradients.measure(variant, **SMALL)[50]
        for variant in gradients.INITIALIZATIONS
    }
    assert norms["rnn, orthogonal"] > 1e4 * norms["rnn"]
    assert norms["lstm, forget bias 1"] > 1e4 * norms["lstm"]
    assert min(norms["lstm, chrono init"], norms["gru, chrono init"]) > 0.03


# --- cost ----------------------------------------------------------------------------------


def flops_by_hand(source_length, target_length):
    """Count the FLOPs of matrix products: two per multiplication."""
    size, direction, context = cost.SIZE, cost.SIZE // 2, cost.SIZE
    encoder = 2 * 3 * direction * (size + direction)  # two directions, three gates
    cell = 3 * size * (size + context + size)
    output = (size + context + size) * size + size * cost.VOCAB_SIZE
    bridge = context * size
    base = source_length * encoder + target_length * (cell + output) + bridge
    keys = source_length * context * size
    pairs = source_length * target_length * (size + context)
    return tuple(2 * cost.BATCH_SIZE * count for count in (base, keys, pairs))


@pytest.mark.parametrize("lengths", [(1, 1), (7, 3), (20, 40)])
def test_flops_match_hand_count(lengths):
    assert cost.count_attention_flops(*lengths) == flops_by_hand(*lengths)


@pytest.mark.parametrize("index", [1, 2])
def test_flops_of_page_match_hand_count(index):
    table = tables(page("cost"))[index]
    table.pop("last doubling", None)
    for lengths, cells in table.items():
        sides = [int(length) for length in lengths.split(",")]
        base, keys, pairs = flops_by_hand(*(sides * 2)[:2])
        counts = {
            "without attention": base,
            "key projection": keys,
            "scores and contexts": pairs,
            "total, with attention": base + keys + pairs,
        }
        assert cells == {name: f"{counts[name] / 1e6:.3f}" for name in cells}


def test_attention_cost_grows_with_product_and_rest_with_sum_of_lengths():
    one, doubled = cost.count_attention_flops(10, 10), cost.count_attention_flops(20, 20)
    assert doubled.pairs == 4 * one.pairs
    assert doubled.base == pytest.approx(2 * one.base, rel=0.01)
    assert (
        cost.count_attention_flops(20, 10).pairs
        == cost.count_attention_flops(10, 20).pairs
        == 2 * one.pairs
    )


def test_model_without_attention_has_no_attention_modules():
    model = cost.build_model(None)
    assert not [name for name, _ in model.named_modules() if "attention" in name]


# --- length --------------------------------------------------------------------------------


def test_systems_have_similar_parameter_counts():
    counts = {
        system: length.num_parameters(
            copying.build_model(system, copying.largest_hidden_size(system))
        )
        for system in copying.SYSTEMS
    }
    assert max(counts.values()) <= copying.MAX_PARAMETERS
    assert min(counts.values()) > 0.95 * copying.MAX_PARAMETERS


@pytest.mark.parametrize("system", copying.SYSTEMS)
def test_system_has_attention_if_listed(system):
    names = [name for name, _ in copying.build_model(system, 4).named_modules()]
    assert any("attention" in name for name in names) == (system in copying.WITH_ATTENTION)


def test_targets_equal_sources():
    batch = copying.random_words(5, 7, torch.Generator().manual_seed(0))
    assert torch.equal(batch.sources.tokens, batch.targets)
    assert torch.equal(batch.decoder_inputs[:, 1:], batch.targets[:, :-1])
    assert set(batch.sources.lengths.tolist()) == {8}
    names = [copying.TOKENS[token] for token in batch.decoder_inputs[:, 1:].flatten().tolist()]
    assert len(names) == 35
    assert all("a" <= name <= "z" for name in names)


def test_systems_get_equal_test_words():
    one, other = (
        copying.copy_words(copying.build_model(system, 4).eval(), max_length=3, num_words=2)
        for system in ("final-state", "attend-then-step")
    )
    assert one.sources == other.sources == one.references == other.references
    assert [len(source.split()) for source in one.sources] == [1, 1, 2, 2, 3, 3]
    assert len(one.outputs) == 6


def test_token_accuracy_compares_positions():
    outputs, references = ["a b c", "b a", "a b c d", ""], ["a x c", "a b", "a b", "a"]
    assert (
        compute_score(length.ReferenceTokenAccuracy(), outputs, references).value
        == 100 * (2 + 0 + 2 + 0) / 8
    )


def test_max_correct_length_ends_before_first_incorrect_length():
    assert length.max_good_length({1: 100, 2: 90, 3: 89, 4: 100}) == 2
    assert length.max_good_length({1: 50, 2: 100}) == 0
    assert length.max_good_length({1: 100, 2: 95}) == 2


def test_mean_of_curves_is_per_length():
    assert length.mean([{1: 100, 2: 0}, {1: 50, 2: 10}]) == {1: 75, 2: 5}


@pytest.mark.learning
def test_only_systems_with_attention_copy_long_words():
    options = {"steps": 1000, "learning_rate": length.LEARNING_RATE, "seed": 0}
    with_attention, without = (
        length.curve(
            copying.copy_words(
                copying.train_system(system, **options), max_length=16, num_words=50
            ),
            METRICS["exact-match"],
        )
        for system in ("attend-then-step", "final-state")
    )
    assert min(with_attention.values()) >= 95
    assert min(without[size] for size in (1, 2, 3)) >= 95
    assert max(without[size] for size in (12, 14, 16)) <= 10


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
    named = [part for output in outputs for part in ("--outputs", output)]
    files = ["--sources", sources, "--references", references]
    return run(length, "--output-dir", ".", *files, *named, *more)


def test_bleu_is_printed_by_source_length(texts):
    result = run_texts("good=good", "poor=poor", more=["--bin-width", "2", "--min-sentences", "2"])
    assert result.exit_code == 0, result.output
    expected = {
        name: [
            sacrebleu.corpus_bleu(outputs[part], [REFERENCES[part]]).score
            for part in (slice(0, 2), slice(2, 4), slice(0, 5))
        ]
        for name, outputs in {"good": GOOD, "poor": POOR}.items()
    }
    (table,) = tables(result.stdout)
    assert list(table) == ["1-2", "3-4", "5-6", "all"]
    assert [cells["sentences"] for cells in table.values()] == ["2", "2", "1", "5"]
    for name, (short, long, total) in expected.items():
        assert [cells[name] for cells in table.values()] == [
            *(f"{short:.1f}", f"{long:.1f}", "too few", f"{total:.1f}")
        ]
        points = chart_points(texts / "images" / "length-bleu.svg")[name]
        assert points == {1.5: pytest.approx(short, rel=1e-5), 3.5: pytest.approx(long, rel=1e-5)}
    assert "BLEU, nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in result.stdout


def test_bleu_chart_has_the_given_name(texts):
    result = run_texts("good=good", more=["--min-sentences", "1", "--chart", "mine"])
    assert result.exit_code == 0, result.output
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
            "--outputs: 'good' is not NAME=FILE\n  give a name for each file\n",
        ),
        (
            {"outputs": []},
            "experiments.length: some files are missing\n"
            "  give --sources, --references and --outputs together\n",
        ),
        (
            {"outputs": ["good=good"], "sources": "empty"},
            "empty: the file is empty\n  give a file with text in it\n",
        ),
        (
            {"outputs": ["good=godo"]},
            "godo: no such file; did you mean 'good'?\n  check the path\n",
        ),
    ],
)
@pytest.mark.usefixtures("texts")
def test_unusable_files_raise(options, message):
    result = run_texts(*options.pop("outputs"), **options)
    assert (result.exit_code, result.stderr) == (2, message)


def test_unknown_system_raises():
    result = run(length, "--only", "final-stat")
    assert result.exit_code == 2
    assert result.stderr == (
        "--only: unknown system 'final-stat'; did you mean 'final-state'?\n"
        "  choose from: attend-then-step, constant-context, final-state, step-then-attend\n"
    )


# --- Markov models -------------------------------------------------------------------------


def test_divergence_of_exact_posteriors_is_zero_or_the_gap():
    exact = markov.ExactPosteriors(num_sequences=50)
    filtered = exact.divergences(lambda observations: exact.filtered.log())
    smoothed = exact.divergences(lambda observations: exact.smoothed.log())
    assert filtered == pytest.approx((0, exact.gap), abs=1e-6)
    assert smoothed.smoothed == pytest.approx(0, abs=1e-6)
    terms = exact.smoothed * (exact.smoothed / exact.filtered).log()
    assert exact.gap == pytest.approx(terms.nan_to_num().sum().item() / (50 * markov.LENGTH))


def test_gap_of_page_is_reproducible():
    assert f"{markov.ExactPosteriors().gap:.4f} nats" in page("markov")


@pytest.mark.parametrize("direction", markov.DIRECTIONS)
def test_only_bidirectional_tagger_reads_ahead(direction):
    tokens = torch.randint(markov.NUM_SYMBOLS, (2, 8), generator=torch.Generator().manual_seed(0))
    changed = torch.cat([tokens[:, :-1], (tokens[:, -1:] + 1) % markov.NUM_SYMBOLS], dim=1)
    tagger = markov.StateTagger(direction, 4)
    differs = (tagger(tokens) != tagger(changed)).any(dim=-1)[:, :-1]
    assert differs.any() == (direction == "bidirectional")


@pytest.mark.learning
def test_forward_tagger_learns_filtered_and_bidirectional_smoothed_posteriors():
    exact, options = markov.ExactPosteriors(), {"num_sequences": 10_000, "steps": 600, "seed": 0}
    forward, bidirectional = (
        exact.divergences(markov.train(direction, hidden_size=16, **options))
        for direction in markov.DIRECTIONS
    )
    assert forward.filtered < 0.02
    # Without the future, the cross-entropy cannot fall below that of the filtered posterior: in
    # expectation KL(smoothed || forward) = gap + KL(filtered || forward).
    assert forward.smoothed > exact.gap - 0.005
    assert bidirectional.smoothed < 0.04 < exact.gap / 4


# --- the commands --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "options", "charts", "rows"),
    [
        (
            gradients,
            ["--steps", "20", "--seeds", "1"],
            ["gradients", "gradients-initialization"],
            6,
        ),
        (cost, ["--max-length", "20", "--repeats", "1"], ["cost-operations", "cost-time"], 3),
        (
            length,
            ["--steps", "2", "--seeds", "1", "--num-words", "1", "--only", "final-state"],
            ["length", "length-tokens"],
            1,
        ),
        (
            markov,
            ["--steps", "2", "--seeds", "1", "--hidden-sizes", "2", "--data-sizes", "9"],
            ["markov-size", "markov-data"],
            4,
        ),
    ],
    ids=["gradients", "cost", "length", "markov"],
)
@pytest.mark.wide
def test_experiment_prints_tables_and_writes_charts(tmp_path, experiment, options, charts, rows):
    result = run(experiment, "--output-dir", str(tmp_path), *options)
    assert result.exit_code == 0, result.output
    assert f"torch {torch.__version__}" in result.output
    assert len(tables(result.stdout)[0]) == rows
    for name in charts:
        image = tmp_path / "images" / f"{name}.svg"
        assert f"wrote {image}" in result.output
        assert all(chart_points(image).values())


@pytest.mark.slow
def test_features_experiment_trains_taggers_on_parts_of_the_sentences(tmp_path, monkeypatch):
    folder = tmp_path / "language_models"
    folder.mkdir()
    sentences = [[f"w{(row * k) % 7}" for k in range(1, 4)] for row in range(40)]
    small = {"embedding_size": 8, "backbone": {"hidden_size": 8, "num_layers": 2}}
    recipe = {
        "data": {"lm_batching": {"batch_size": 2, "context_length": 8}},
        "tokenizers": {"type": "shared", "tokenizer": {"type": "whitespace"}},
        "model": {"type": "language-model", **small},
        "training": {"max_steps": 1, "validate_every": 1},
    }
    (folder / "lstm.yaml").write_text(json.dumps(recipe))
    monkeypatch.setattr(features, "FOLDER", folder)
    (tmp_path / "text").write_text("".join(" ".join(words) + "\n" for words in sentences))
    tagged = "\n".join("".join(f"{word}\tT{word[1]}\n" for word in words) for words in sentences)
    (tmp_path / "a.conll").write_text(tagged)
    files = [str(tmp_path / name) for name in ("a.conll", "a.conll", "text")]
    options = ["--folder", str(tmp_path / "runs"), "--output-dir", str(tmp_path)]
    options += ["--percent", "10", "--percent", "50", "--max-minutes", "0.01"]
    systems = ["--only", "without", "--only", "LSTM, frozen, mixed layers"]
    result = run(features, *files, *options, *systems)
    assert result.exit_code == 0, result.output
    (table,) = tables(result.stdout)
    assert [*table] == ["without", "LSTM, frozen, mixed layers"]
    assert chart_points(tmp_path / "images" / "features.svg").keys() == table.keys()
    parts = [
        (tmp_path / f"runs/train-{percent}.conllu").read_text().strip().split("\n\n")
        for percent in (10, 50)
    ]
    assert list(map(len, parts)) == [4, 20]
    assert set(parts[0]) <= set(parts[1])


def test_what_one_step_keeps_is_the_slope_of_a_fading_line():
    fading = [0.8**distance for distance in range(101)]
    assert gradients.kept_per_step(fading) == pytest.approx(0.8)


def test_transfer_tables_have_mean_and_deviation_of_seeds(tmp_path):
    fields = {"dataset": "trec", "system": "frozen"}
    results = [
        {**fields, "size": size, "seed": seed, "accuracy": accuracy}
        for size, seed, accuracy in [(100, 1, 60.0), (100, 2, 64.0), (0, 1, 90.0)]
    ]
    (table,) = tables(transfer.format_tables(results))
    assert table["frozen"] == {"100": "62.0 \u00b1 2.8", "all": "90.0"}  # sqrt(2 * 2^2 / (2 - 1))
    assert table["tuned"] == {"100": "", "all": ""}
    text = page("transfer")
    (tmp_path / "transfer.md").write_text(text, encoding="utf-8")
    for _ in range(2):  # written again, tables are replaced
        transfer.write_tables(transfer.format_tables(results), tmp_path / "transfer.md")
    written = (tmp_path / "transfer.md").read_text(encoding="utf-8")
    assert written.count("| frozen | 62.0 \u00b1 2.8 | 90.0 |") == 1
    assert written.partition("## Setup")[2] == text.partition("## Setup")[2]


@pytest.mark.slow
def test_transfer_experiment_trains_what_is_missing(tmp_path):
    write_encoder(tmp_path / "bert", "bert", has_head=False)
    folder = tmp_path / "data" / "trec"
    folder.mkdir(parents=True)
    lines = [f"{label}\tfine\tthe {label} walks {row}" for row in range(30) for label in "ab"]
    for name in ("train", "test"):
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")
    arguments = [str(tmp_path / "bert"), str(tmp_path / "data"), "--only", "trec", "--size", "100"]
    arguments += ["--seeds", "1", "--jobs", "1", "--device", "cpu"]
    arguments += ["--folder", str(tmp_path / "runs"), "--output-dir", str(tmp_path)]
    first = run(transfer, *arguments)
    assert first.exit_code == 0, first.output
    (table,) = tables(first.stdout)
    assert list(table) == list(transfer.SYSTEMS)
    assert all(cells["100"] for cells in table.values())
    again = run(transfer, *arguments)
    assert " of " not in again.stdout  # nothing is trained
    assert tables(again.stdout) == [table]


@pytest.mark.wide
def test_forcing_experiment_prints_the_tables_of_the_page():
    result = run(forcing, "demo", "--num-sentences", "3")
    assert result.exit_code == 0, result.output
    printed, written = tables(result.output), tables(page("forcing"))
    assert len(printed) == len(written) == 3
    for table, expected in zip(printed, written, strict=True):
        (cells,), *others = [[*each.values()] for each in (table, expected)]
        assert all(cells.keys() == row.keys() for row in others[0])


def test_image_of_kernel_regression_is_up_to_date(tmp_path, monkeypatch):
    page = ROOT / "docs" / "attention" / "nadaraya-watson.md"
    monkeypatch.chdir(tmp_path)
    exec(python_of(page.read_text(encoding="utf-8")), {"__name__": "__main__"})
    drawn = chart_points(tmp_path / "nadaraya-watson.svg")
    shown = chart_points(page.parent / "images" / "nadaraya-watson.svg")
    assert list(drawn) == list(shown)
    for name, points in shown.items():
        assert drawn[name] == {x: pytest.approx(y, abs=1e-4) for x, y in points.items()}
