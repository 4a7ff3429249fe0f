"""`heedful show`: attention maps in the terminal, figures, JSON and search trees."""

import json
import os
import stat
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from heedful.decoding.search_tree import render_tree
from heedful.plotting.raster import encode_png
from heedful.search import Node
from tests.commands import heedful, write_random_run
from tests.messages.test_run_messages import vouch_for
from tests.unit.tasks.translation.test_output_files import build_translation

TEE, CORNER, BAR = "\u251c\u2500\u2500", "\u2514\u2500\u2500", "\u2502"
TREE = [
    Node(None, None, 0.0, 0.0, "continued"),
    Node(0, "a", -0.1, -0.1, "continued"),
    Node(0, "b", -2.0, -2.0, "pruned"),
    Node(1, "c", -0.2, -0.3, "continued"),
    Node(3, "[bold]", -0.5, -0.8, "continued"),
    Node(3, "(end)", -1.0, -1.3, "finished"),
    Node(4, "(end)", -0.1, -0.9, "finished"),
]


@pytest.fixture
def show(capsys, monkeypatch, trained):
    def run(*arguments):
        return heedful(capsys, monkeypatch, "show", trained, *arguments)

    return run


def test_terminal_shows_both_texts_and_the_weights_of_each_word(show):
    result = show("a b c")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[1:3] == ["a b c", "a b c"]
    rows = [line.split() for line in lines[3:] if line.split()[:1] in (["a"], ["b"], ["c"])]
    assert [row[0] for row in rows[-3:]] == ["a", "b", "c"]


def test_figures_saved_to_files(show, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    result = show("a b", "c", "--svg", svg, "--html", html)
    assert result.err == f"wrote {svg}\nwrote {html}\n"
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    assert html.read_text().count('"title"') == 2


def test_lines_drawn_in_terminal_figure_and_page(show, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    result = show("a b c", "--lines", "--svg", svg, "--html", html)
    assert result.code == 0
    assert "\u2836" in result.out or "\u28f6" in result.out  # Braille dots of the legend
    assert 'class="line"' in svg.read_text()
    assert '"form":"lines"' in html.read_text()


def test_ending_decides_the_format_of_a_figure(show, tmp_path):
    pytest.importorskip("resvg_py", reason="resvg-py is not installed")
    svg, png = tmp_path / "a.svg", tmp_path / "a.PNG"
    result = show("a b c", "--png", svg, "--svg", png)  # both options are the same
    assert result.err == f"wrote {svg}\nwrote {png}\n"
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    assert png.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        (
            "--svg",
            "a.jpg",
            "figures end in .svg or .png, but this name in .jpg\n"
            "  name a file such as figure.svg or figure.png",
        ),
        (
            "--png",
            "a",
            "figures end in .svg or .png, but this name in neither\n"
            "  name a file such as figure.svg or figure.png",
        ),
        (
            "--html",
            "a.svg",
            "pages end in .html, but this name in .svg\n  name a file such as page.html",
        ),
    ],
)
def test_wrong_ending_raises_before_the_run_is_read(
    option, name, message, capsys, monkeypatch, tmp_path
):
    path = tmp_path / name
    result = heedful(capsys, monkeypatch, "show", tmp_path / "no-run", "a", option, path)
    assert (result.code, result.err) == (2, f"heedful: {path}: {message}\n")


