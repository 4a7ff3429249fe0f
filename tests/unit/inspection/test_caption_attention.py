import io
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from heedful.errors import DataError
from heedful.inspection import image_attention
from heedful.inspection.figures import CaptionAttention, caption_data
from heedful.inspection.image_attention import PeakCell
from heedful.inspection.terminal_figures import SHADES, terminal_sheet
from heedful.plotting import raster, svg

WORDS = ["a", "red", "dog"]
WEIGHTS = np.array(
    [
        [[0.25, 0.25, 0.0], [0.25, 0.25, 0.0]],
        [[0.0, 0.1, 0.8], [0.0, 0.0, 0.1]],
        [[0.1, 0.0, 0.0], [0.2, 0.0, 0.0]],
    ]
)
PHOTO = np.random.default_rng(1).integers(0, 256, (120, 180, 3), dtype=np.uint8)
SVG = f"{{{svg.NAMESPACE}}}"


@pytest.fixture
def photo():
    return CaptionAttention(PHOTO, WORDS, WEIGHTS, gates=[0.2, 1, 0.005], title="dog.jpg")


@pytest.fixture
def bare():
    return CaptionAttention(None, WORDS, WEIGHTS)


# ----- data -----


def test_strength_is_relative_to_the_largest_weight_of_the_word(bare):
    expected = WEIGHTS / np.array([0.25, 0.8, 0.2])[:, None, None]
    np.testing.assert_allclose(bare.strengths, expected)


def test_word_without_attention_has_no_strength():
    nowhere = CaptionAttention(None, ["the"], np.zeros((1, 2, 2)))
    assert (nowhere.strengths == 0).all()
    assert nowhere.notes == ["max 0%"]


def test_small_shares_not_called_zero():
    weights = np.full((2, 2, 2), 0.004)
    drawn = CaptionAttention(None, ["a", "of"], weights, gates=[0.0049, 0.005])
    assert drawn.notes == ["max <1%, gate <1%", "max <1%, gate 1%"]
    assert "max &lt;1%, gate &lt;1%" in drawn.to_svg()


def test_peak_is_the_cell_with_the_largest_weight(bare):
    assert bare.peaks == [PeakCell(0, 0, 0.25), PeakCell(0, 2, 0.8), PeakCell(1, 0, 0.2)]


def test_notes_have_the_largest_weight_and_the_gate(photo, bare):
    assert photo.notes == ["max 25%, gate 20%", "max 80%, gate 100%", "max 20%, gate 1%"]
    assert bare.notes == ["max 25%", "max 80%", "max 20%"]


def test_json_has_words_weights_and_gates(photo, bare):
    assert photo.to_json() == {
        "label": "",
        "words": WORDS,
        "weights": WEIGHTS.tolist(),
        "gates": [0.2, 1.0, 0.005],
    }
    assert "gates" not in bare.to_json()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"words": ["a"]},
            "caption_attention: weights of 1 word must be (words, rows, columns), found (3, 2, 3)\n"
            "  give a grid of weights for each word",
        ),
        (
            {"weights": WEIGHTS.reshape(3, 6)},
            "caption_attention: weights of 3 words must be (words, rows, columns), found (3, 6)\n"
            "  give a grid of weights for each word",
        ),
        (
            {"weights": 2 * WEIGHTS},
            "caption_attention: 'a': the weights sum to 2\n"
            "  give attention weights: none negative, each grid summing to at most one",
        ),
        (
            {"weights": -WEIGHTS},
            "caption_attention: 'a': a weight is negative: -0.25\n"
            "  give attention weights: none negative, each grid summing to at most one",
        ),
        (
            {"weights": WEIGHTS * np.array([1, np.nan, 1])[:, None, None]},
            "caption_attention: 'red': a weight is not a finite number\n"
            "  give attention weights: none negative, each grid summing to at most one",
        ),
        (
            {"gates": [0.5]},
            "caption_attention: 1 gate for 3 words\n"
            "  give a number from 0 to 1 for each word, or None",
        ),
        (
            {"gates": [0.5, 1.5, 0]},
            "caption_attention: 'red': the gate is 1.5\n"
            "  give a number from 0 to 1 for each word, or None",
        ),
    ],
)
def test_bad_values_reported(bare, changes, message):
    with pytest.raises(DataError) as error:
        replace(bare, **changes)
    assert str(error.value) == message


# ----- terminal -----


