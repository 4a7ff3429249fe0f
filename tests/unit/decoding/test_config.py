"""The settings of decoding: short forms, sections, and what is wrong with them."""

from pathlib import Path

import pytest

from heedful.config import parse_override, resolve, write_yaml
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from heedful.search import AVERAGE, FIRST, LengthPenalty, Patience


def decoding(settings=None, *overrides):
    changes = [parse_override(f"decoding.{text}") for text in overrides]
    given = {"decoding": settings or {}}
    return resolve(Recipe, given, origin="r.yaml", overrides=changes).decoding


@pytest.mark.parametrize(
    ("said", "penalty"),
    [
        (0.3, LengthPenalty(0.3)),
        (0, LengthPenalty(0)),
        ({"alpha": 0.3}, LengthPenalty(0.3)),
        ({"kind": "gnmt"}, LengthPenalty(0.6)),
        ({"kind": "power", "alpha": 0.5}, LengthPenalty(0.5, "power")),
        ("average", AVERAGE),
        ("none", LengthPenalty(0)),
    ],
)
def test_a_length_penalty_is_a_number_a_word_or_a_section(said, penalty):
    assert decoding({"length_penalty": said}).length_penalty.build() == penalty


def test_as_they_stand_settings_are_those_they_always_were():
    plain = decoding()
    assert plain.length_penalty.build() == LengthPenalty(0.6)
    assert (plain.beam, plain.max_output_ratio, plain.max_output_extra) == (5, 2.0, 20)
    assert plain.num_outputs == 5
    assert plain.drawing is None


def test_a_stopping_policy_is_a_word_or_a_section():
    assert decoding({"stopping": "first"}).stopping.build() is FIRST
    patient = decoding({"stopping": {"kind": "patience", "factor": 2}}).stopping.build()
    assert isinstance(patient, Patience)
    assert patient.factor == 2


def test_settings_can_be_changed_from_the_command_line():
    changed = decoding(None, "length_penalty.alpha=1", "stopping=optimal")
    assert changed.length_penalty.build() == LengthPenalty(1.0)
    assert changed.stopping.kind == "optimal"
    assert decoding(None, "sampling.top_k=3").sampling.top_k == 3
    assert decoding(None, "length_penalty=average").length_penalty.build() == AVERAGE
    assert decoding(None, "must=[dog, [cat, slave]]").must == ("dog", ("cat", "slave"))


def test_settings_are_written_and_read_back_whole():
    import yaml

    recipe = Recipe(
        decoding=DecodingConfig.model_validate(
            {
                "coverage": {"kind": "see"},
                "must": ["dog", ["cat", "slave"]],
                "language_model": {"run": "runs/lm"},
                "unknowns": "copy",
                "dictionary": "words.txt",
            }
        )
    )
    assert resolve(Recipe, yaml.safe_load(write_yaml(recipe)), origin="x") == recipe


def test_plain_settings_keep_limits_alone():
    config = DecodingConfig(max_source_tokens=7, max_output_tokens=9, never=("a",), nbest=3)
    assert config.plain() == DecodingConfig(beam=1, max_source_tokens=7, max_output_tokens=9)


def test_other_widths_are_checked_again():
    config = DecodingConfig(beam=4, nbest=2)
    assert config.with_widths(beam=6, nbest=3).num_outputs == 6
    assert config.with_widths() == config
    with pytest.raises(ConfigError, match="2 outputs are wanted, but a beam of 1"):
        config.with_widths(beam=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length_penalty": -1}, "length_penalty: should be greater than or equal to 0, found -1"),
        ({"length_penalty": "avrage"}, "no length penalty is called 'avrage'; did you mean 'aver"),
        ({"length_penalty": {"kind": "average", "alpha": 1}}, "no setting is called 'alpha'"),
        ({"length_penalty": True}, "a number is wanted, found yes or on"),
        ({"coverage": {"beta": 1}}, "coverage.kind: it is not said which kind"),
        ({"coverage": {"kind": "gnmt", "beta": -1}}, "coverage.beta: should be greater than"),
        ({"stopping": "never"}, "no stopping is called 'never'"),
        ({"must": "dog"}, "must: a list is wanted, found 'dog'"),
        ({"never": [False]}, "never.0: a name is wanted, found no or off"),
        ({"min_output_tokens": -1}, "min_output_tokens: should be greater than or equal to 0"),
        ({"min_output_ratio": -0.1}, "min_output_ratio: should be greater than or equal to 0"),
        ({"no_repeat": -1}, "no_repeat: should be greater than or equal to 0"),
        ({"repetition_penalty": 0.5}, "repetition_penalty: should be greater than or equal to 1"),
        ({"nbest": 0}, "nbest: should be greater than 0"),
        ({"sampling": {"temperature": -1}}, "sampling.temperature: should be greater than or"),
        ({"sampling": {"top_p": 0}}, "sampling.top_p: should be greater than 0"),
        ({"consensus": {"samples": 0}}, "consensus.samples: should be greater than 0"),
        ({"consensus": {"gain": "ter"}}, "'ter' is not a choice"),
        ({"language_model": {}}, "language_model.run: this setting has no default"),
        ({"language_model": {"run": "x", "weight": -1}}, "weight: should be greater than or"),
        ({"ensemble": "max"}, "'max' is not a choice"),
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
