"""The table of the lectures: what it names exists, commands parse, numbers are right."""

import re
import shlex
from importlib import import_module
from importlib.util import find_spec

import click
import pytest
import torch
import typer

from heedful.config.base import type_of, types_in
from heedful.data.synthetic import SYNTHETIC_CORPORA
from heedful.layers.rnn_cells import CELL_CLASSES
from heedful.models.recurrent.config import WiringConfig
from heedful.recipes import load_recipe, recipe_names
from tests.catalogue import INTRA_ATTENTION_CELLS
from tests.documents.commands import commands, mistakes, shell_lines
from tests.documents.markdown import ROOT, python_of

PAGE = ROOT / "docs" / "lectures.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (Deck \d+).*?\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
ROWS = [
    (deck, [cell.strip() for cell in line.strip("|").split("|")])
    for deck, section in SECTIONS
    for line in section.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| slides"))
]
COMMANDS = sorted({command for _, row in ROWS for command in re.findall("`([^`]+)`", row[-1])})
each_command = pytest.mark.parametrize("command", [*COMMANDS, *shell_lines(TEXT)])


def backticked(pattern):
    """Return all names in backticks that follow a word, such as "recipes `a`, `b` and `c`"."""
    lists = re.findall(rf"\b{pattern} ((?:`[^`]+`(?:, | and | or )?)+)", TEXT)
    return {name for names in lists for name in re.findall("`([^`]+)`", names)}


def test_five_decks_have_rows_with_all_cells():
    assert [deck for deck, _ in SECTIONS] == [f"Deck 00{number}" for number in range(5)]
    assert [row for _, row in ROWS if len(row) != 4 or not row[2] or not row[3]] == []
    assert [row for _, row in ROWS if not re.fullmatch("`[^`]+`", row[3])] == []


def test_files_exist_and_define_the_classes_named_with_them():
    paths = set(re.findall(r"`([\w/]+\.py)`", TEXT))
    assert paths
    roots = [ROOT if path.startswith("tests/") else ROOT / "src" / "heedful" for path in paths]
    assert [p for p, root in zip(paths, roots, strict=True) if not (root / p).is_file()] == []
    for name, path in re.findall(r"`(?:heedful\.nn\.)?([A-Za-z_]+)` in `([\w/]+\.py)`", TEXT):
        source = (ROOT / "src" / "heedful" / path).read_text(encoding="utf-8")
        assert re.search(rf"(?:class|def) {name}\b|\b{name}\b.*[:=]", source), f"{name} in {path}"


def test_recipes_exist():
    named = backticked("recipes?")
    assert len(named) > 30
    assert named - set(recipe_names()) == set()


def test_wirings_and_cells_exist():
    wirings = {type_of(member) for member in types_in(WiringConfig)}
    assert backticked("wirings?") - wirings == set()
    cells = {*CELL_CLASSES, *INTRA_ATTENTION_CELLS}
    named_cells = backticked("cells?") | set(re.findall(r"`cell: (\w+)`", TEXT))
    assert named_cells - cells == set()


def test_folders_used_once():
    trainings = [command for command in COMMANDS if "--run runs/" in command]
    folders = [re.findall(r"--run (\S+)", command)[0] for command in trainings]
    assert sorted(folders) == sorted(set(folders))
    runs = {}  # a comparison may name a run again, with the same data and budget
    for command in COMMANDS:
        if command.startswith("heedful compare"):
            folder = (re.findall(r"-o (\S+)", command) or ["comparison"])[0]
            (data,) = re.findall(r"--data (\S+)", command)
            (budget,) = re.findall(r"--(?:steps|minutes) \S+", command)
            assert runs.setdefault(folder, (data, budget)) == (data, budget)


@each_command
def test_command_parses(command):
    program, *arguments = shlex.split(command)
    if program == "python":
        check_python_command(arguments)
        return
    assert program == "heedful"
    assert mistakes(command) == []
    name, *options = arguments
    context = parse(commands()[name], options)
    if context is None:  # --help
        return
    if name in ("train", "prepare", "recipes", "compare"):
        check_recipes(name, context.params)


def parse(command, arguments):
    try:
        return command.make_context(command.name, list(arguments))
    except (click.exceptions.Exit, typer.Exit):
        return None


def check_recipes(name, parameters):
    """Check that the recipes of a command load with its settings, and that its data exist."""
    overrides = parameters.get("overrides") or ()
    recipes = [parameters.get("recipe") or parameters.get("name")]
    if name == "compare":
        recipes, data = parameters["recipes"].split(","), parameters["data"]
        assert data in (*SYNTHETIC_CORPORA, *recipe_names()) or (ROOT / data).is_file()
    for recipe in filter(None, recipes):
        assert recipe in recipe_names() or (ROOT / recipe).is_file(), recipe
        is_file = recipe not in recipe_names()
        loaded = load_recipe(str(ROOT / recipe) if is_file else recipe, list(overrides))
        if overrides and loaded.task.name == "translation":
            with torch.device("meta"):
                loaded.model.build(source_vocab_size=9, target_vocab_size=9)


def check_python_command(arguments):
    option, module, *options = arguments
    assert option == "-m"
    if module in ("pytest", "tools.draw_attention"):
        assert options
        assert all((ROOT / path.partition("::")[0]).is_file() for path in options), options
    elif options == ["--help"]:
        assert find_spec(module)
    else:
        app = typer.Typer()
        app.command()(import_module(module).main)
        parse(typer.main.get_command(app), options)


def test_numbers_of_the_page_are_right():
    exec(compile(python_of(TEXT), str(PAGE), "exec"), {"__name__": "page"})