def printed(attention, **options):
    console = Console(file=io.StringIO(), **options)
    attention.to_terminal(console)
    return console.file.getvalue()


def test_terminal_without_color_shades_cells(bare):
    lines = printed(bare, width=70, no_color=True).split("\n")
    empty, light, _, _, full = SHADES
    assert lines[2].split() == WORDS
    assert lines[3].split("max ")[1:] == ["25%" + 13 * " ", "80%" + 13 * " ", "20%"]
    assert lines[4][:6] == 4 * full + 2 * empty
    assert lines[4][20:26] == 4 * empty + 2 * full
    assert lines[5][20:26] == 6 * empty  # an eighth is nearer to none than to a quarter
    assert lines[4][40:42] == 2 * SHADES[2]
    assert light not in "".join(lines)


def test_terminal_pixels_are_those_of_the_blended_image():
    attention = CaptionAttention(PHOTO[:20, :20], ["dog"], np.eye(4).reshape(1, 4, 4) / 4)
    sheet = terminal_sheet(attention, width=80)
    assert "(picture)" in sheet.plain
    strength = raster.resize(np.eye(4), 20, 20)
    expected = raster.blend_attention(PHOTO[:20, :20], strength)
    lines = [line for line in sheet.split("\n") if raster.UPPER_HALF_BLOCK in line.plain]
    assert len(lines) == 10
    for row, line in enumerate(lines):
        spans = [span for span in line.spans if not isinstance(span.style, str)]
        assert len(spans) == 40  # the image, then the word
        for column, span in enumerate(spans[20:]):
            assert tuple(span.style.color.triplet) == tuple(expected[2 * row, column])
            assert tuple(span.style.bgcolor.triplet) == tuple(expected[2 * row + 1, column])


odd_words = st.lists(st.text(st.characters(codec=None), max_size=30), min_size=1, max_size=8)


@settings(deadline=None, max_examples=40)
@given(
    odd_words,
    st.tuples(st.integers(1, 30), st.integers(1, 60)),
    st.integers(10, 100),
    st.sampled_from(["none", "square", "wide", "high"]),
    st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(words, grid, width, image, has_color):
    sizes = {"none": None, "square": (9, 9), "wide": (3, 90), "high": (90, 3)}
    pixels = None if sizes[image] is None else np.zeros((*sizes[image], 3), dtype=np.uint8)
    weights = np.full((len(words), *grid), 1 / (grid[0] * grid[1]))
    attention = CaptionAttention(pixels, words, weights, title=words[0])
    sheet = terminal_sheet(attention, width=width, has_color=has_color)
    assert max(cell_len(line) for line in sheet.plain.split("\n")) <= max(width, 24)


def test_empty_caption_has_nothing_to_draw():
    empty = CaptionAttention(PHOTO, [], np.zeros((0, 2, 2)), title="dog.jpg")
    assert empty.is_empty
    assert printed(empty, width=40).split("\n")[:2] == ["dog.jpg", "nothing to draw"]
    assert svg.NOTHING_TO_DRAW in empty.to_svg()
    assert caption_data([empty])["cards"][0]["views"][0]["words"] == []


# ----- SVG -----


def tiles(attention):
    root = ElementTree.fromstring(attention.to_svg())
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == "tile"]


def test_sheet_has_a_tile_for_each_word(photo):
    assert [tile.get("data-word") for tile in tiles(photo)] == WORDS
    titles = [tile.findtext(f"{SVG}title") for tile in tiles(photo)]
    assert titles[1] == "red: row 1, column 3, max 80%, gate 100%"
    bars = [bar.get("data-gate") for tile in tiles(photo) for bar in tile if bar.get("data-gate")]
    assert bars == ["0.2", "1", "0.005"]


def test_cells_of_a_grid_have_weights(bare):
    for tile, grid in zip(tiles(bare), WEIGHTS, strict=True):
        cells = [float(cell.get("data-weight")) for cell in tile if cell.get("data-weight")]
        assert cells == grid.ravel().tolist()


def test_outline_is_around_the_largest_cell(photo):
    for tile, peak in zip(tiles(photo), photo.peaks, strict=True):
        (outline,) = (node for node in tile if node.get("class") == "peak")
        (frame,) = (node for node in tile if node.get("class") == "frame")
        left, top = (float(outline.get(side)) - float(frame.get(side)) for side in "xy")
        width, height = (float(frame.get(side)) for side in ("width", "height"))
        assert (round(left / width * 3), round(top / height * 2)) == (peak.column, peak.row)


