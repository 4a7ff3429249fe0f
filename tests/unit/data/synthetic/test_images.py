"""Built-in icons, formulas and shapes."""

import re
from itertools import combinations

import numpy as np
import pytest

from heedful.data.synthetic.corpus import assign_split
from heedful.data.synthetic.icons import (
    IconCorpus,
    Modifier,
    find_modifier,
    load_composer,
    load_icons,
    load_ink,
    select_agreeing,
    split_style,
)
from heedful.data.synthetic.images import (
    COLORS,
    FORMS,
    FORMULA_SIZE,
    SIZES,
    TOKEN_RANGE,
    BuiltInImagesConfig,
    FormulaGrammar,
    draw_formula,
    image_corpora,
    pad_formula,
)
from heedful.errors import DataError


def config(name="icons", split="train", num_examples=50, seed=0):
    return BuiltInImagesConfig(name=name, split=split, num_examples=num_examples, seed=seed)


def test_examples_are_rows_of_the_sheet():
    icons = config(split="test", num_examples=20)
    examples = icons.read()
    assert [example.image for example in examples] == list(range(20))
    images = icons.open_images().read([example.image for example in examples], "L")
    test_icons = load_icons("test")
    for example, image, icon in zip(examples, images, test_icons, strict=False):
        assert example.captions == (" ".join(icon.words),)
        assert np.array_equal(image[:, :, 0], 255 - load_ink()[icon.row])


def test_same_seed_returns_same_images():
    first = list(IconCorpus().images("train", 8, seed=3))
    again = list(IconCorpus().images("train", 8, seed=3))
    other = list(IconCorpus().images("train", 8, seed=4))
    assert [image.caption for image in first] == [image.caption for image in again]
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(first, again, strict=True))
    assert [image.caption for image in first] != [image.caption for image in other]


def test_split_has_no_more_images_than_it_has():
    assert len(config(split="dev", num_examples=10_000).read()) == len(load_icons("dev")) == 265
    assert len(load_icons("test")) == 629
    assert len(load_icons("train")) == 3892


def test_no_training_name_combines_words_that_are_held_out():
    held_out = load_composer().held_out
    assert len(held_out) == 431
    captions = [image.caption for image in IconCorpus().images("train", 6000)]
    pairs = {frozenset(pair) for name in captions for pair in combinations(name.split(), 2)}
    assert not pairs & held_out
    names = {" ".join(icon.words) for icon in load_icons("train")}
    assert 0.3 < np.mean([caption not in names for caption in captions]) < 0.4


def test_originals_are_the_training_icons_shifted():
    icons = {" ".join(icon.words): load_ink()[icon.row] for icon in load_icons("train")}
    for image in IconCorpus().images("originals", 100):
        ink = np.pad(icons[image.caption], 2)
        shifted = [255 - ink[y : y + 48, x : x + 48] for y in range(5) for x in range(5)]
        assert any(np.array_equal(image.pixels, pixels) for pixels in shifted)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_each_held_out_name_contains_pair_and_known_words(split):
    known = {word for icon in load_icons("train") for word in icon.words}
    for icon in load_icons(split):
        assert icon.held_out_pair <= set(icon.words) <= known


def test_modifier_is_the_ink_that_an_icon_adds():
    base, icon = np.zeros((2, 48, 48), np.uint8)
    base[4:40, 4:20] = icon[4:40, 4:20] = 255
    icon[36:44, 30:42] = 255
    is_extension, modifier = find_modifier("minus", base, icon)
    assert is_extension
    assert modifier.word == "minus"
    assert np.array_equal(modifier.ink, icon - base)
    rows, columns = np.nonzero(modifier.halo)
    assert (rows.min(), rows.max()) == (33, 46)  # three pixels around it
    assert (columns.min(), columns.max()) == (27, 44)


def test_another_image_is_no_extension():
    base, icon = np.zeros((2, 48, 48), np.uint8)
    base[:24], icon[36:] = 255, 255
    assert find_modifier("lock", base, icon) == (False, None)


def test_modifier_over_ink_of_the_base_is_not_separate():
    base = np.full((48, 48), 255, np.uint8)
    base[30:40, 30:40] = 0
    icon = np.full((48, 48), 255, np.uint8)
    assert find_modifier("dot", base, icon) == (True, None)


def test_unconfirmed_modifiers_skipped():
    inks = np.zeros((3, 48, 48), np.uint8)
    inks[0, 30:40, 30:40] = 255
    inks[1, 2:12, 4:13] = 255  # as high and almost as wide, elsewhere
    inks[2, 20:23, 0:48] = 255
    modifiers = [Modifier("dot", ink, ink > 0) for ink in inks]
    kept = select_agreeing(modifiers)
    assert [modifier is other for modifier, other in zip(kept, modifiers[:2], strict=True)] == [
        True,
        True,
    ]
    assert select_agreeing(modifiers[1:]) == []


