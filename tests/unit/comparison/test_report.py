"""The report of complete, incomplete and hostile comparisons."""

import itertools
import json
import math
import random
import re
from html.parser import HTMLParser

import pytest

from heedful.comparison.report import (
    MAX_EXAMPLE_LENGTH,
    comparison_to_json,
    diff_words,
    render_comparison_page,
    render_example,
    save_comparison,
)
from heedful.comparison.results import Comparison, Failure
from heedful.comparison.tables import to_csv, to_latex, to_markdown
from heedful.errors import StorageError
from heedful.plotting.html import row_header
from tests.example_comparisons import HOSTILE, bare_system, example_comparison, example_system
from tests.unit.comparison.format_examples import comparison, score, system

SECTIONS = ["table", "cost", "length", "learning", "examples", "reproduction"]


class PageParser(HTMLParser):
    """Collects the tags of a page and the texts of its sections."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.sections, self.texts = [], [], {}, []
        self.section = "top"
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "section":
            self.section = dict(attrs)["id"]

    def handle_data(self, data):
        self.texts.append(data)
        self.sections[self.section] = self.sections.get(self.section, "") + data


def read(comparison):
    return PageParser(render_comparison_page(comparison))


def test_page_has_test_set_best_systems_failures_and_command():
    comparison = example_comparison(5)
    failure = Failure("system-9", "runs/system-9-1", "the loss is not finite")
    page = read(comparison._replace(failures=[failure]))
    top, result = page.sections["top"], page.sections["reproduction"]
    assert "5 systems on test.la, each trained within 2 minutes, with system-0" in top
    assert "Best BLEU28.10system-4" in top
    assert "Fewest training FLOPs1.1e13system-0" in top
    assert "Most sentences/s800system-0" in top
    assert "Failed: system-9 (runs/system-9-1): the loss is not finite" in page.sections["table"]
    for text in (
        "heedful compare runs/a runs/b",
        "signature:BLEU",
        "signature:chrF",
        "runs/system-4-2",
    ):
        assert text in result
    assert "devicecpu" in result


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_section_has_every_system(count):
    page = read(example_comparison(count))
    assert list(page.sections)[1:] == SECTIONS
    for section in SECTIONS:
        for place in range(count):
            assert f"system-{place}" in page.sections[section]


def test_every_plot_has_a_title_and_a_description():
    page = render_comparison_page(example_comparison(3))
    images = re.findall(r'<svg role="img".*?</desc>', page, re.DOTALL)
    assert len(images) == 3 + 3 * 3  # three plots of quality, three scores over three axes
    for image in images:
        assert re.search(r"<title>.+?</title>\s*<desc>.*system-2.*</desc>", image, re.DOTALL)


def test_missing_parts_have_a_note():
    bare = [bare_system(example_system(place, seeds=1)) for place in range(2)]
    comparison = example_comparison(systems=bare, budget=None)
    comparison = comparison._replace(sources=[], references=[], environment={}, command="")
    page = read(comparison)
    assert "2 systems on test.la, with system-0 as the baseline." in page.sections["top"]
    assert (
        "BLEU against training FLOPs: nothing to draw. Left out: system-0, system-1"
        in (page.sections["cost"])
    )
    assert "BLEU against source length: nothing to draw." in page.sections["length"]
    assert "No run has logged a validation." in page.sections["learning"]
    assert "There are no outputs to show." in page.sections["examples"]
    assert "The environment was not recorded." in page.sections["reproduction"]


def test_equal_systems_have_no_best():
    twins = [example_system(0, name=name) for name in ("one", "two")]
    assert "Best BLEU" not in read(example_comparison(systems=twins)).sections["top"]


def hostile_comparison():
    system = example_system(0, name=HOSTILE)
    judged = [
        each._replace(
            score=each.score._replace(name=HOSTILE, signature=HOSTILE),
            by_length=[(HOSTILE, 3, 1.0)],
        )
        for each in system.scores
    ]
    curves = [
        [point._replace(scores={HOSTILE: 1.0, **point.scores}) for point in run]
        for run in system.curves
    ]
    hostile = system._replace(
        summary=HOSTILE,
        runs=[HOSTILE],
        scores=judged,
        curves=curves,
        outputs=[HOSTILE, HOSTILE + " <main></main>"],
    )
    return example_comparison(systems=[hostile, example_system(1)], title="<main></main>")._replace(
        test_set=HOSTILE,
        budget=HOSTILE,
        sources=[HOSTILE, "<main></main>"],
        references=[HOSTILE, "\u202e\x00"],
        environment={HOSTILE: HOSTILE},
        command=HOSTILE,
        failures=[Failure(HOSTILE, HOSTILE, HOSTILE)],
    )


def test_markup_in_texts_adds_no_tags_or_attributes():
    tame, hostile = read(example_comparison(2)), read(hostile_comparison())
    assert set(hostile.tags) <= {*tame.tags, "mark", "span"}
    assert set(hostile.attributes) <= {*tame.attributes}
    assert hostile.tags.count("script") == tame.tags.count("script") == 1
    assert hostile.tags.count("main") == 1
    assert sum(HOSTILE in text for text in hostile.texts) > 20


def test_page_has_no_external_references_or_inline_styles():
    page = render_comparison_page(example_comparison(5))
    assert re.findall(r"\w+://[^\"'\s<]*", page) == ["http://www.w3.org/2000/svg"]
    assert page.count("<style>") == page.count("</style>") == 1
    assert not re.search(r"""\s(style|on\w+)=["']""", page)
    assert "default-src 'none'" in page


