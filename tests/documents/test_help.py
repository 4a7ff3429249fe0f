"""Every command has help with an example that works."""

import re
from functools import cache

import pytest
from typer.testing import CliRunner

from heedful.cli.main import _COMMANDS, app
from tests.documents.commands import commands, mistakes

each_command = pytest.mark.parametrize("name", sorted(commands()))


@cache
def help_of(name):
    """Return the help of a command as a terminal of 80 columns shows it."""
    result = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, [name, "-h"])
    assert result.exit_code == 0
    return result.output


@each_command
def test_command_has_help_without_escapes(name):
    assert f" {name} [OPTIONS]" in help_of(name)
    assert "\\" not in help_of(name)
    assert "-h, --help" in help_of(name)


@each_command
def test_command_help_has_valid_examples_printed_whole_on_80_columns(name):
    command = next(command for command in _COMMANDS if command.__name__.rstrip("_") == name)
    examples = printed_examples(name)
    assert any(example.startswith(f"heedful {name}") for example in examples)
    assert [unknown for example in examples for unknown in mistakes(example)] == []
    assert examples == re.findall(r"Example: (.+)", command.__doc__)
    assert max(map(len, examples)) <= 80 - len("    ")


def printed_examples(name):
    paragraph = help_of(name).split("Examples:\n")[1].split("\n\n")[0]
    return [line.strip() for line in paragraph.splitlines()]


def test_commands_listed_with_whole_sentences():
    shown = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, ["-h"]).output
    assert "..." not in shown.split("Commands:")[1]
    words = " ".join(shown.split())
    assert all(" ".join(command.__doc__.split(".")[0].split()) in words for command in _COMMANDS)


def test_options_and_arguments_have_help_and_output_options_a_short_form():
    options = [(name, option) for name in commands() for option in commands()[name].params]
    assert [pair for pair in options if not getattr(pair[1], "help", "")] == []
    output = [pair for pair in options if {"--output", "--output-dir"} & {*pair[1].opts}]
    assert [pair for pair in output if "-o" not in pair[1].opts] == []
