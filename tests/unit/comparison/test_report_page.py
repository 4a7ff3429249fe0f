"""The page of a comparison: what it holds of whole ones, of bare ones and of hostile ones."""

import re
from html.parser import HTMLParser

import pytest

from heedful.comparison.report import render_comparison_page
from heedful.comparison.results import Failure
from tests.made_comparisons import HOSTILE, bare_system, made_comparison, made_system

SECTIONS = ["table", "cost", "length", "learning", "examples", "found"]


class CausalBackbone(HTMLParser):
    """Gathers the tags of a page and the texts of its sections."""

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
    return CausalBackbone(render_comparison_page(comparison))


def test_a_page_tells_what_was_tested_found_and_how_it_is_made_again():
    comparison = made_comparison(5)
    failure = Failure("system-9", "runs/system-9-1", "the loss is not finite")
    page = read(comparison._replace(failures=[failure]))
    top, found = page.sections["top"], page.sections["found"]
    assert "5 systems on test.la, each trained within 2 minutes, beside system-0" in top
    assert "Best BLEU28.10system-4" in top
    assert "Fewest training FLOPs1.1e13system-0" in top
    assert "Most sentences/s800system-0" in top
    assert "Failed: system-9 (runs/system-9-1): the loss is not finite" in page.sections["table"]
    for said in ("heedful compare runs/a runs/b", "made:BLEU", "made:chrF", "runs/system-4-2"):
        assert said in found
    assert "devicecpu" in found


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_section_tells_of_every_system(count):
    page = read(made_comparison(count))
    assert list(page.sections)[1:] == SECTIONS
    for section in SECTIONS:
        for place in range(count):
            assert f"system-{place}" in page.sections[section]


def test_every_plot_has_words_for_those_who_do_not_see_it():
    page = render_comparison_page(made_comparison(3))
    pictures = re.findall(r'<svg role="img".*?</desc>', page, re.DOTALL)
    assert len(pictures) == 3 + 3 * 3  # three plots of quality, three scores over three axes
    for picture in pictures:
        assert re.search(r"<title>.+?</title>\s*<desc>.*system-2.*</desc>", picture, re.DOTALL)


def test_what_is_missing_is_left_out_and_said():
    bare = [bare_system(made_system(place, seeds=1)) for place in range(2)]
    comparison = made_comparison(systems=bare, budget=None)
    comparison = comparison._replace(sources=[], references=[], environment={}, command="")
    page = read(comparison)
    assert "2 systems on test.la, beside system-0 as the baseline." in page.sections["top"]
    assert (
        "BLEU against training FLOPs: nothing to draw. Left out: system-0, system-1"
        in (page.sections["cost"])
    )
    assert "BLEU against source length: nothing to draw." in page.sections["length"]
    assert "No run has told how it learned." in page.sections["learning"]
    assert "There are no outputs to show." in page.sections["examples"]
    assert "Nothing was noted." in page.sections["found"]


def test_systems_that_are_all_alike_have_no_best():
    twins = [made_system(0, name=name) for name in ("one", "two")]
    assert "Best BLEU" not in read(made_comparison(systems=twins)).sections["top"]


def hostile_comparison():
    system = made_system(0, name=HOSTILE)
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
    return made_comparison(systems=[hostile, made_system(1)], title="<main></main>")._replace(
        test_set=HOSTILE,
        budget=HOSTILE,
        sources=[HOSTILE, "<main></main>"],
        references=[HOSTILE, "\u202e\x00"],
        environment={HOSTILE: HOSTILE},
        command=HOSTILE,
        failures=[Failure(HOSTILE, HOSTILE, HOSTILE)],
    )


def test_hostile_texts_make_no_tag_and_no_attribute():
    tame, hostile = read(made_comparison(2)), read(hostile_comparison())
    assert set(hostile.tags) <= {*tame.tags, "mark", "span"}
    assert set(hostile.attributes) <= {*tame.attributes}
    assert hostile.tags.count("script") == tame.tags.count("script") == 1
    assert hostile.tags.count("main") == 1
    assert sum(HOSTILE in text for text in hostile.texts) > 20


def test_the_page_asks_nothing_of_the_network_and_brings_no_style_but_its_own():
    page = render_comparison_page(made_comparison(5))
    assert re.findall(r"\w+://[^\"'\s<]*", page) == []
    assert page.count("<style>") == page.count("</style>") == 1
    assert not re.search(r"""\s(style|on\w+)=["']""", page)
    assert "default-src 'none'" in page
