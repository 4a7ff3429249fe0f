"""Maps of more weights than a page gets at once: from tiles, with exact rows on demand."""

import json
import time
from urllib.parse import quote

import numpy as np
import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.parallel import available_cores
from heedful.tasks.language_modeling.generator import GenerationOptions
from tests.browser.inspecting import TIMEOUT, draw_text, settle, write_long_run
from tests.serving.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.wide]

LAYER, HEAD = "backbone.stack.layers.1.self_attention.attention", 2
SHORT, LONG = 1100, 8192  # tokens
MEBIBYTE = 1024  # of the kibibytes of /proc
FIRST_PICTURE, HOVER = 3, 100  # seconds, milliseconds; on an idle machine
COUNT_PEAKS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const shades = [];
  for (let start = 0; start < data.length; start += 4) shades.push(data[start]);
  return [canvas.width, shades];
}"""
HAS_PICTURE = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.some((byte, index) => byte !== data[index % 4]);
}"""
# Measures the milliseconds from a move of the pointer to the weight that is read there.
WATCH_READING = """map => {
  const note = () => { map.moved ??= performance.now(); };
  map.addEventListener("pointermove", note, { capture: true });
  new MutationObserver(() => {
    if (map.reading.textContent.includes(":")) map.waited ??= performance.now() - map.moved;
  }).observe(map.reading, { childList: true, characterData: true, subtree: true });
}"""
# Draws the map as if it were dragged, and returns the milliseconds of each frame.
DRAG = """async map => {
  const times = [];
  for (let index = 0; index < 40; index += 1) {
    map.top = (map.top + 37) % 400;
    map.left = (map.left + 53) % 400;
    const start = performance.now();
    map.draw();
    map.canvas.getContext("2d").getImageData(0, 0, 1, 1); // until it is painted
    times.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return times.sort((one, two) => one - two);
}"""


