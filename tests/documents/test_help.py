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
def test_command_help_has_valid_examples(name):
    examples = printed_examples(name)
    assert any(example.startswith(f"heedful {name}") for example in examples)
    assert [unknown for example in examples for unknown in mistakes(example)] == []


def printed_examples(name):
    paragraph = help_of(name).split("Examples:\n")[1].split("\n\n")[0]
    return [line.strip() for line in paragraph.splitlines()]


@each_command
def test_examples_printed_whole_on_80_columns(name):
    command = next(command for command in _COMMANDS if command.__name__.rstrip("_") == name)
    written = re.findall(r"Example: (.+)", command.__doc__)
    assert printed_examples(name) == written
    assert max(map(len, written)) <= 80 - len("    ")


def test_commands_listed_with_whole_sentences():
    shown = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, ["-h"]).output
    assert "..." not in shown.split("Commands:")[1]
    words = " ".join(shown.split())
    assert all(" ".join(command.__doc__.split(".")[0].split()) in words for command in _COMMANDS)


@each_command
def test_short_form_of_output_options(name):
    for option in commands()[name].params:
        if {"--output", "--output-dir"} & {*option.opts}:
            assert "-o" in option.opts


@each_command
def test_options_and_arguments_have_help(name):
    parameters = commands()[name].params
    assert [option.name for option in parameters if not getattr(option, "help", "")] == []
