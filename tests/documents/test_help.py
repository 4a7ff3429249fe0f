"""Help: every command explains itself, with an example that would work."""

import re

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from tests.documents.commands import commands, mistakes

each_command = pytest.mark.parametrize("name", sorted(commands()))


@each_command
def test_every_command_explains_itself(name):
    outcome = CliRunner().invoke(app, [name, "--help"])
    assert outcome.exit_code == 0
    assert f" {name} [OPTIONS]" in outcome.output


@each_command
def test_every_command_shows_an_example_that_exists(name):
    examples = re.findall(r"Example: (.+)", commands()[name].help or "")
    assert any(example.startswith(f"heedful {name}") for example in examples)
    assert [found for example in examples for found in mistakes(example)] == []


@each_command
def test_every_option_and_argument_is_explained(name):
    unexplained = [each.name for each in commands()[name].params if not getattr(each, "help", "")]
    assert unexplained == []
