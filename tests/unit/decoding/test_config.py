"""Decoding settings: short forms, sections, and errors for what does not go together."""

from pathlib import Path

import pytest
import yaml

from heedful.config import parse_override, to_yaml, validate_settings
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.search import (
    FIRST_FINISHED,
    MEAN_LOG_PROB,
    BeamGroups,
    BeamPruning,
    LengthPenalty,
    PatienceStopping,
    heuristic_stopping,
    optimal_stopping,
)
from heedful.search.penalties import CoveragePenalty
from heedful.search.sampling import SamplingOptions


def read_settings(settings=None, *overrides):
    return validate_settings(
        Recipe,
        {"decoding": settings or {}},
        location="r.yaml",
        overrides=[parse_override(f"decoding.{text}") for text in overrides],
    ).decoding


@pytest.mark.parametrize(
    ("value", "penalty"),
    [
        (0.3, LengthPenalty(0.3)),
        (0, LengthPenalty(0)),
        ({"alpha": 0.3}, LengthPenalty(0.3)),
        ({"type": "gnmt"}, LengthPenalty(0.6)),
        ({"type": "power", "alpha": 0.5}, LengthPenalty(0.5, "power")),
        ("mean", MEAN_LOG_PROB),
        ("none", LengthPenalty(0)),
    ],
)
def test_length_penalty_is_a_number_a_word_or_a_section(value, penalty):
    assert read_settings({"length_penalty": value}).length_penalty.build() == penalty


def test_default_settings():
    config = read_settings()
    assert config.length_penalty.build() == LengthPenalty(0.6)
    assert (config.beam_size, config.max_length_ratio, config.max_length_offset) == (5, 2.0, 20)
    assert config.num_outputs == 5
    assert config.sampling_setting is None


@pytest.mark.parametrize(
    ("name", "value", "built"),
    [
        ("stopping", "heuristic", heuristic_stopping),
        ("stopping", "optimal", optimal_stopping),
        ("stopping", "patience", PatienceStopping(1.0)),
        ("stopping", {"type": "patience", "factor": 2}, PatienceStopping(2.0)),
        ("stopping", "first-finished", FIRST_FINISHED),
        ("diversity", {"num_beam_groups": 5, "diversity_penalty": 2}, BeamGroups(5, 2.0)),
        ("pruning", {"token_threshold": 3, "score_threshold": 2}, BeamPruning(3.0, 2.0)),
        ("pruning", {}, BeamPruning()),
        *(
            ("coverage_penalty", {"type": type_name, "beta": 0.3}, CoveragePenalty(0.3, type_name))
            for type_name in ("gnmt", "repeated", "summary")
        ),
        (
            "sampling",
            {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8},
            SamplingOptions(0.5, 3, 0.9, min_p=0.1, typical_p=0.8),
        ),
    ],
)
def test_section_builds_part_of_the_search(name, value, built):
    beam_size = {"beam_size": 5} if name == "diversity" else {}
    assert getattr(read_settings({name: value, **beam_size}), name).build() == built


def test_settings_can_be_overridden():
    config = read_settings(None, "length_penalty.alpha=1", "stopping=optimal")
    assert config.length_penalty.build() == LengthPenalty(1.0)
    assert config.stopping.type == "optimal"
    assert read_settings(None, "sampling.top_k=3").sampling.top_k == 3
    assert read_settings(None, "length_penalty=mean").length_penalty.build() == MEAN_LOG_PROB
    config = read_settings(None, "required_phrases=[dog, [cat, slave]]")
    assert config.required_phrases == ("dog", ("cat", "slave"))


def test_settings_round_trip_through_yaml():
    recipe = Recipe(
        decoding=DecodingConfig.model_validate(
            {
                "coverage_penalty": {"type": "repeated"},
                "required_phrases": ["dog", ["cat", "slave"]],
                "shallow_fusion": {"run": "runs/lm"},
                "unk_replacement": "copy",
                "phrase_table": "words.txt",
            }
        )
    )
    assert validate_settings(Recipe, yaml.safe_load(to_yaml(recipe)), location="x") == recipe


def test_greedy_settings_keep_only_limits():
    config = DecodingConfig(max_source_length=7, max_length=9, forbidden_phrases=("a",), n_best=3)
    assert config.greedy() == DecodingConfig(beam_size=1, max_source_length=7, max_length=9)


def test_changed_beam_size_is_checked():
    config = DecodingConfig(beam_size=4, n_best=2)
    assert config.with_beam_size(beam_size=6, n_best=3).num_outputs == 6
    assert config.with_beam_size() == config
    with pytest.raises(ConfigError, match="n_best is 2, but beam_size is 1"):
        config.with_beam_size(beam_size=1)


