"""Figures of attention over texts and over images."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from heedful.inspection import attention_map, figures
from heedful.inspection.attention_layers import AttentionLayer, TokenAxis, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_selection import AttentionSelection
from heedful.plotting.svg import NAMESPACE

RNG = np.random.default_rng(0)
GRID = (2, 3)
IMAGE = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
WEIGHTS = RNG.dirichlet(np.ones(6), size=3)
OVER_IMAGE = AttentionMap(
    [str(n) for n in range(6)],
    ["a", "do", "g"],
    WEIGHTS,
    title="dog.png",
    output="a dog",
    caption="cross-attention",
    grid=GRID,
    image=IMAGE,
    gates=[0.1, 0.5, 0.9],
)
OVER_TEXT = AttentionMap(["x", "y"], ["u"], np.array([[0.25, 0.75]]), title="x y", output="u")


def test_map_over_an_image_becomes_grids():
    attention = figures.to_caption_attention(OVER_IMAGE)
    np.testing.assert_array_equal(attention.weights, WEIGHTS.reshape(3, 2, 3))
    assert attention.image is IMAGE
    assert (attention.words, attention.gates) == (["a", "do", "g"], [0.1, 0.5, 0.9])
    assert attention.heading == ("dog.png", "a dog", "cross-attention")


def test_each_map_is_drawn_as_what_it_is():
    plain = figures.render_terminal(OVER_TEXT, width=60).plain
    assert " 25  75" in plain
    images = figures.render_terminal(OVER_IMAGE, width=60).plain
    assert "gate 50%" in images
    assert "a dog" not in images, "the heading is printed by the command"
    joined = ElementTree.fromstring(figures.render_svg([OVER_TEXT, OVER_IMAGE]))
    tiles = [node.get("data-word") for node in joined.iter() if node.get("data-word")]
    cells = [node for node in joined.iter(f"{{{NAMESPACE}}}rect") if node.get("data-weight")]
    assert (tiles, len(cells)) == (["a", "do", "g"], 2)


def page_data(page):
    blocks = re.findall(r'<script type="application/json" id="(\w+)">(.*?)</script>', page)
    return {name: json.loads(text) for name, text in blocks}


def test_page_has_all_maps():
    data = page_data(figures.render_html([OVER_IMAGE, OVER_TEXT], title="Both"))
    assert [card["title"] for card in data["maps"]["sentences"]] == ["x y"]
    assert [card["title"] for card in data["captions"]["cards"]] == ["dog.png"]


def test_page_of_one_kind_is_the_page_of_that_kind():
    texts = figures.render_html([OVER_TEXT], title="Page")
    assert texts == attention_map.render_html([OVER_TEXT], title="Page")
    attention = figures.to_caption_attention(OVER_IMAGE)
    images = figures.render_html([OVER_IMAGE], title="Page")
    assert images == figures.render_captions([attention], title="Page")


def test_json_has_the_grid_and_the_gates():
    fields = OVER_IMAGE.to_json()
    assert (fields["grid"], fields["gates"]) == ([2, 3], [0.1, 0.5, 0.9])
    assert not {"grid", "gates"} & OVER_TEXT.to_json().keys()


CELLS = without_words([str(n) for n in range(6)])._replace(grid=GRID)
TOKENS = TokenAxis(["a", "do", "g"], ["a", "dog"], [0, 1, 1])


def layer_of(gates, seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(6), size=(2, 3))
    return AttentionLayer("cross", TOKENS, CELLS, weights, is_default=True, gates=gates)


GATES = [np.array([[0.2, 0.4, 0.6], [0.4, 0.6, 0.8]]), np.array([[0.0, 0.2, 0.4], [0.2, 0.4, 0.6]])]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"heads": ["2"], "layers": ["1"]}, [0.4, 0.6, 0.8]),
        ({"layers": ["2"]}, [0.1, 0.3, 0.5]),
        ({}, [0.2, 0.4, 0.6]),
        ({"joins_words": True}, [0.2, 0.5]),
    ],
)
def test_selection_keeps_grid_and_averages_gates(options, expected):
    layers = [layer_of(gates, seed) for seed, gates in enumerate(GATES)]
    (drawn,) = AttentionSelection(**options).select(layers, OVER_IMAGE)
    assert drawn.grid == GRID
    assert drawn.image is IMAGE
    np.testing.assert_allclose(drawn.gates, expected)


def test_mean_of_layers_of_which_one_has_no_gates_has_none():
    layers = [layer_of(GATES[0], 0), layer_of(None, 1)]
    (drawn,) = AttentionSelection(layers=["mean"]).select(layers, OVER_IMAGE)
    assert drawn.gates is None
