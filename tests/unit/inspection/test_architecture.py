"""The drawing of a built model: lines for all parameters, and arrows where data flow."""

from itertools import combinations
from xml.etree import ElementTree

import pytest
import torch

from heedful.cli.runs import trace_architecture
from heedful.inspection.architecture import VOCABULARY
from heedful.inspection.architecture_drawing import _Drawing, render_svg
from heedful.recipes import load_recipe, recipe_names
from tests.commands import heedful

DIFFERENT = [  # one of each kind of model
    "luong-2015-dot-small",
    "transformer-2017-tiny",
    "gpt-tiny",
    "show-attend-tell-2015-soft-small",
    "ram-2014-small",
    "stacked-bilstm-small",
]


def trace(name, *settings):
    return trace_architecture(load_recipe(name, list(settings)))


def find(block, role):
    (found,) = [one for one in walk(block) if one.role == role]
    return found


def walk(block):
    yield block
    for child in block.children:
        yield from walk(child)


def arrows(block):
    return {(start.role, end.role) for start, end in block.edges}


def owned(model):
    """Yield the number of parameters of each module itself, by path."""
    for path, module in model.named_modules():
        yield path, sum(one.numel() for one in module._parameters.values() if one is not None)


def drawn_parameters(block, sizes):
    """Return how many parameters the lines of a block stand for; each path is used up."""
    own = sum(sizes.pop(path, 0) for path in block.paths)
    return block.copies * (own + sum(drawn_parameters(one, sizes) for one in block.children))


def check_architecture(name):
    recipe = load_recipe(name)
    architecture = trace_architecture(recipe)
    with torch.device("meta"):
        sizes = recipe.model.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    sizes = dict(owned(sizes))
    total = sum(sizes.values())
    for block in walk(architecture.root):  # of a module with parts, by their own paths
        parameters = [path for path in block.paths if path not in sizes]
        for path in parameters:
            outer = path.rpartition(".")[0]
            sizes[path], sizes[outer] = sizes[outer], 0
    assert drawn_parameters(architecture.root, sizes) == total
    check_boxes(architecture)


def check_boxes(architecture):
    """Check that boxes lie in the box around them, and that none overlaps another."""
    ElementTree.fromstring(render_svg(architecture, title="model"))
    drawing = _Drawing(architecture)
    drawing.plan(architecture.root, 0)
    drawing.place(architecture.root, 0, 0)
    for block in walk(architecture.root):
        inner = [drawing.boxes[one] for one in block.children if one in drawing.boxes]
        assert all(lies_in(one, drawing.boxes[block]) for one in inner), block.role
        assert not any(overlap(*pair) for pair in combinations(inner, 2)), block.role


def lies_in(inner, outer):
    return all(
        outer[axis] <= inner[axis]
        and inner[axis] + inner[axis + 2] <= outer[axis] + outer[axis + 2]
        for axis in (0, 1)
    )


def overlap(first, second):
    return all(
        first[axis] < second[axis] + second[axis + 2]
        and second[axis] < first[axis] + first[axis + 2]
        for axis in (0, 1)
    )


@pytest.mark.parametrize("name", DIFFERENT)
def test_lines_stand_for_all_parameters_and_boxes_are_apart(name):
    check_architecture(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_drawn(name):
    check_architecture(name)


def test_bahdanau_attends_before_the_step():
    architecture = trace("bahdanau-2015-small")
    wiring = find(architecture.root, "wiring")
    assert [part.role for part in wiring.children] == ["attention", "cells", "pre_output"]
    assert arrows(wiring) == {
        ("attention", "cells"),
        ("cells", "pre_output"),
        ("attention", "pre_output"),
        ("cells", "attention"),  # of the next step
    }
    inputs = {(start.role, end.role) for start, end in architecture.inputs}
    assert inputs == {("encoder", "score"), ("encoder", "readout"), ("encoder", "bridge")}


def test_luong_attends_after_the_step_and_feeds_its_output_to_the_next():
    wiring = find(trace("luong-2015-dot-small").root, "wiring")
    assert [part.role for part in wiring.children] == ["cells", "attention", "pre_output"]
    forward = {("cells", "attention"), ("attention", "pre_output"), ("cells", "pre_output")}
    assert arrows(wiring) == forward | {("pre_output", "cells")}
    setting = "model.decoder.wiring.input_feeding=false"
    assert arrows(find(trace("luong-2015-dot-small", setting).root, "wiring")) == forward


def test_equal_layers_are_drawn_once_with_their_number():
    root = trace("transformer-2017-base").root
    encoder, decoder = root.children
    assert find(encoder, "layers 0 \u2013 5").label[0] == "layers 0 \u2013 5 \u00d7 6"
    layer = find(decoder, "layers 0 \u2013 5")
    assert ("self_attention_residual", "cross_attention") in arrows(layer)
    assert find(encoder, "value_projection").label == ("value_projection", "Linear 512 \u2192 512")


def test_no_arrow_passes_a_sample():
    root = trace("ram-2014-small").root
    assert arrows(root) == {("network", "core"), ("core", "classifier")}
    assert "policy" in [block.role for block in root.children]


def test_command_draws_a_recipe(tmp_path, capsys, monkeypatch):
    path = tmp_path / "model.svg"
    drawn = heedful(capsys, monkeypatch, "recipes", "luong-2015-dot-small", "--svg", path)
    assert (drawn.code, drawn.out, drawn.err) == (0, "", f"wrote {path}\n")
    assert "StepThenAttend" in path.read_text(encoding="utf-8")
    refused = heedful(capsys, monkeypatch, "recipes", "--svg", path)
    assert refused.code == 2
    assert "--svg: draws one recipe" in refused.err