def test_sheet_refers_to_nothing_outside(photo):
    text = photo.to_svg()
    references = {
        value[:5] for node in ElementTree.fromstring(text).iter() if (value := node.get("href"))
    }
    assert references == {"data:", "#shee"}
    assert text.count("data:image/png") == 2 + len(WORDS)  # colors, gray and masks


def test_ids_of_two_sheets_differ(photo, bare):
    other = replace(photo, weights=WEIGHTS[::-1].copy())
    ids = [
        {node.get("id") for node in ElementTree.fromstring(text).iter()} - {None}
        for text in (photo.to_svg(), other.to_svg())
    ]
    assert len(ids[0]) == 2 + len(WORDS)
    assert not ids[0] & ids[1]


def test_markup_in_words_is_escaped(hostile):
    words = hostile.source
    weights = np.full((len(words), 1, 1), 1.0)
    attention = CaptionAttention(PHOTO, words, weights, title=hostile.title, caption=words[0])
    root = ElementTree.fromstring(attention.to_svg())
    assert {node.tag.removeprefix(SVG) for node in root.iter()} == {
        *("svg", "title", "desc", "style", "rect", "text", "defs", "symbol", "image", "use"),
        *("g", "mask"),
    }
    shown = [tile.get("data-word") for tile in tiles(attention)]
    assert shown == [svg.escape_invisible(word) for word in words]
    assert "<script>window" not in attention.to_html()


def test_sheet_describes_itself(photo):
    root = ElementTree.fromstring(photo.to_svg())
    assert root.findtext(f"{SVG}title") == "dog.jpg"
    assert root.findtext(f"{SVG}desc") == (
        "The cell of 2 x 3 each word attends to most. a: row 1, column 1, max 25%, gate 20%; "
        "red: row 1, column 3, max 80%, gate 100%; dog: row 2, column 1, max 20%, gate 1%."
    )


@pytest.mark.parametrize("shape", [(48, 48), (400, 100), (48, 320), (1, 1), (2000, 1000)])
def test_tiles_are_inside_the_sheet_and_do_not_overlap(shape):
    image = np.zeros(shape, dtype=np.uint8)
    attention = CaptionAttention(image, WORDS * 5, np.tile(WEIGHTS, (5, 1, 1)))
    layout = image_attention.SheetLayout(attention)
    boxes = [(*layout.corner(n), layout.tile_width, layout.tile_height) for n in range(16)]
    for index, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= layout.width
        assert y + height <= layout.height
        for left, top, *_ in boxes[:index]:
            assert x >= left + width or y >= top + height


# ----- PNG -----


def test_png_is_the_rendered_svg(bare, tmp_path):
    pytest.importorskip("resvg_py", reason="resvg-py is not installed")
    bare.to_png(tmp_path / "sheet.png")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    sheet = image.open(tmp_path / "sheet.png")
    layout = image_attention.SheetLayout(bare)
    for index, strength in enumerate(bare.strengths):
        for cell in np.ndindex(2, 3):
            x, y, width, height = layout.cell_box(index, cell, (2, 3))
            color = sheet.getpixel((round(2 * (x + width / 2)), round(2 * (y + height / 2))))
            expected = svg.weight_color(svg.LIGHT, strength[cell])
            np.testing.assert_allclose(color[:3], list(bytes.fromhex(expected[1:])), atol=2)


# ----- page -----


def test_views_of_one_caption_share_a_card(photo):
    second = replace(photo, weights=WEIGHTS[::-1].copy(), label="head 2")
    other = replace(photo, title="cat.jpg")
    cards = caption_data([photo, second, other])["cards"]
    assert [[view["label"] for view in card["views"]] for card in cards] == [["", "head 2"], [""]]
    assert cards[0]["picture"] == raster.to_data_uri(PHOTO)
    assert cards[0]["size"] == [120, 180]


def test_page_admits_only_images_that_it_contains(photo):
    page = photo.to_html()
    assert "default-src 'none'" in page
    assert "img-src data:;" in page
    assert "http://www.w3.org" not in page.replace(svg.NAMESPACE, "")


def test_notebook_shows_the_page_in_a_sandbox(photo):
    assert photo._repr_html_().startswith('<iframe sandbox="allow-scripts"')
