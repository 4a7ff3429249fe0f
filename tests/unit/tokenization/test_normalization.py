"""Normalizers change what their settings say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tokenization.tokenizer import NormalizerConfig

texts = st.text(st.characters(exclude_categories=["Cs"]))
configs = st.builds(
    NormalizerConfig,
    unicode=st.sampled_from(["none", "nfc", "nfkc"]),
    lowercase=st.booleans(),
    strip=st.booleans(),
    punctuation=st.sampled_from(["keep", "remove"]),
)


@given(text=texts)
def test_default_normalizer_is_identity(text):
    assert NormalizerConfig().normalize(text) == text


@given(config=configs, text=texts)
def test_normalizer_is_idempotent(config, text):
    normalizer = config.normalize
    assert normalizer(normalizer(text)) == normalizer(text)


@pytest.mark.parametrize(
    ("config", "text", "expected"),
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
def test_normalizer_settings(config, text, expected):
    assert config.normalize(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man 's dog , running .", "A man 's dog running"),
        ("Stop! (he said) \u201cno\u201d...", "Stop he said no"),
        ("a t-shirt - blue -. 3.5 o'clock", "a t-shirt blue 3.5 o'clock"),
        (" . ", ""),
        ("don't  \tjump", "don't jump"),
    ],
)
def test_punctuation_outside_words_is_removed(text, expected):
    assert NormalizerConfig(punctuation="remove").normalize(text) == expected
