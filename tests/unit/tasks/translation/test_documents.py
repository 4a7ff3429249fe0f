"""Documents: which sentences are translated, and what of the document stays as it was."""

from html.parser import HTMLParser
from itertools import count
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tasks.translation.documents import split_document


def sentences(text, document_format="document"):
    return [sentence.text for sentence in split_document(text, document_format).sentences]


def translate(text, translation=str.upper, document_format="html"):
    document = split_document(text, document_format)
    return document.join({"text": translation(each.text)} for each in document.sentences)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Der Hund bellt. Die Katze schläft!", ["Der Hund bellt.", "Die Katze schläft!"]),
        ("Is it? Yes... No", ["Is it?", "Yes...", "No"]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("Dr. Who met J. Smith on 3. May.", ["Dr. Who met J. Smith on 3. May."]),
        ("It costs 1.5 euros, e.g. Berlin. In 1990. Then", None),
        ("one line\nanother line", ["one line", "another line"]),
        ("what? no, small letters continue", ["what? no, small letters continue"]),
        ("犬が鳴く。猫が眠る。", ["犬が鳴く。", "猫が眠る。"]),
        ("---\n\n  ***  ", []),
        ("", []),
    ],
)
def test_sentences_follow_the_stated_rule(text, expected):
    if expected is None:
        expected = ["It costs 1.5 euros, e.g. Berlin.", "In 1990.", "Then"]
    assert sentences(text) == expected


@given(st.text(alphabet="aB1.!? \n\t\r\u2028\u3002)\"'", max_size=60))
def test_document_with_own_sentences_is_the_same(text):
    assert translate(text, str, "document") == text


def test_whitespace_and_paragraphs_are_kept():
    text = "\n  One.  Two.\r\n\r\n\tThree\n"
    assert translate(text, document_format="document") == text.upper()


class Structure(HTMLParser):
    """Reads tags with their attributes in order, the text in each, and comments."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs)))

    def handle_endtag(self, tag):
        self.tags.append(tag)

    def handle_comment(self, data):
        self.tags.append(data)

    def handle_data(self, data):
        self.text += data


HTML_PARTS = ["<b>", "</b>", "<i class='x'>", "</i>", "<p>", "</p>", "<br>", "<img src='a>b'>"]
HTML_PARTS += ["One", " two.", " Three", "\n", "&amp;", "&lt;b>", "<!-- c -->", "&#228;", "4"]
HTML_PARTS += ["<code>x. Y</code>", "<span translate=no>z</span>", "<", "&", ">"]


@given(st.lists(st.sampled_from(HTML_PARTS), max_size=20).map("".join))
def test_html_with_own_sentences_has_the_same_tags_and_text(text):
    before, after = Structure(text), Structure(translate(text, str))
    assert sorted(map(str, after.tags)) == sorted(map(str, before.tags))
    assert sorted("".join(after.text.split())) == sorted("".join(before.text.split()))


def parents(text):
    """Return each element with the one that contains it; raise ValueError if they overlap."""
    pairs, path = [], ["root"]
    for tag in Structure(text).tags:
        if isinstance(tag, tuple):
            pairs.append((dict(tag[1])["id"], path[-1]))
            path.append(dict(tag[1])["id"])
        elif path.pop() == "root":
            raise ValueError(text)
    return sorted(pairs)


@given(st.recursive(st.sampled_from(["One ", "two", ". Three"]), st.lists), st.randoms())
def test_elements_stay_nested_when_words_move(tree, random):
    numbers = count()

    def render(node):
        if isinstance(node, str):
            return node
        return f"<b id={next(numbers)}>{''.join(map(render, node))}</b>"

    def shuffled(text):
        words = text.split()
        random.shuffle(words)
        return {"text": " ".join(words * random.randint(0, 2)), **alignment(len(words), random)}

    text = "".join(map(render, tree))
    document = split_document(text, "html")
    output = document.join([shuffled(sentence.text) for sentence in document.sentences])
    assert parents(output) == parents(text)


def alignment(num_words, random):
    """Return random attention between up to twice as many words and these."""
    size = range(2 * num_words)
    weights = [[random.random() for _ in range(num_words)] for _ in size]
    ids = {"word_ids": list(size), "source_word_ids": list(range(num_words))}
    return {"weights": weights, **ids}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>one. <b>Two</b></p>", "<p>ONE. <b>TWO</b></p>"),
        ('<a href="x?a=1&amp;b">one</a>', '<a href="x?a=1&amp;b">ONE</a>'),
        ("a &lt; b &amp; c", "A &lt; B &amp; C"),
        ("<script>if (a < b) c()</script>one", "<script>if (a < b) c()</script>ONE"),
        ("<pre>one  two</pre><style>p {}</style>", "<pre>one  two</pre><style>p {}</style>"),
        ("one <code>ls -l</code> two", "ONE <code>ls -l</code> TWO"),
        ('<p translate="no">one <p>two</p> x</p> three', None),
        ("one <b>two</b>, three", "ONE <b>TWO</b>, THREE"),
        ("one<br>two <img src=x> three", "ONE<br>TWO <img src=x> THREE"),
        ("<!DOCTYPE html><title>one</title>", "<!DOCTYPE html><title>ONE</title>"),
        ("<b>one. Two</b> three", "<b>ONE. TWO</b> THREE"),
        ("<i>One. Two.</i>", "<i>ONE. TWO.</i>"),
    ],
)
def test_html_keeps_all_but_the_text(text, expected):
    if expected is None:
        expected = '<p translate="no">one <p>two</p> x</p> THREE'
    assert translate(text) == expected


HOSTILE = [
    "<b>",
    "<b>x",
    "</b>",
    "<b>x</b> ",
    "<p",
    '<p ="',
    "&",
    "<!--",
    "a. B ",
    "<script>",
    "<!x",
    "</",
]


def result(text, weights):
    """Return a translation of one token per word with these attention weights."""
    words = range(len(weights))
    source_word_ids = [*range(len(weights[0]) - 1), -1]
    return {
        "text": text,
        "weights": weights,
        "word_ids": list(words),
        "source_word_ids": source_word_ids,
    }


def one_hot(order):
    return [[float(position == index) for index in range(len(order) + 1)] for position in order]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("der <b>rote</b> Hund, da", "HUND, DA DER <b>ROTE</b>"),
        ("der rote <i>Hund</i>, da", "<i>HUND</i>, DA DER ROTE"),
        ("der <b>rote <i>Hund,</i></b> da", "<b><i>HUND,</i></b> DA DER ROTE"),
        ("der <img>rote <b>Hund, da</b>", "<b>HUND, DA</b> DER <img>ROTE"),
        ("der<br>", "HUND, DA DER ROTE<br>"),
    ],
)
def test_tags_follow_attention(source, expected):
    document = split_document(source, "html")
    assert document.join([result("HUND, DA DER ROTE", one_hot([2, 3, 0, 1]))]) == expected


def test_element_without_translated_words_stays_as_an_empty_element():
    document = split_document("a <b>b</b> c", "html")
    assert document.join([result("A C", [[1, 0, 0, 0], [0, 0, 1, 0]])]) == "A <b></b>C"
    assert document.join([{"text": ""}]) == "<b></b>"


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_html_takes_linear_time(part):
    start = perf_counter()
    translate(part * 5_000, str)
    assert perf_counter() - start < 5
