import pytest

from heedful.plotting.svg import DARK, DARK_TEXT_THRESHOLD, LIGHT, digit_color, weight_color
from tests.unit.plotting.colors import contrast, luminance

each_palette = pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])


@each_palette
def test_color_distance_increases_with_the_weight(palette):
    distances = [
        abs(luminance(weight_color(palette, step / 50)) - luminance(palette.empty_cell))
        for step in range(51)
    ]
    assert distances == sorted(set(distances))


@each_palette
def test_weights_zero_and_one_have_the_palette_colors(palette):
    assert weight_color(palette, 0) == palette.empty_cell
    assert weight_color(palette, 1) == palette.full_cell


@each_palette
def test_digits_are_readable_on_every_cell(palette):
    weights = [step / 1000 for step in range(1001)] + [DARK_TEXT_THRESHOLD + 1e-9]
    worst = min(contrast(digit_color(palette, w), weight_color(palette, w)) for w in weights)
    assert worst >= 4.5


@each_palette
def test_text_is_readable_on_the_background(palette):
    for color in (palette.text, palette.muted, palette.accent):
        assert contrast(color, palette.background) >= 4.5
