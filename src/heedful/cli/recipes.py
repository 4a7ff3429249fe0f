"""`heedful recipes`: the systems that can be trained by name."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from heedful.cli.options import writing_output


def recipes(
    name: Annotated[str | None, typer.Argument(help="show this recipe whole")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of every setting")
    ] = False,
) -> None:
    """List the recipes, show one, or print the schema that editors complete YAML by.

    Example: heedful recipes reverse-tiny > mine.yaml
    """
    from heedful.config import write_yaml
    from heedful.recipes import Recipe, load_recipe, recipe_names

    with writing_output():
        if schema:
            typer.echo(json.dumps(Recipe.model_json_schema(), indent=2))
        elif name:
            typer.echo(write_yaml(load_recipe(name)), nl=False)
        else:
            names = recipe_names()
            width = max(map(len, names))
            for each in names:
                typer.echo(f"{each:<{width}}  {load_recipe(each).about.summary}")