def test_png_without_resvg_names_the_extra(show, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    path = tmp_path / "a.png"
    result = show("a", "--svg", path)
    assert result.err == (
        f"heedful: {path}: writing PNG needs resvg-py\n"
        "  install it with: pip install 'heedful[png]', or name a file that ends in .svg\n"
    )


def test_text_that_names_a_file_is_noted(show, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a b\n")
    note = "is shown as a text, but names a file; its lines are read by: heedful translate"
    assert show(str(path)).err == f"note: {str(path)!r} {note}\n"


def test_translate_of_a_text_names_the_command_that_draws_it(capsys, monkeypatch, trained):
    result = heedful(capsys, monkeypatch, "translate", trained, "a b c")
    hint = "check the path; a text is given on standard input, or drawn by: heedful show RUN TEXT"
    assert result.err.endswith(f"heedful: a b c: no such file\n  {hint}\n")


def test_search_tree_is_drawn_in_figure_and_page(show, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    result = show("a b c", "d", "--search-tree", "--beam", "2", "--svg", svg, "--html", html)
    assert result.err == f"wrote {svg}\nwrote {html}\n"
    assert 'class="node output"' in svg.read_text()
    assert html.read_text().count('role="region"') == 2


@pytest.mark.parametrize("option", ["--lines", "--kind cross", "--layer 1", "--head 1", "--words"])
def test_options_of_maps_with_a_search_tree_raise(show, option):
    result, name = show("a", *option.split(), "--search-tree"), option.split()[0]
    assert result.code == 2
    assert result.err == (
        f"heedful: {name}: --search-tree draws no attention\n  remove {name}, or --search-tree\n"
    )


def test_json_has_weights_and_on_request_the_tree(show):
    fields = json.loads(show("a b", "--json").out)
    assert fields["tokens"] == ["a", "b"]
    assert [len(row) for row in fields["weights"]] == [3, 3]
    assert "tree" not in fields
    assert json.loads(show("a b", "--json", "--search-tree").out)["tree"][0]["token"] is None


def test_search_tree_is_drawn(show):
    result = show("a b c", "d", "--search-tree", "--beam", "2")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "a b c"
    assert any(line.split()[-3:-1] == ["finished", "at"] for line in lines)
    assert any("pruned at" in line for line in lines)


def test_search_tree_with_sampling_raises(capsys, monkeypatch, copied):
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("sampling: null", "sampling: {}"))
    vouch_for(copied)
    result = heedful(capsys, monkeypatch, "show", copied, "a", "--search-tree")
    assert result.code == 2
    assert result.err.startswith("heedful: --search-tree: needs beam search")


def test_brackets_are_not_markup(show):
    assert "[bold]a[/bold]" in show("[bold]a[/bold]").out


def draw(tokens, tree):
    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render_tree(build_translation(" ".join(tokens), tree=tree)))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_chains_are_one_line_and_side_branches_indented():
    assert draw(["a", "c", "[bold]"], TREE) == [
        "horto",
        f"{TEE} (start)",
        f"{BAR}   {CORNER} b -2.00  pruned at -2.00",
        f"{TEE} a -0.10  c -0.20",
        f"{BAR}   {CORNER} (end) -1.00  finished at -1.30",
        f"{CORNER} [bold] -0.50  (end) -0.10  finished at -0.90",
    ]


def test_search_without_branches_is_one_line():
    tree = [
        TREE[0],
        Node(0, "b", -2.0, -2.0, "continued"),
        Node(1, "(end)", 0.0, -2.0, "finished"),
    ]
    assert draw(["b"], tree) == ["horto", f"{CORNER} b -2.00  (end) 0.00  finished at -2.00"]


def bold_labels(tokens):
    root = render_tree(build_translation(" ".join(tokens), tree=TREE))
    stack, labels = [*root.children], []
    while stack:
        branch = stack.pop()
        stack += branch.children
        if branch.label.style == "bold":
            labels.append(branch.label.plain.split()[0])
    return sorted(labels)


def test_nodes_of_the_output_are_bold():
    assert bold_labels(["a", "c", "[bold]"]) == ["(start)", "[bold]", "a"]
    assert bold_labels(["a", "c"]) == ["(end)", "(start)", "a"]
    assert bold_labels(["other"]) == []


def test_empty_text_has_no_tree():
    assert "no search: the text is empty" in draw([], None)[1]


def test_deep_tree_is_drawn_completely():
    nodes = [Node(None, None, 0.0, 0.0, "continued")]
    for depth in range(300):
        parent = max(0, 2 * depth - 1)
        nodes.append(Node(parent, "a", -0.1, -0.1 * depth, "continued"))
        nodes.append(Node(parent, "b", -2.0, -2.0, "pruned"))
    lines = draw(["a"], nodes)
    assert sum("a -0.10" in line for line in lines) == 300
    assert sum("b -2.00" in line for line in lines) == 300


@pytest.fixture(scope="module")
def transformer_run(tmp_path_factory):
    """A random Transformer with subwords."""
    sides = {"encoder": {}, "decoder": {}}
    for settings in sides.values():
        heads = {"multi_head": {"num_heads": 4}}
        settings |= {"type": "transformer", "hidden_size": 16, "num_layers": 2, "attention": heads}
    subwords = {"type": "subword", "vocab_size": 290}
    settings = {
        "data": {"train": {"type": "parallel-files", "source": "a", "target": "b"}},
        "tokenizers": {"type": "separate", "source": subwords, "target": subwords},
        "model": sides,
        "decoding": {"max_length": 6},
    }
    texts = ["in horto est", "hortus magnus"] * 5
    folder = tmp_path_factory.mktemp("show") / "run"
    return write_random_run(folder, settings, texts, texts, seed=0)


@pytest.fixture
def show_transformer(capsys, monkeypatch, transformer_run):
    def run(*arguments):
        return heedful(capsys, monkeypatch, "show", transformer_run, "in horto", *arguments)

    return run


def test_terminal_names_layer_and_heads(show_transformer):
    lines = show_transformer().out.splitlines()
    assert lines[1] == "in horto"
    assert lines[3] == "cross-attention, layer 2 of 2, mean of 4 heads"


def test_layers_heads_and_kinds_are_options(show_transformer, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    options = ("--kind", "encoder-self", "--layer", "all", "--head", "1", "--head", "3-4")
    out = show_transformer(*options, "--svg", svg, "--html", html).out
    captions = [
        f"encoder self-attention, layer {layer} of 2, head {head} of 4"
        for layer in (1, 2)
        for head in (1, 3, 4)
    ]
    assert [line for line in out.splitlines() if line in captions] == captions
    figure = ElementTree.fromstring(svg.read_text())
    lines = " ".join(node.text for node in figure.iter() if node.get("class") == "note")
    assert all(lines.count(caption) == 1 for caption in captions)
    assert all(f'"caption":"{caption}"' in html.read_text() for caption in captions)


def test_json_has_the_selected_maps(show_transformer):
    assert "attention" not in json.loads(show_transformer("--json").out)
    fields = json.loads(show_transformer("--json", "--kind", "encoder-self", "--words").out)
    (drawn,) = fields["attention"]
    assert drawn["caption"] == "encoder self-attention, layer 2 of 2, mean of 4 heads"
    assert drawn["source"] == drawn["target"] == ["in", "horto", "(end)"]
    assert [sum(row) for row in drawn["weights"]] == pytest.approx([1, 1, 1], abs=1e-5)


def test_missing_layer_head_and_kind_reported(show_transformer):
    ended = show_transformer("--layer", "3")
    assert (ended.code, ended.err.splitlines()[0]) == (
        2,
        "heedful: --layer: there is no layer '3': this model has 2",
    )
    ended = show_transformer("--kind", "self")
    assert ended.code == 2
    assert "choose from: encoder-self, decoder-self, cross, all" in ended.err


# ----- captions -----


@pytest.fixture(scope="module")
def caption_run(tmp_path_factory):
    """A random captioner: a convolutional encoder, gated attention over 2 x 3 cells."""
    encoder = {"type": "cnn", "image_size": [8, 12], "num_channels": 1, "channels": [4, 8]}
    decoder = {"type": "recurrent", "embedding_size": 8, "hidden_size": 8}
    settings = {
        "data": {"train": {"type": "captions", "path": "captions.tsv"}},
        "tokenizers": {"type": "shared", "tokenizer": {"type": "word"}},
        "model": {
            "type": "captioning",
            "encoder": {**encoder, "pooling": [[2, 2], [2, 2]]},
            "decoder": {**decoder, "attention": {"readout": {"type": "gated"}}},
        },
        "decoding": {"max_length": 4, "min_length": 3},
    }
    folder = tmp_path_factory.mktemp("captions")
    captions = ["a red dog", "a blue cat", "two dogs"]
    return write_random_run(folder / "run", settings, captions, captions, seed=1)


@pytest.fixture
def show_image(capsys, monkeypatch, caption_run, tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    image = tmp_path / "dog.png"
    image.write_bytes(encode_png(np.arange(96, dtype=np.uint8).reshape(8, 12)))

    def run(*arguments):
        return heedful(capsys, monkeypatch, "show", caption_run, image, *arguments)

    return run


def test_image_is_shown_with_the_grid_of_each_word(show_image):
    result = show_image()
    fields = json.loads(show_image("--json").out)
    lines = result.out.splitlines()
    assert lines[1].endswith("dog.png")
    assert lines[2:4] == [fields["text"], "cross-attention"]
    assert lines[6].split() == fields["tokens"]
    assert lines[7].count("gate ") == len(fields["tokens"])


def test_lines_to_an_image_raise(show_image, tmp_path):
    result = show_image("--lines", "--svg", tmp_path / "a.svg")
    assert result.code == 2
    assert result.err == (
        "heedful: --lines: the source is an image, and lines join tokens of texts\n"
        "  remove --lines\n"
    )
    assert not (tmp_path / "a.svg").exists()


def test_figures_of_a_caption_are_images(show_image, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    fields = json.loads(show_image("--json", "--kind", "cross").out)
    show_image("--svg", svg, "--html", html)
    figure = ElementTree.fromstring(svg.read_text())
    tiles = [node.get("data-word") for node in figure.iter() if node.get("data-word")]
    assert tiles == fields["tokens"]
    assert '"size":[8,12]' in html.read_text()
    (drawn,) = fields["attention"]
    assert drawn["grid"] == [2, 3]
    assert len(drawn["gates"]) == len(fields["tokens"])
    weights = np.reshape(drawn["weights"], (-1, 2, 3))
    np.testing.assert_allclose(weights, fields["weights"], atol=1e-5)


def test_missing_image_raises(capsys, monkeypatch, caption_run, tmp_path):
    ended = heedful(capsys, monkeypatch, "show", caption_run, tmp_path / "cat.png")
    assert ended.code == 2
    assert "cat.png" in ended.err


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "config.yaml").write_text("info: {summary: letters}\n")
    (folder / "metrics.jsonl").write_text('{"type": "training", "step": 1, "loss": 2.5}\n{"ki')
    return folder


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *words: heedful(capsys, monkeypatch, "report", *words)


def test_report_writes_a_page_and_prints_path(call, run):
    ended = call(run)
    assert (ended.code, ended.out, ended.err) == (0, f"{run / 'report.html'}\n", "")
    page = (run / "report.html").read_text()
    assert "<title>letters</title>" in page
    assert '"columns":[[1],[null],[null],[2.5]]' in page
    assert "summary: letters" in page


def test_run_without_metrics_has_a_page(call, run):
    (run / "metrics.jsonl").unlink()
    assert call(run).code == 0
    assert "training has not logged any metrics" in (run / "report.html").read_text()


def test_trained_run_has_curves_and_attention_maps(call, copied):
    assert call(copied).code == 0
    page = (copied / "report.html").read_text()
    assert '"type":"validation"' in page
    assert '"id":"grad_norm"' in page
    assert '"weights":[[' in page
    assert '"weights":null' not in page


def test_report_of_another_folder_raises(call, run):
    ended = call(run.with_name("leters"))
    assert ended.code == 2
    assert ended.err == (
        f"heedful: {run.with_name('leters')}: no such folder; did you mean 'letters'?\n"
        "  name a folder written by `heedful train`\n"
    )
    assert "not a run folder" in call(run.parent).err


def test_open_starts_the_browser(run, tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-m", "heedful", "report", str(run), "--open"]
    subprocess.run(command, env={**os.environ, "BROWSER": str(browser)}, check=True)
    assert opened.read_text().strip() == (run / "report.html").as_uri()


def test_missing_browser_raises(run, tmp_path):
    command = [sys.executable, "-m", "heedful", "report", str(run), "--open"]
    without = {**os.environ, "PATH": str(tmp_path), "BROWSER": ""}
    ended = subprocess.run(command, env=without, capture_output=True, text=True, check=True)
    assert ended.stderr == "no browser found; open the file yourself\n"


def test_report_imports_no_torch(run):
    code = "import sys; sys.argv = ['heedful', 'report', sys.argv[1]]\nfrom heedful.cli.main "
    code += "import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, str(run)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    assert outcome.stdout.splitlines()[-1] == "False"


def test_edit_changes_the_output_and_json_has_the_explanation(show):
    lines = show("a b c", "--edit", "step=1, set=2").out.splitlines()
    outputs = [lines[index + 1] for index, line in enumerate(lines) if line == "a b c"]
    assert (outputs[0], outputs[-1]) == ("a b c", "a c b")
    assert "cross-attention, edited" in lines
    fields = json.loads(show("a b c", "--edit", "step=1, set=2", "--json").out)
    assert fields["result"]["text"] == "a c b"
    assert fields["edits"] == [{"step": 1, "set": {"2": 1.0}}]
    assert fields["layers"][0]["weights"][0][1] == [0, 0, 1, 0]


def test_edits_loaded_from_explanation_json(show, tmp_path):
    written = show("a b c", "--edit", "step=1, set=2", "--json").out
    path = tmp_path / "attention.json"
    path.write_text(written)
    assert show("a b c", "--edit", path, "--json").out == written
    path.write_text("[]")
    assert "has no `edits`" in show("a b c", "--edit", path).err


def test_edit_is_drawn_in_the_search_tree(show):
    trees = [
        show("a b", "--search-tree", "--json", *edit) for edit in ((), ("--edit", "step=0, set=1"))
    ]
    first, edited = (json.loads(tree.out)["tokens"][0] for tree in trees)
    assert (first, edited) == ("a", "b")


def test_edit_of_a_layer_that_the_run_does_not_have_is_rejected(show):
    result = show("a b c", "--edit", "layer=encoder, step=1, set=2")
    assert result.code == 2
    assert "the layers are: decoder.wiring.attention" in result.err
