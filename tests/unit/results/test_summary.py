from statistics import mean

import pytest

from heedful.recipes import load_recipe
from heedful.results.config import ResultConfig
from heedful.results.runs import Plan
from heedful.results.summary import failed_claims, summarize, t_interval

SETTINGS = {
    "data.test": {"type": "synthetic", "name": "copy", "split": "test", "num_examples": 40},
    "data.train": {"type": "synthetic", "name": "copy", "num_examples": 40},
}


def result_with(**changes):
    return ResultConfig.model_validate(
        {
            "title": "t",
            "settings": SETTINGS,
            "systems": {name: {"recipe": "reverse-tiny"} for name in ("one", "other")},
            "metrics": {"errors": {"metric": "exact-match", "complement": True}},
            "seeds": [1, 2],
            **changes,
        }
    )


@pytest.fixture
def texts():
    examples = load_recipe("reverse-tiny", SETTINGS).data.test.read()
    return [example.target for example in examples]


def summary_of(tmp_path, texts, num_errors, **changes):
    """Summarize runs that are wrong in so many of the 40 texts."""
    plan = Plan("t", result_with(**changes), tmp_path, "1steps", None)
    records = [
        {
            "system": system,
            "seed": seed,
            "budget": "1steps",
            "scores": {},
            "seconds": 60.0,
            "flops": 7.0,
            "curve": [{"flops": 7.0, "scores": {"loss": 1.0}}],
            "lines": {"texts": [*["-"] * count, *texts[count:]]},
        }
        for system, counts in num_errors.items()
        for seed, count in enumerate(counts, start=1)
    ]
    return summarize(plan, records, is_miniature=False)


def test_mean_and_intervals_of_seeds(tmp_path, texts):
    summary = summary_of(tmp_path, texts, {"one": [4, 8]})
    score = summary["systems"]["one"]["metrics"]["errors"]
    assert score["values"] == pytest.approx([10, 20])
    assert score["mean"] == pytest.approx(15)
    assert score["interval"] == pytest.approx(t_interval([10, 20]))
    low, high = score["bootstrap"]
    assert 0 < low < 10 < 20 < high < 40
    assert summary["directions"] == {"errors": "lower"}


def test_system_that_continues_another_has_the_costs_of_both(tmp_path, texts):
    recipe = {"recipe": "reverse-tiny"}
    systems = {"one": recipe, "other": {**recipe, "after": "one"}, "two": {"ensemble_of": "other"}}
    summary = summary_of(tmp_path, texts, {"one": [4], "other": [2], "two": [1]}, systems=systems)
    costs = [(system["flops"], system["minutes"]) for system in summary["systems"].values()]
    assert costs == [(7, 1), (14, 2), (21, 3)]
    assert [points[0][0] for points in summary["curves"].values()] == [7, 14]


def test_t_interval_is_that_of_tables():
    low, high = t_interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))
    assert t_interval([1.0]) is None
    assert mean(t_interval([4.0, 5.0])) == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("published", "comparable", "verdict"),
    [
        (12, "same", "tie"),
        (12.4, "same", "reproduced"),
        (90, "same", "better"),
        (0.1, "same", "worse"),
        (0.1, "other split", "other split: below it"),
    ],
)
def test_verdict_compares_with_the_interval(tmp_path, texts, published, comparable, verdict):
    row = {"system": "s", "values": {"errors": published}, "source": "p", "read": "paper"}
    rows = [{**row, "comparable": comparable, "beside": "one"}]
    summary = summary_of(tmp_path, texts, {"one": [5, 5]}, published=rows, tolerance=0.2)
    assert summary["published"][0]["verdict"] == verdict
    assert summary["published"][0]["difference"] == pytest.approx(12.5 - published)


def test_claims_are_tested_with_the_correction_of_holm(tmp_path, texts):
    claim = {"text": "c", "left": "one", "op": "<", "right": "other"}
    claims = [claim, {**claim, "text": "d", "left": "other", "right": "one"}]
    summary = summary_of(tmp_path, texts, {"one": [2, 3], "other": [20, 19]}, claims=claims)
    first, second = summary["claims"]
    assert (first["holds"], second["holds"]) == (True, False)
    assert first["p"] == second["p"] == pytest.approx(2 / 10_001)
    assert list(failed_claims(summary)) == ["d"]


def test_claim_needs_the_same_sign_in_all_seeds_and_its_margin(tmp_path, texts):
    claim = {"text": "c", "left": "one", "op": "<", "right": "other"}
    summary = summary_of(
        tmp_path,
        texts,
        {"one": [2, 30], "other": [30, 29]},
        claims=[claim, {**claim, "margin": 90}],
    )
    assert [claim["holds"] for claim in summary["claims"]] == [False, False]


def test_claim_about_a_number_has_no_test(tmp_path, texts):
    claims = [{"text": "c", "left": "one", "op": "<=", "right": 12.5, "asserted": False}]
    summary = summary_of(tmp_path, texts, {"one": [5]}, claims=claims)
    assert (summary["claims"][0]["holds"], summary["claims"][0]["p"]) == (True, None)


def test_systems_without_records_are_not_measured(tmp_path, texts):
    claims = [{"text": "c", "left": "one", "op": "<", "right": "other"}]
    summary = summary_of(tmp_path, texts, {"one": [5]}, claims=claims)
    assert summary["claims"][0]["holds"] is None
    assert summary["systems"]["other"]["metrics"] == {}