def is_row_of(words, others):
    """Whether the words stand in the others, in order."""
    rest = iter(others)
    return all(word in rest for word in words)


@pytest.mark.parametrize("seed", range(60))
def test_diff_leaves_the_longest_common_subsequence_unmarked(seed):
    draw = random.Random(seed)
    words, others = ([draw.choice("abc") for _ in range(draw.randint(0, 7))] for _ in range(2))
    result = diff_words(words, others)
    assert [word for word, _ in result] == words
    common = [word for word, is_other in result if not is_other]
    assert is_row_of(common, others)
    most = max(
        size
        for size in range(len(words) + 1)
        for row in itertools.combinations(words, size)
        if is_row_of(row, others)
    )
    assert len(common) == most


def outputs_of(*outputs, reference="the girl sees the slave"):
    systems = [example_system(i)._replace(outputs=[each]) for i, each in enumerate(outputs)]
    comparison = example_comparison(systems=systems)
    comparison = comparison._replace(sources=["puella"], references=[reference])
    table = render_example(comparison, 0, [row_header(system.name) for system in systems])
    return [row[1] for row in table.find("tbody")]


def test_example_starts_with_source_and_reference():
    texts = ["".join(cell.itertext()) for cell in outputs_of("a girl", "the girl sees a slave")]
    assert texts == ["puella", "the girl sees the slave", "a girl", "the girl sees a slave"]


def test_differing_words_marked():
    *_, cell = outputs_of("some old girl sees the the slave")
    assert [mark.text for mark in cell.iter("mark")] == ["some old", "the"]


def test_equal_output_has_a_check_mark_and_empty_output_a_placeholder():
    _, _, same, empty = outputs_of("the girl sees the slave", " ")
    assert "".join(same.itertext()).endswith("\u2713")
    assert list(same.iter("mark")) == []
    assert "".join(empty.itertext()) == "nothing"


def test_system_without_output_has_no_row():
    comparison = example_comparison(systems=[example_system(0)._replace(outputs=[])])
    table = render_example(comparison, 0, [row_header("system-0")])
    assert len(table.find("tbody")) == 2


def test_long_output_is_cut_with_an_ellipsis():
    *_, cell = outputs_of("w " * 5000)
    text = "".join(cell.itertext())
    assert (text.split().count("w"), text.endswith(" ...")) == (MAX_EXAMPLE_LENGTH, True)


def several():
    return comparison(system("dot", score(20.25, deviation=0.5)), system("b", score(21.0, p=1.0)))


def test_every_format_is_written(tmp_path):
    result = several()
    files = save_comparison(result, tmp_path / "new" / "folder")
    assert [path.name for path in files] == [
        "comparison.json",
        "table.csv",
        "table.md",
        "table.tex",
        "report.html",
    ]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert "dot" in texts["report.html"]
    assert texts["table.md"] == to_markdown(result)
    assert texts["table.csv"] == to_csv(result)
    assert texts["table.tex"] == to_latex(result)
    assert texts["comparison.json"] == comparison_to_json(result)


def test_json_has_every_field():
    saved = json.loads(comparison_to_json(several()))
    assert tuple(saved) == Comparison._fields
    first, second = saved["systems"]
    assert first["scores"][0]["stats"] == {"mean": 20.25, "std": 0.5}
    assert first["scores"][0]["by_length"] == [["1-5", 3, 20.25]]
    assert first["scores"][0]["difference"] is None
    assert second["scores"][0]["difference"] == {"value": 1.0, "p_value": 1.0}
    assert first["curves"][0][1] == {
        "step": 20,
        "seconds": None,
        "flops": None,
        "scores": {"loss": 1.5},
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_nonfinite_numbers_are_null(value):
    saved = json.loads(comparison_to_json(comparison(system("one", score(value)))))
    assert saved["systems"][0]["scores"][0]["stats"]["mean"] is None


def test_unwritable_folder_raises(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError) as caught:
        save_comparison(several(), tmp_path / "taken")
    assert caught.value.location == str(tmp_path / "taken")