def test_more_outputs_widen_the_beam():
    assert DecodingConfig(beam_size=2).with_beam_size(n_best=5).beam_size == 5
    assert DecodingConfig(beam_size=8).with_beam_size(n_best=5).beam_size == 8
    diverse = DecodingConfig(beam_size=4, diversity={"num_beam_groups": 2})
    assert diverse.with_beam_size(n_best=5).beam_size == 6
    sampled = DecodingConfig(beam_size=2, sampling={})
    assert sampled.with_beam_size(n_best=5).beam_size == 2
    with pytest.raises(ConfigError, match="n_best is 5, but beam_size is 3"):
        DecodingConfig().with_beam_size(beam_size=3, n_best=5)


SEE_SCHEMA = "`heedful recipes --schema` lists every setting and its values"
NUMBERS_OUT_OF_RANGE = [
    ({"length_penalty": -1}, "length_penalty", "greater than or equal to 0"),
    (
        {"coverage_penalty": {"type": "gnmt", "beta": -1}},
        "coverage_penalty.beta",
        "greater than or equal to 0",
    ),
    ({"min_length": -1}, "min_length", "greater than or equal to 0"),
    ({"min_length_ratio": -1}, "min_length_ratio", "greater than or equal to 0"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size", "greater than or equal to 0"),
    ({"repetition_penalty": -1}, "repetition_penalty", "greater than or equal to 1"),
    ({"n_best": -1}, "n_best", "greater than 0"),
    ({"sampling": {"temperature": -1}}, "sampling.temperature", "greater than or equal to 0"),
    ({"sampling": {"top_p": -1}}, "sampling.top_p", "greater than 0"),
    ({"mbr": {"num_samples": -1}}, "mbr.num_samples", "greater than 0"),
    (
        {"shallow_fusion": {"run": "x", "weight": -1}},
        "shallow_fusion.weight",
        "greater than or equal to 0",
    ),
]


@pytest.mark.parametrize(
    ("settings", "setting", "message", "hint"),
    [
        *(
            (settings, setting, f"should be {bound}, got -1", SEE_SCHEMA)
            for settings, setting, bound in NUMBERS_OUT_OF_RANGE
        ),
        (
            {"repetition_penalty": 0.5},
            "repetition_penalty",
            "should be greater than or equal to 1, got 0.5",
            SEE_SCHEMA,
        ),
        ({"n_best": 0}, "n_best", "should be greater than 0, got 0", SEE_SCHEMA),
        (
            {"sampling": {"top_p": 0}},
            "sampling.top_p",
            "should be greater than 0, got 0",
            SEE_SCHEMA,
        ),
        (
            {"mbr": {"num_samples": 0}},
            "mbr.num_samples",
            "should be greater than 0, got 0",
            SEE_SCHEMA,
        ),
        (
            {"length_penalty": "maen"},
            "length_penalty.type",
            "no length penalty is called 'maen'; did you mean 'mean'?",
            "choose from: gnmt, mean, none, power",
        ),
        (
            {"length_penalty": {"type": "mean", "alpha": 1}},
            "length_penalty.alpha",
            "no setting is called 'alpha'",
            "choose from: type",
        ),
        (
            {"length_penalty": True},
            "length_penalty",
            "expected a number, got yes or on (true)",
            SEE_SCHEMA,
        ),
        (
            {"coverage_penalty": {"beta": 1}},
            "coverage_penalty.type",
            "the type is missing",
            "choose from: gnmt, repeated, summary",
        ),
        (
            {"stopping": "never"},
            "stopping.type",
            "no stopping is called 'never'",
            "choose from: first-finished, heuristic, optimal, patience",
        ),
        (
            {"required_phrases": "dog"},
            "required_phrases",
            "expected a list, got 'dog'",
            SEE_SCHEMA,
        ),
        (
            {"forbidden_phrases": [False]},
            "forbidden_phrases.0",
            "expected a name, got no or off (false)",
            "YAML reads yes, no, on and off as true and false: put a name in quotes",
        ),
        (
            {"mbr": {"utility": "ter"}},
            "mbr.utility",
            "'ter' is not allowed",
            "choose from: bleu, chrf",
        ),
        (
            {"shallow_fusion": {}},
            "shallow_fusion.run",
            "this setting is required",
            "give it a value",
        ),
        (
            {"ensemble_averaging": "max"},
            "ensemble_averaging",
            "'max' is not allowed",
            "choose from: log-probabilities, probabilities",
        ),
    ],
)
def test_invalid_value_raises_with_the_setting(settings, setting, message, hint):
    with pytest.raises(ConfigError) as caught:
        read_settings(settings)
    assert str(caught.value) == f"r.yaml: decoding.{setting}: {message}\n  {hint}"


SAMPLING = {
    "sampling": {"sampling": {}},
    "mbr": {"mbr": {}},
    "mbr with sampling": {"mbr": {}, "sampling": {"top_k": 3}},
}
BEAM_SETTINGS = {
    "pruning": {"pruning": {"token_threshold": 3}},
    "diversity.num_beam_groups": {"diversity": {"num_beam_groups": 5}},
    "coverage_penalty": {"coverage_penalty": {"type": "gnmt"}},
    "stopping": {"stopping": "optimal"},
    "required_phrases": {"required_phrases": ["dog"]},
}


def error_message(settings):
    with pytest.raises(ConfigError) as caught:
        DecodingConfig.model_validate(settings)
    return str(caught.value)


@pytest.mark.parametrize("name", BEAM_SETTINGS)
@pytest.mark.parametrize("sampling", SAMPLING)
def test_beam_settings_with_sampling_reported(name, sampling):
    setting = "sampling" if sampling == "sampling" else "mbr"
    assert error_message({**SAMPLING[sampling], **BEAM_SETTINGS[name]}) == (
        f"decoding.{name}: works only with beam search, but decoding.{setting} is set\n"
        f"  remove it, or set decoding.{setting} to null"
    )


@pytest.mark.parametrize("sampling", SAMPLING)
def test_explicit_defaults_are_compatible_with_sampling(sampling):
    defaults = DecodingConfig().model_dump(mode="json")
    config = DecodingConfig.model_validate({**defaults, **SAMPLING[sampling]})
    assert config == DecodingConfig.model_validate(SAMPLING[sampling])


EMPTY_PHRASES = [
    ("required_phrases", [" "]),
    ("required_phrases", [[]]),
    ("required_phrases", [["a", ""]]),
    ("forbidden_phrases", [""]),
]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"beam_size": 3, "n_best": 4},
            "n_best: n_best is 4, but beam_size is 3\n"
            "  set decoding.beam_size to 4 or more, or decoding.n_best to 3 or less",
        ),
        (
            {"n_best": 2, "mbr": {}},
            "n_best: MBR decoding returns one output, but n_best is 2\n"
            "  set decoding.n_best to 1, or decoding.mbr to null",
        ),
        (
            {"beam_size": 4, "diversity": {"num_beam_groups": 3}},
            "diversity.num_beam_groups: beam_size 4 is not divisible by 3 groups\n"
            "  choose a number of groups that divides decoding.beam_size",
        ),
        (
            {"required_phrases": ["dog"], "forbidden_phrases": ["cat", "dog"]},
            "required_phrases: 'dog' is required, but 'dog' is forbidden\n  remove one of them",
        ),
        (
            {"min_length": 5, "max_length": 4},
            "min_length: min_length is 5, but max_length is 4\n"
            "  lower decoding.min_length, or raise decoding.max_length",
        ),
        *(
            ({name: phrases}, f"{name}: a phrase is empty\n  remove the empty phrase")
            for name, phrases in EMPTY_PHRASES
        ),
        *(
            (
                {"phrase_table": "words.txt", "unk_replacement": value},
                f"phrase_table: has no effect, because decoding.unk_replacement is {value!r}\n"
                "  set decoding.unk_replacement to copy, or remove decoding.phrase_table",
            )
            for value in ("keep", "suppress")
        ),
    ],
    ids=str,
)
def test_contradiction_raises(settings, message):
    assert error_message(settings) == f"decoding.{message}"


