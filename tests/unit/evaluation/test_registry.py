import pytest
import sacrebleu

from heedful.errors import ConfigError
from heedful.evaluation.registry import (
    DEFAULT_METRICS,
    METRICS,
    bleu,
    chrf,
    compute_metrics,
    exact_match,
    get_metrics,
    ter,
)

OUTPUTS = ["The girl sees the slave.", "Where is Marcus?", "The dog sleeps."]
REFERENCES = ["The girl sees the slave.", "Where is Marcus ?", "The dogs sleep in the street."]


def test_exact_match_counts_outputs_equal_to_the_letter():
    assert exact_match(OUTPUTS, REFERENCES).value == pytest.approx(100 / 3)


def test_bleu_and_chrf_are_sacrebleus():
    assert bleu(OUTPUTS, REFERENCES).value == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert chrf(OUTPUTS, REFERENCES).value == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score


def test_every_number_says_how_it_was_computed():
    exact, of_words, of_characters = compute_metrics(OUTPUTS, REFERENCES)
    version = f"version:{sacrebleu.__version__}"
    assert exact.signature == "case:mixed|space:kept"
    assert of_words.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert of_characters.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"


def test_unequal_numbers_of_outputs_and_references_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        exact_match(OUTPUTS, REFERENCES[:2])


def test_ter_is_sacrebleus_and_several_references_are_taken():
    both = list(zip(REFERENCES, OUTPUTS, strict=True))
    assert ter(OUTPUTS, REFERENCES).value == sacrebleu.corpus_ter(OUTPUTS, [REFERENCES]).score
    assert [metric(OUTPUTS, both).value for metric in (exact_match, ter)] == [100, 0]


def test_metrics_are_asked_for_by_name():
    found = compute_metrics(OUTPUTS, REFERENCES, ["wer", "rouge-l"])
    assert [each.name for each in found] == ["WER", "ROUGE-L"]
    assert get_metrics(DEFAULT_METRICS) == [METRICS[name] for name in DEFAULT_METRICS]


def test_an_unknown_metric_is_refused_by_name():
    with pytest.raises(ConfigError, match="no metric is called 'blue'; did you mean 'bleu'"):
        get_metrics(["chrf", "blue"])
