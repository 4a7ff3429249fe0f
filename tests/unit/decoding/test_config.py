"""The settings of decoding: short forms, sections, and what is wrong with them."""

from pathlib import Path

import pytest

from heedful.config import parse_override, to_yaml, validate_settings
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.search import FIRST_FINISHED, MEAN_LOG_PROB, LengthPenalty, PatienceStopping


def decoding(settings=None, *overrides):
    changes = [parse_override(f"decoding.{text}") for text in overrides]
    given = {"decoding": settings or {}}
    return validate_settings(Recipe, given, location="r.yaml", overrides=changes).decoding


@pytest.mark.parametrize(
    ("said", "penalty"),
    [
        (0.3, LengthPenalty(0.3)),
        (0, LengthPenalty(0)),
        ({"alpha": 0.3}, LengthPenalty(0.3)),
        ({"type": "gnmt"}, LengthPenalty(0.6)),
        ({"type": "power", "alpha": 0.5}, LengthPenalty(0.5, "power")),
        ("average", MEAN_LOG_PROB),
        ("none", LengthPenalty(0)),
    ],
)
def test_a_length_penalty_is_a_number_a_word_or_a_section(said, penalty):
    assert decoding({"length_penalty": said}).length_penalty.build() == penalty


def test_as_they_stand_settings_are_those_they_always_were():
    plain = decoding()
    assert plain.length_penalty.build() == LengthPenalty(0.6)
    assert (plain.beam_size, plain.max_length_ratio, plain.max_length_offset) == (5, 2.0, 20)
    assert plain.num_outputs == 5
    assert plain.sampling_setting is None


def test_a_stopping_policy_is_a_word_or_a_section():
    assert decoding({"stopping": "first-finished"}).stopping.build() is FIRST_FINISHED
    patient = decoding({"stopping": {"type": "patience", "factor": 2}}).stopping.build()
    assert isinstance(patient, PatienceStopping)
    assert patient.factor == 2


def test_settings_can_be_changed_from_the_command_line():
    changed = decoding(None, "length_penalty.alpha=1", "stopping=optimal")
    assert changed.length_penalty.build() == LengthPenalty(1.0)
    assert changed.stopping.type == "optimal"
    assert decoding(None, "sampling.top_k=3").sampling.top_k == 3
    assert decoding(None, "length_penalty=average").length_penalty.build() == MEAN_LOG_PROB
    assert decoding(None, "must=[dog, [cat, slave]]").required_phrases == ("dog", ("cat", "slave"))


def test_settings_are_written_and_read_back_whole():
    import yaml

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


def test_plain_settings_keep_limits_alone():
    config = DecodingConfig(max_source_length=7, max_length=9, forbidden_phrases=("a",), n_best=3)
    assert config.greedy() == DecodingConfig(beam_size=1, max_source_length=7, max_length=9)


def test_other_widths_are_checked_again():
    config = DecodingConfig(beam_size=4, n_best=2)
    assert config.with_beam_size(beam_size=6, n_best=3).num_outputs == 6
    assert config.with_beam_size() == config
    with pytest.raises(ConfigError, match="2 outputs are wanted, but a beam of 1"):
        config.with_beam_size(beam_size=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length_penalty": -1}, "length_penalty: should be greater than or equal to 0, found -1"),
        ({"length_penalty": "avrage"}, "no length penalty is called 'avrage'; did you mean 'aver"),
        ({"length_penalty": {"type": "mean", "alpha": 1}}, "no setting is called 'alpha'"),
        ({"length_penalty": True}, "a number is wanted, found yes or on"),
        ({"coverage_penalty": {"beta": 1}}, "coverage_penalty.type: it is not said which kind"),
        (
            {"coverage_penalty": {"type": "gnmt", "beta": -1}},
            "coverage_penalty.beta: should be greater than",
        ),
        ({"stopping": "never"}, "no stopping is called 'never'"),
        ({"required_phrases": "dog"}, "required_phrases: a list is wanted, found 'dog'"),
        ({"forbidden_phrases": [False]}, "forbidden_phrases.0: a name is wanted, found no or off"),
        ({"min_length": -1}, "min_length: should be greater than or equal to 0"),
        ({"min_length_ratio": -0.1}, "min_length_ratio: should be greater than or equal to 0"),
        (
            {"no_repeat_ngram_size": -1},
            "no_repeat_ngram_size: should be greater than or equal to 0",
        ),
        ({"repetition_penalty": 0.5}, "repetition_penalty: should be greater than or equal to 1"),
        ({"n_best": 0}, "n_best: should be greater than 0"),
        ({"sampling": {"temperature": -1}}, "sampling.temperature: should be greater than or"),
        ({"sampling": {"top_p": 0}}, "sampling.top_p: should be greater than 0"),
        ({"mbr": {"num_samples": 0}}, "mbr.num_samples: should be greater than 0"),
        ({"mbr": {"utility": "ter"}}, "'ter' is not a choice"),
        ({"shallow_fusion": {}}, "shallow_fusion.run: this setting has no default"),
        ({"shallow_fusion": {"run": "x", "weight": -1}}, "weight: should be greater than or"),
        ({"ensemble_averaging": "max"}, "'max' is not a choice"),
    ],
)
def test_a_value_that_cannot_be_is_named(given, message):
    with pytest.raises(ConfigError) as caught:
        decoding(given)
    assert str(caught.value).startswith("r.yaml: decoding.")
    assert message in str(caught.value)


def test_the_document_lists_every_setting_with_its_default():
    document = Path(__file__).resolve().parents[3] / "docs" / "decoding.md"
    section = document.read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines()]
    told = {row[1].strip("`"): row[2] for row in rows if len(row) > 2 and row[1].startswith("`")}
    assert set(told) == set(DecodingConfig.model_fields)
    for name, value in DecodingConfig().model_dump().items():
        if isinstance(value, dict):
            assert told[name] in {str(value.get("alpha")), value.get("kind"), "1 group"}
        else:
            assert told[name] == ("none" if value in (None, ()) else str(value))
