"""Custom elements of plotting/page that need more than a page of a run shows, in a real browser."""

import json
import shutil

import numpy as np
import pytest

from heedful.inspection.attention_map import AttentionMap, render_html
from heedful.plotting.html import bundle_modules, read_asset
from heedful.plotting.svg import DARK, LIGHT, css_variables

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

ROWS, COLUMNS = 40, 60
RANDOM = np.random.default_rng(5).dirichlet(np.full(COLUMNS, 0.1), ROWS)
LARGE = AttentionMap(
    [f"source{index}" for index in range(COLUMNS)],
    [f"target{index}" for index in range(ROWS)],
    RANDOM,
)


def script_page(module, style=("attention_map.css",)):
    """A page whose script is a module of the test."""
    script = bundle_modules(
        "test.js", read=lambda name: module if name == "test.js" else read_asset(name)
    )
    css = css_variables() + "".join(map(read_asset, style))
    head = f'<!doctype html><html lang="en"><title>test</title><style>{css}</style>'
    return f"{head}<main></main><script>{script}</script>"


def point_at(page, row, column, *, rows=ROWS, columns=COLUMNS):
    canvas = page.locator("map-canvas canvas")
    box = canvas.bounding_box()
    x, y = box["width"] * (column + 0.5) / columns, box["height"] * (row + 0.5) / rows
    canvas.hover(position={"x": x, "y": y})


def reading(page):
    return page.locator("map-canvas .reading").inner_text()


def test_pointer_on_a_large_map_reads_the_exact_weight(show):
    page = show(render_html([LARGE], title="Large"))
    assert page.locator(".cell").count() == 0
    for row, column in np.argwhere(RANDOM > 0.01)[[0, 50, -1]].tolist():
        point_at(page, row, column)
        shown, weight = reading(page).rsplit(": ", 1)
        assert shown == f"target{row} \u2192 source{column}"
        assert float(weight) == pytest.approx(RANDOM[row, column], rel=1e-3)
        assert page.locator(".source .word.chosen .token").inner_text() == f"source{column}"


