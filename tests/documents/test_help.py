"""Every command has help with an example that works."""

import re

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from tests.documents.commands import commands, mistakes

each_command = pytest.mark.parametrize("name", sorted(commands()))


@each_command
def test_command_has_help(name):
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f" {name} [OPTIONS]" in result.output


@each_command
def test_command_help_has_valid_examples(name):
    examples = re.findall(r"Example: (.+)", commands()[name].help or "")
    assert any(example.startswith(f"heedful {name}") for example in examples)
    assert [unknown for example in examples for unknown in mistakes(example)] == []


@each_command
def test_options_and_arguments_have_help(name):
    parameters = commands()[name].params
    assert [option.name for option in parameters if not getattr(option, "help", "")] == []