def memory_of(pid):
    """Return the resident memory of a process in MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        (size,) = (line.split()[1] for line in lines if line.startswith("VmRSS"))
    return int(size) / MEBIBYTE


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    return write_long_run(tmp_path_factory.mktemp("long") / "long", LONG)


@pytest.fixture(scope="module")
def server(long_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    limits = "--max-characters", 10_000, "--timeout", 600
    all_threads = {"OMP_NUM_THREADS": str(available_cores())}
    with running(folder, f"long={long_run}", "--ui", *limits, environment=all_threads) as server:
        yield server


def link_to(num_tokens, edits=(), **fields):
    state = {
        "model": "long",
        "input": draw_text(num_tokens),
        "options": {"max_new_tokens": 0},
        "edits": [edit.to_json() for edit in edits],
        "view": HEAD,  # the default layer comes first
        **fields,
    }
    return f"/#{quote(json.dumps(state))}"


@pytest.fixture
def open_map(chromium, server):
    context, errors = chromium.new_context(), []

    def open_map(num_tokens, edits=(), **fields):
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server.url}{link_to(num_tokens, edits, **fields)}")
        page.wait_for_selector("tiled-attention canvas", timeout=TIMEOUT)
        settle(page)
        return page

    yield open_map
    context.close()
    ours = "404", "willReadFrequently"  # of explanations that are held no more; of these tests
    assert [error for error in errors if not any(text in error for text in ours)] == []


def set_peak(row, column):
    return AttentionEdit(layer=LAYER, step=row, head=HEAD, set={column: 0.9})


def explain(run, num_tokens, edits):
    predictor = heedful.load(run, device="cpu")
    options = GenerationOptions(max_new_tokens=0)
    explained = predictor.explain(draw_text(num_tokens), options, edits=edits, need_effects=False)
    return next(layer for layer in explained.layers if layer.path == LAYER)


def wait_for_tiles(page):
    page.wait_for_load_state("networkidle", timeout=TIMEOUT)
    page.wait_for_timeout(500)


def point_at(page, row, column, size):
    """Move the pointer to a cell, and return what is read there."""
    box = page.locator("map-canvas canvas").bounding_box()
    x, y = (
        box[side] * (place + 0.5) / size for side, place in (("width", column), ("height", row))
    )
    page.locator("map-canvas canvas").hover(position={"x": x, "y": y})
    return reading_of(page)


def reading_of(page):
    reading = page.locator("map-canvas .reading")
    reading.filter(has_text=":").wait_for(timeout=TIMEOUT)
    return reading.inner_text()


def chosen_cell(page):
    chosen = page.locator("map-canvas").evaluate("map => map.chosen")
    return chosen["row"], chosen["column"]


SUPERSCRIPTS = str.maketrans(
    "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "-0123456789"
)


def read_number(text):
    """Return the number that `formatNumber` wrote."""
    mantissa, _, power = (
        text.rpartition("10") if text[-1] in "\u2074\u2075\u2076\u00b3" else (text, "", "0")
    )
    return float(mantissa.rstrip("\N{MIDDLE DOT}") or 1) * 10 ** int(power.translate(SUPERSCRIPTS))


def test_tiles_and_rows_are_those_of_python(server, long_run):
    edits = [set_peak(700, 30)]
    layer = explain(long_run, SHORT, edits)
    body = {"model": "long", "input": draw_text(SHORT), "options": {"max_new_tokens": 0}}
    answer = server.post("/v1/explain", body | {"edits": [edit.to_json() for edit in edits]}).json
    shown = answer["layers"][1]
    assert (shown["path"], shown["weights"], shown["shape"]) == (
        LAYER,
        None,
        list(layer.weights.shape),
    )
    path = f"/v1/traces/{answer['trace']}"
    row = server.get(f"{path}/row?layer=1&head={HEAD}&query=700")
    np.testing.assert_allclose(np.frombuffer(row.body, "<f4"), layer.weights[HEAD, 700], atol=1e-6)
    tile = server.get(f"{path}/tile?layer=1&head={HEAD}&level=0&x=0&y=2")
    cells = np.frombuffer(tile.body, np.uint8).reshape(256, 256)
    assert cells[700 - 512, 30] == np.ceil(255 * np.float32(0.9))
    np.testing.assert_array_equal(cells > 0, layer.weights[HEAD, 512:768, :256] > 0)
    whole = server.get(f"{path}/tile?layer=1&head={HEAD}&level=3&x=0&y=0")
    assert whole.body[700 // 8 * 256 + 30 // 8] == cells[700 - 512, 30]
    known = server.get(
        f"{path}/row?layer=1&head={HEAD}&query=700", headers={"If-None-Match": row.headers["etag"]}
    )
    assert (known.status, known.body) == (304, b"")
    for query, status in (("tile?level=9&x=0&y=0", 422), ("row?query=-1", 422)):
        assert server.get(f"{path}/{query}").status == status
    assert server.get("/v1/traces/none/row?query=0").status == 404


def test_large_map_is_read_edited_and_restored(open_map, long_run):
    page = open_map(SHORT)
    wait_for_tiles(page)
    reading = point_at(page, 700, 30, SHORT - 1)
    row, column = chosen_cell(page)
    weights = explain(long_run, SHORT, ()).weights[HEAD]
    assert read_number(reading.rsplit(": ", 1)[1]) == pytest.approx(weights[row, column], rel=1e-3)
    page.mouse.down()
    page.mouse.up()
    assert page.locator("tiled-attention .source .word.chosen").count() == 1
    page.locator("map-canvas summary").click()
    assert page.locator("map-canvas tbody tr").count() == 50
    page.locator("map-canvas canvas").focus()
    row, column = chosen_cell(page)
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.keyboard.press("f")
    settle(page)
    assert reading_of(page).endswith(": 1")
    assert f"step {row + 1} head {HEAD + 1}" in page.text_content("edit-pane")
    assert page.locator("map-canvas").evaluate("map => map.marks") == [[row, column]]
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.keyboard.press("u")
    settle(page)
    assert page.locator("map-canvas").evaluate("map => map.marks") == []


def test_map_that_the_server_holds_no_more_is_explained_again(open_map, server):
    page = open_map(SHORT)
    wait_for_tiles(page)
    for text in ("other", "texts", "come", "between"):
        body = {"model": "long", "input": text + draw_text(SHORT), "options": {"max_new_tokens": 0}}
        assert server.post("/v1/explain", body).status == 200
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.locator("map-canvas canvas").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
    settle(page)
    wait_for_tiles(page)
    assert ":" in point_at(page, 700, 30, SHORT - 1)


@pytest.mark.slow
def test_large_map_keeps_its_limits_of_time_and_memory(chromium, open_map, server, long_run):
    """For an idle machine; `pytest -s` shows what was measured."""
    (worker,) = server.worker_pids()[1:]
    before, start = memory_of(worker), time.monotonic()
    page = open_map(LONG)
    while not page.locator("map-canvas canvas").evaluate(HAS_PICTURE):
        page.wait_for_timeout(20)
    first = time.monotonic() - start
    print(f"first picture after {first:.1f} s")
    wait_for_tiles(page)
    times = page.locator("map-canvas").evaluate(DRAG)
    print(f"frame: median {times[20]:.1f} ms, longest {times[-1]:.1f} ms")
    page.locator("map-canvas").evaluate("map => map.zoomBy(8)")
    wait_for_tiles(page)
    closer = page.locator("map-canvas").evaluate(DRAG)
    print(f"frame at 8x: median {closer[20]:.1f} ms, longest {closer[-1]:.1f} ms")
    page.locator("map-canvas").evaluate("map => map.zoomBy(0)")
    session = chromium.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    tab = max(memory_of(one["id"]) for one in processes if one["type"] == "renderer")
    page.locator("map-canvas").evaluate(WATCH_READING)
    point_at(page, 5000, 321, LONG - 1)
    hover = page.locator("map-canvas").evaluate("map => map.waited")
    grown = memory_of(worker) - before
    print(f"hover {hover:.0f} ms, tab {tab:.0f} MiB, worker + {grown:.0f} MiB")
    assert max(times[20], closer[20]) < 50
    assert hover < HOVER
    assert first < FIRST_PICTURE
    assert tab < 400
    assert grown < 300


@pytest.mark.slow
@pytest.mark.parametrize("is_faint", [False, True])
def test_single_weight_of_a_large_map_is_visible_at_the_lowest_zoom(open_map, is_faint):
    row, column = 5000, 321
    page = open_map(LONG, [set_peak(row, column)])
    wait_for_tiles(page)
    page.locator(".switch input").set_checked(is_faint)
    page.locator("map-canvas").evaluate("map => { map.marks = []; map.draw(); }")
    side, shades = page.locator("map-canvas canvas").evaluate(COUNT_PEAKS)
    x, y = (int(place * side / (LONG - 1)) for place in (column, row))
    around = [
        shades[line * side + pixel] for line in (y - 1, y, y + 1) for pixel in (x - 1, x, x + 1)
    ]
    usual = sorted(shades)[len(shades) // 2]
    assert abs(min(around) - usual) > 100 or abs(max(around) - usual) > 100