@pytest.mark.parametrize(
    ("settings", "num_outputs"),
    [
        ({"beam_size": 3, "n_best": 4, "sampling": {}}, 4),
        ({"required_phrases": [["dog", "slave"]], "forbidden_phrases": ["cat", "dog"]}, 5),
    ],
)
def test_apparent_contradiction_is_accepted(settings, num_outputs):
    assert DecodingConfig.model_validate(settings).num_outputs == num_outputs


@pytest.mark.parametrize("name", ["beam_size", "n_best"])
def test_zero_beam_size_in_a_call_raises(name):
    with pytest.raises(ConfigError) as caught:
        DecodingConfig().with_beam_size(**{name: 0})
    assert str(caught.value) == f"decoding.{name}: must be at least 1, but is 0\n  raise it"


def test_document_lists_every_setting_with_the_default():
    document = Path(__file__).resolve().parents[3] / "docs" / "decoding.md"
    section = document.read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines()]
    defaults = {
        row[1].strip("`"): row[2] for row in rows if len(row) > 2 and row[1].startswith("`")
    }
    assert set(defaults) == set(DecodingConfig.model_fields)
    for name, value in DecodingConfig().model_dump().items():
        if isinstance(value, dict):
            is_off = all(setting is None for setting in value.values())
            off = "none" if is_off else "1 group"
            assert defaults[name] in {str(value.get("alpha")), value.get("type"), off}
        else:
            assert defaults[name] == ("none" if value in (None, ()) else str(value))
