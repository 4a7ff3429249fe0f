"""`heedful recipes`: list and print the bundled recipes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from heedful.cli.options import handle_stdout_errors


def recipes(
    name: Annotated[str | None, typer.Argument(help="recipe to print, with all settings")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of every setting")
    ] = False,
) -> None:
    """List the recipes, print one, or print the JSON Schema for editors.

    Example: heedful recipes reverse-tiny > mine.yaml
    """
    from heedful.config import to_yaml
    from heedful.recipes import Recipe, load_recipe

    with handle_stdout_errors():
        if schema:
            typer.echo(json.dumps(Recipe.model_json_schema(), indent=2))
        elif name:
            typer.echo(to_yaml(load_recipe(name)), nl=False)
        else:
            for line in _list_recipes():
                typer.echo(line)


def _list_recipes() -> Iterator[str]:
    """Yield a line for every system with its variants, and a note on their names."""
    from heedful.recipes import load_recipe
    from heedful.recipes.recipe import recipe_groups

    rows = [(name, ", ".join(variants)) for name, variants in recipe_groups()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, variants in rows:
        summary = load_recipe(name).info.summary
        yield f"{name:<{widths[0]}}  {variants:<{widths[1]}}  {summary}"
    yield ""
    yield "The second column lists variants, as in bahdanau-2015-small. The recipe itself"
    yield "has the sizes of the paper; its small variant learns a synthetic corpus in minutes."
