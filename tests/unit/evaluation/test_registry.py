import pytest
import sacrebleu

from heedful.errors import ConfigError
from heedful.evaluation.registry import DEFAULT_METRICS, METRICS, compute_metrics, get_metrics

OUTPUTS = ["The girl sees the slave.", "Where is Marcus?", "The dog sleeps."]
REFERENCES = ["The girl sees the slave.", "Where is Marcus ?", "The dogs sleep in the street."]


def score(name, references):
    return compute_metrics(OUTPUTS, references, [name])[0].value


def test_exact_match_counts_equal_outputs():
    assert score("exact-match", REFERENCES) == pytest.approx(100 / 3)


def test_bleu_and_chrf_equal_sacrebleu():
    assert score("bleu", REFERENCES) == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert score("chrf", REFERENCES) == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score


def test_scores_have_signatures():
    of_words, of_characters, exact = compute_metrics(OUTPUTS, REFERENCES)
    version = f"version:{sacrebleu.__version__}"
    assert exact.signature == "case:mixed|space:kept"
    assert of_words.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert of_characters.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"


def test_unequal_numbers_of_outputs_and_references_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        score("exact-match", REFERENCES[:2])


def test_ter_equals_sacrebleu_and_accepts_several_references():
    both = list(zip(REFERENCES, OUTPUTS, strict=True))
    assert score("ter", REFERENCES) == sacrebleu.corpus_ter(OUTPUTS, [REFERENCES]).score
    assert [score(name, both) for name in ("exact-match", "ter")] == [100, 0]


def test_metrics_selected_by_name():
    result = compute_metrics(OUTPUTS, REFERENCES, ["wer", "rouge-l"])
    assert [each.name for each in result] == ["WER", "ROUGE-L"]
    assert get_metrics(DEFAULT_METRICS) == [METRICS[name] for name in DEFAULT_METRICS]


def test_unknown_metric_raises():
    with pytest.raises(ConfigError, match="no metric is called 'blue'; did you mean 'bleu'"):
        get_metrics(["chrf", "blue"])
