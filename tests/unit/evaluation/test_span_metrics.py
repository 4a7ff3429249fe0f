"""Spans, worked out by hand after conlleval's rules."""

import pytest

from heedful.evaluation.annotation_metrics import Span, SpanF1, extract_spans
from heedful.evaluation.base import compute_score


def marked(text, scheme="bio"):
    return extract_spans(text.split(), scheme)


def test_span_starts_with_b_and_continues_with_i():
    result = marked("O B-a I-a O B-b B-b I-b")
    assert result == {Span(1, 2, "a"), Span(4, 4, "b"), Span(5, 6, "b")}
    assert marked("B-a I-a") == marked("B-a I-a", "iob2")


def test_i_tag_starts_a_span_in_bio_but_not_in_iob2():
    assert marked("I-a I-a O I-b B-b") == {Span(0, 1, "a"), Span(3, 3, "b"), Span(4, 4, "b")}
    assert marked("B-a I-b I-b") == {Span(0, 0, "a"), Span(1, 2, "b")}
    assert marked("I-a I-a O I-b B-b", "iob2") == {Span(4, 4, "b")}
    assert marked("B-a I-b I-a", "iob2") == {Span(0, 0, "a")}


def test_tags_without_type_and_with_hyphens():
    assert marked("B I O B-x-y I-x-y") == {Span(0, 1, ""), Span(3, 4, "x-y")}


def test_invalid_predicted_tag_is_outside():
    assert marked("B-a <unk> I-a L-a Bx") == {Span(0, 0, "a"), Span(2, 2, "a")}


def test_bioes_tags_end_spans():
    assert marked("B-a E-a S-a I-a O E-b") == {
        Span(0, 1, "a"),
        Span(2, 2, "a"),
        Span(3, 3, "a"),
        Span(5, 5, "b"),
    }


def test_span_needs_both_ends_and_its_type():
    references = ["B-a I-a O B-b", "B-a O O", "O O"]
    outputs = ["B-a O O B-b", "B-b O B-a", "O O"]
    # Right: the b of the first. Found 2 + 2, expected 2 + 1.
    result = compute_score(SpanF1(), outputs, references)
    assert result.value == pytest.approx(100 * 2 * 1 / (4 + 3))
    assert result.signature == "nrefs:1|scheme:bio|match:exact"


def test_span_f1_without_spans_is_100():
    assert compute_score(SpanF1(), ["O"], ["O"]).value == 100
    assert compute_score(SpanF1(), ["B-a"], ["O"]).value == 0


def test_best_of_several_references_counts():
    assert compute_score(SpanF1(), ["B-a O"], [["O O", "B-a B-b"]]).value == pytest.approx(
        100 * 2 / 3
    )
