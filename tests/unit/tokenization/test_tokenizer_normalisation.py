import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.tokenizer import NormalizerConfig

anything = st.text(st.characters(exclude_categories=["Cs"]))
any_choice = st.builds(
    NormalizerConfig,
    unicode=st.sampled_from(["none", "nfc", "nfkc"]),
    lowercase=st.booleans(),
    strip=st.booleans(),
)


@given(text=anything)
def test_default_normalizer_is_identity(text):
    assert NormalizerConfig().build()(text) == text


@given(choice=any_choice, text=anything)
def test_normalizer_is_idempotent(choice, text):
    normalise = choice.build()
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("choice", "text", "changed"),
    [
        (NormalizerConfig(unicode="nfc"), "e\u0301 \ufb01", "\u00e9 \ufb01"),
        (NormalizerConfig(unicode="nfkc"), "e\u0301 \ufb01", "\u00e9 fi"),
        (NormalizerConfig(lowercase=True), "ROMA \u00c9", "roma \u00e9"),
        (NormalizerConfig(strip=True), " \u00a0a b\t\r", "a b"),
        (NormalizerConfig(strip=True), "\ufeffa", "\ufeffa"),
        (NormalizerConfig(unicode="nfkc", lowercase=True), "\U0001d400", "a"),
        (NormalizerConfig(unicode="nfkc", strip=True), "\u00a8a", "\u0308a"),
    ],
)
def test_normalizer_settings(choice, text, changed):
    assert choice.build()(text) == changed
