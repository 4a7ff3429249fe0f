"""`heedful recipes`: the systems that can be trained by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from heedful.cli.options import handle_stdout_errors


def recipes(
    name: Annotated[str | None, typer.Argument(help="show this recipe whole")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of every setting")
    ] = False,
) -> None:
    """List the recipes, show one, or print the schema that editors complete YAML by.

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
    """List every system in a line, with its other forms, and say how these are named."""
    from heedful.recipes import load_recipe
    from heedful.recipes.recipe import recipe_groups

    rows = [(name, ", ".join(forms)) for name, forms in recipe_groups()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, forms in rows:
        summary = load_recipe(name).info.summary
        yield f"{name:<{widths[0]}}  {forms:<{widths[1]}}  {summary}"
    yield ""
    yield "The second column names other sizes of a system, as in bahdanau-2015-small; a small one"
    yield "learns a built-in corpus in minutes. The first has the sizes of its paper."