def test_composite_is_the_modifier_over_the_base():
    composer = load_composer()
    rng = np.random.default_rng(0)
    inks = {icon.words: load_ink()[icon.row] for icon in composer.bases}
    for _ in range(20):
        words, image = composer.draw(rng)
        name, style = split_style(words)
        base = inks[(*name[:-1], *style)]
        composites = [
            np.maximum(np.where(modifier.halo, 0, base), modifier.ink)
            for modifier in composer.modifiers[name[-1]]
        ]
        assert any(np.array_equal(image, composite) for composite in composites)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("bell", "clock", "outline"), (("bell", "clock"), ("outline",))),
        (("bell", "clock"), (("bell", "clock"), ())),
        (("outline",), ((), ("outline",))),
    ],
)
def test_style_is_a_last_outline(words, expected):
    assert split_style(words) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"name": "icon"},
            "data: no set of built-in images is called 'icon'; did you mean 'icons'?\n"
            f"  choose from: {', '.join(sorted(image_corpora()))}",
        ),
        (
            {"split": "tests"},
            "icons: no split is called 'tests'; did you mean 'test'?\n"
            "  choose from: dev, originals, test, train",
        ),
    ],
)
def test_unknown_names_reported(changes, message):
    with pytest.raises(DataError) as caught:
        config(**changes).read()
    assert str(caught.value) == message


# ----- formulas


def balanced(tokens):
    depth = 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth < 0:
            return False
    return depth == 0


def test_grammar_writes_balanced_latex_with_one_equation():
    grammar = FormulaGrammar(np.random.default_rng(0))
    for _ in range(300):
        tokens = grammar.formula()
        assert balanced(tokens)
        assert tokens.count("=") <= 1
        for index, token in enumerate(tokens):
            if token in ("^", "_", r"\frac", r"\sqrt"):
                assert tokens[index + 1] == "{"


@pytest.mark.wide
def test_formulas_of_a_split_differ_and_splits_share_none():
    pytest.importorskip("matplotlib")
    captions = {
        split: [example.captions[0] for example in config("formulas", split, 8).read()]
        for split in ("train", "dev", "test", "long")
    }
    everything = [caption for texts in captions.values() for caption in texts]
    assert len(everything) == len(set(everything)) == 32
    for split in ("train", "dev", "test"):
        assert {assign_split(caption) for caption in captions[split]} == {split}
    assert all(len(text.split()) in TOKEN_RANGE for text in captions["test"])
    assert all(20 < len(text.split()) <= 30 for text in captions["long"])


def test_different_formulas_have_different_images():
    pytest.importorskip("matplotlib")
    formulas = config("formulas", num_examples=40)
    images = formulas.open_images().read(range(40), "L")
    assert len({image.tobytes() for image in images}) == 40
    assert {image.shape for image in images} == {(*FORMULA_SIZE, 1)}


@pytest.mark.wide
def test_worker_processes_draw_the_same_formulas_as_one():
    pytest.importorskip("matplotlib")
    many = config("formulas", num_examples=600)
    few = config("formulas", num_examples=100)
    assert many.read()[:100] == few.read()
    images = many.open_images().array[:100]
    assert np.array_equal(images, few.open_images().array)


def test_exponent_is_drawn_higher_than_index():
    pytest.importorskip("matplotlib")

    def mean_height(caption):
        rows, columns = np.nonzero(pad_formula(draw_formula(caption)) < 128)
        return rows[columns > 10].mean()

    assert mean_height("x ^ { 2 }") < mean_height("x 2") - 1
    assert mean_height("x _ { 2 }") > mean_height("x 2") + 1


def test_formula_that_does_not_fit_is_skipped():
    pytest.importorskip("matplotlib")
    assert pad_formula(draw_formula(" + ".join("x" * 12))) is None


def test_unknown_latex_raises():
    pytest.importorskip("matplotlib")
    with pytest.raises(DataError, match=r"^'\\\\nonsense': matplotlib cannot draw it: "):
        draw_formula(r"\nonsense")


SHAPE = rf"a ({'|'.join(SIZES)}) ({'|'.join(COLORS)}) ({'|'.join(FORMS)})"
CAPTION = re.compile(rf"{SHAPE} (left of|above) {SHAPE}")
WHITE = (255, 255, 255)


def shapes(split="train", count=120):
    return BuiltInImagesConfig(name="shapes", split=split, num_examples=count)


def shape_captions(source):
    return [example.captions[0] for example in source.read()]


@pytest.mark.wide
def test_no_caption_belongs_to_two_splits():
    train, dev, test = (set(shape_captions(shapes(split))) for split in ("train", "dev", "test"))
    assert not train & dev
    assert not train & test
    assert not dev & test


def test_shapes_match_the_caption():
    images = shapes().open_images().read(range(120))
    for caption, pixels in zip(shape_captions(shapes()), images, strict=True):
        match = CAPTION.fullmatch(caption)
        size, color, _, relation, other_size, other_color, _ = match.groups()
        ink = (pixels != WHITE).any(axis=2)
        along = ink.any(axis=0) if relation == "left of" else ink.any(axis=1)
        steps = np.flatnonzero(np.diff(along.astype(int)))
        assert len(steps) in (3, 4)  # two shapes with a gap between them
        halves = np.split(pixels, [int(steps[1]) + 1], axis=1 if relation == "left of" else 0)
        for half, (name, extent) in zip(
            halves, ((color, size), (other_color, other_size)), strict=True
        ):
            drawn = half[(half != WHITE).any(axis=2)]
            assert {tuple(pixel) for pixel in drawn.tolist()} == {COLORS[name]}
            rows = (half != WHITE).any(axis=(1, 2)).sum()
            assert rows == 2 * SIZES[extent] + 1
