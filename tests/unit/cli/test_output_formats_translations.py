import json
import math
import re

import numpy as np
import pytest

from heedful.cli.output_formats import OUTPUT_TYPES, OutputFormat
from heedful.decoding.translation import SearchNode, Translation
from heedful.decoding.word_alignment import ArgmaxAligner
from tests.documents.markdown import ROOT


def translation(text="the garden", *, score=-0.25, alternatives=(), tree=None):
    tokens = text.split()
    return Translation(
        source="horto",
        text=text,
        score=score,
        log_prob=-0.5,
        source_tokens=["horto", "(end)"],
        tokens=tokens,
        log_probs=np.full(len(tokens) + 1, -0.1),
        weights=np.full((len(tokens), 2), (2 / 3, 1 / 3), np.float32),
        eos_weights=np.array([0, 1], np.float32),
        source_word_ids=[0, -1],
        word_ids=list(range(len(tokens))),
        alternatives=alternatives,
        tree=tree,
    )


TREE = [
    SearchNode(None, None, 0.0, 0.0, "went on"),
    SearchNode(0, "the", -0.1, -0.1, "went on"),
    SearchNode(0, "garden", -2.0, -2.0, "pruned"),
    SearchNode(1, "(end)", -0.2, -0.3, "ended"),
]


def notation(count=1):
    return OutputFormat(count, ArgmaxAligner())


@pytest.mark.parametrize("kind", OUTPUT_TYPES)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_every_text_gives_the_same_number_of_lines(kind, count):
    texts = [
        translation(),
        translation(""),
        translation("broken \n in two", tree=TREE),
        translation(alternatives=(translation("a"), translation("b"))),
    ]
    counts = {len(notation(count).format_lines(kind, each)) for each in texts}
    assert counts == {1 if kind in {"json", "attention", "tree"} else count}
    assert all(
        "\n" not in line for each in texts for line in notation(count).format_lines(kind, each)
    )


def test_the_best_comes_first_and_empty_lines_fill_up():
    found = translation("best", alternatives=(translation("next"),))
    assert notation(3).format_lines("text", found) == ["best", "next", ""]
    assert notation(3).format_lines("alignments", found) == ["0-0", "0-0", ""]
    assert notation(3).format_lines("scores", found)[2] == ""
    assert notation(1).format_lines("text", found) == ["best"]


def test_scores_are_the_score_the_log_probability_and_that_of_every_token():
    (line,) = notation().format_lines("scores", translation())
    assert line == "-0.250000\t-0.500000\t-0.100000 -0.100000 -0.100000"


def test_json_says_what_is_known_in_plain_numbers():
    (line,) = notation().format_lines("attention", translation("garden"))
    assert json.loads(line) == {
        "source": "horto",
        "source_tokens": ["horto", "(end)"],
        "text": "garden",
        "score": -0.25,
        "log_probability": -0.5,
        "tokens": ["garden"],
        "log_probabilities": [-0.1, -0.1],
        "weights": [[0.666667, 0.333333]],
        "eos_weights": [0.0, 1.0],
        "alternatives": [],
    }


def test_weights_and_tree_are_told_only_where_asked():
    found = translation(tree=TREE, alternatives=(translation("a"),))
    keys = {
        kind: set(json.loads(notation().format_lines(kind, found)[0])) for kind in OUTPUT_TYPES[3:]
    }
    assert keys["attention"] - keys["json"] == {"weights", "eos_weights"}
    assert keys["tree"] - keys["json"] == {"tree"}
    alternative = json.loads(notation().format_lines("json", found)[0])["alternatives"][0]
    assert "weights" not in alternative


def test_what_cannot_be_is_worth_null_and_the_line_stays_json():
    line = notation().format_lines("json", translation(score=-math.inf))[0]
    assert json.loads(line, parse_constant=pytest.fail)["score"] is None


def test_the_tree_names_tokens_as_they_are_shown():
    (line,) = notation().format_lines("tree", translation(tree=TREE))
    nodes = json.loads(line)["tree"]
    assert [node["token"] for node in nodes] == [None, "the", "garden", "(end)"]
    assert [node["fate"] for node in nodes] == ["went on", "went on", "pruned", "ended"]
    assert nodes[3] == {
        "parent": 1,
        "token": "(end)",
        "log_probability": -0.2,
        "total": -0.3,
        "fate": "ended",
    }


def fields_of(heading):
    """The first column of the table that follows a heading of docs/translate.md."""
    text = (ROOT / "docs" / "translate.md").read_text()
    section = re.split(r"^#+ ", text.split(f"# {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))


def test_the_document_names_the_fields_that_there_are():
    found = translation(tree=TREE, alternatives=(translation("a"),))
    lines = [json.loads(notation().format_lines(kind, found)[0]) for kind in ("attention", "tree")]
    assert fields_of("Fields of a line") == set().union(*lines)
    assert fields_of("Fields of an alternative") == set(lines[0]["alternatives"][0])
    assert fields_of("Fields of a node") == set(lines[1]["tree"][0])
