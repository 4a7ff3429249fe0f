"""The report of complete, incomplete and hostile comparisons."""

import re
from html.parser import HTMLParser

import pytest

from heedful.comparison.report import render_comparison_page
from heedful.comparison.results import Failure
from tests.example_comparisons import HOSTILE, bare_system, example_comparison, example_system

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
