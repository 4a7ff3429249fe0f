"""Translations show themselves."""

from tests.unit.decoding.untrained import translator


def test_a_translation_is_a_picture_of_where_it_looked():
    (result,) = translator(min_length=2).translate(["the dog"])
    assert result.attention_map.source == result.source_tokens
    assert result.attention_map.target == result.tokens
    assert "<iframe" in result._repr_html_()