def test_large_map_is_read_zoomed_and_listed_by_keyboard(show):
    page = show(render_html([LARGE], title="Large"))
    page.locator("map-canvas canvas").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)  # the first key enters the map at its corner
    assert reading(page).startswith("target1 \u2192 source1: ")
    for key in ("+", "+", *["ArrowRight"] * 40):
        page.keyboard.press(key)
    assert reading(page).startswith("target1 \u2192 source41: ")
    page.locator("map-canvas summary").click()
    page.locator("map-canvas canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    listed = page.locator("map-canvas tbody th").all_inner_texts()
    heaviest = np.argsort(-RANDOM[int(reading(page).split()[0].removeprefix("target"))])
    assert listed[:3] == [f"source{column}" for column in heaviest[:3]]
    page.keyboard.press("Escape")
    assert reading(page) == ""


@pytest.mark.parametrize("width", [400, 1200])
def test_large_map_fits_the_page(show, width):
    page = show(render_html([LARGE], title="Large"), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("map-canvas canvas").bounding_box()["width"] > 0.6 * min(width, 900)


# One weight of 0.9 among weights of a thousandth, at a place of its own.
PEAKS = """
import { AttentionHeatmap } from "./attention-heatmap.js";
import "./map-canvas.js";
const [size, peaks] = %s;
const tokens = Array.from({ length: size }, (_, index) => String(index));
const weights = tokens.map(() => new Float32Array(size).fill(0.001));
for (const [row, column] of peaks) weights[row][column] = 0.9;
const map = new AttentionHeatmap();
map.data = { source: tokens, target: tokens, weights };
document.querySelector("main").append(map);
"""
COUNT_FULL = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const pixels = [];
  for (let start = 0; start < data.length; start += 4) {
    if (data[start] === %d && data[start + 1] === %d && data[start + 2] === %d) {
      pixels.push([Math.floor(start / 4 / canvas.width), (start / 4) %% canvas.width]);
    }
  }
  return [canvas.width, pixels];
}"""


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
@pytest.mark.parametrize("size", [1025, pytest.param(8192, marks=pytest.mark.slow)])
def test_single_large_weight_is_visible_at_the_lowest_zoom(show, size, scheme, palette):
    peaks = [[0, 0], [size - 1, size - 1], [size // 3, size // 7], [1, size - 2]]
    page = show(script_page(PEAKS % json.dumps([size, peaks])), scheme=scheme)
    color = tuple(bytes.fromhex(palette.full_cell[1:]))
    side, pixels = page.locator("map-canvas canvas").evaluate(COUNT_FULL % color)
    assert side < size
    for row, column in peaks:
        y, x = row * side / size, column * side / size
        assert any(abs(top - y) <= 1 and abs(left - x) <= 1 for top, left in pixels)
    assert len(pixels) <= 4 * len(peaks)


def test_wheel_with_control_zooms_and_dragging_pans(show):
    page = show(script_page(PEAKS % json.dumps([1025, [[512, 512]]])))
    canvas = page.locator("map-canvas canvas")
    canvas.evaluate(
        "node => { const { x, y } = node.getBoundingClientRect();"
        " node.dispatchEvent(new WheelEvent('wheel',"
        " { deltaY: -400, ctrlKey: true, clientX: x + 360, clientY: y + 360 })); }"
    )
    view = "node => [node.zoom, node.top, node.left]"
    zoom, top, left = page.locator("map-canvas").evaluate(view)
    assert zoom == pytest.approx(4)
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 250, steps=4)
    page.mouse.up()
    _, panned_top, panned_left = page.locator("map-canvas").evaluate(view)
    scale = 1025 / 4 / box["width"]
    assert panned_left - left == pytest.approx(100 * scale, rel=0.05)
    assert panned_top - top == pytest.approx(50 * scale, rel=0.05)
    page.get_by_role("button", name="Whole map").click()
    assert page.locator("map-canvas").evaluate(view) == [1, 0, 0]


# A beam of 8 over 40 steps, of which half of the candidates are pruned.
TREE = """
import { BeamTree } from "./beam-tree.js";
const root = { parent: null, token: null, token_id: null, log_prob: 0, cumulative_log_prob: 0 };
const nodes = [{ ...root, status: "continued" }];
let beam = [0];
for (let step = 0; step < 40; step += 1) {
  const parents = beam;
  beam = [];
  for (let index = 0; index < 16; index += 1) {
    const status = index < 8 ? "continued" : "pruned";
    const parent = parents[index % parents.length];
    const node = { parent, token: `w${step}.${index}`, token_id: index };
    if (index < 8) beam.push(nodes.length);
    nodes.push({ ...node, log_prob: -1 - index / 4, cumulative_log_prob: -step - index, status });
  }
}
const tree = new BeamTree();
tree.data = { nodes, best: beam[0] };
document.querySelector("main").append(tree);
"""
COUNT_FRAMES = """() => {
  window.numFrames = 0;
  const count = () => { window.numFrames += 1; requestAnimationFrame(count); };
  requestAnimationFrame(count);
}"""


@pytest.mark.wide
def test_panned_tree_is_not_laid_out_again_and_keeps_its_frame_rate(show):
    page = show(script_page(TREE, ("attention_map.css",)))
    session = page.context.new_cdp_session(page)
    session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})  # of this page alone
    session.send("Performance.enable")

    def metrics():
        values = session.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in values}

    assert page.locator(".node").count() == 641
    box = page.locator(".tree").bounding_box()
    page.wait_for_timeout(500)
    page.evaluate(COUNT_FRAMES)
    before = metrics()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    for index in range(40):
        page.mouse.move(box["x"] + 600 - 10 * index, box["y"] + 100 - index)
    page.mouse.up()
    num_frames = page.evaluate("window.numFrames")
    spent = {name: value - before[name] for name, value in metrics().items()}
    assert spent["LayoutCount"] <= 1
    assert spent["TaskDuration"] / num_frames < 1 / 20
    view = page.locator("beam-tree").evaluate("tree => [tree.view.x, tree.view.y]")
    assert view == pytest.approx([-390, -39], abs=15)
