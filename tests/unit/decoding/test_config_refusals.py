"""Refusals: what does not go together is named with a reason and a remedy, and nothing else is."""

import pytest

from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError

DRAWN = {
    "sampling": {"sampling": {}},
    "consensus": {"mbr": {}},
    "consensus by sampling": {"mbr": {}, "sampling": {"top_k": 3}},
}
OF_BEAMS = {
    "diversity.num_beam_groups": {"diversity": {"num_beam_groups": 5}},
    "coverage": {"coverage_penalty": {"type": "gnmt"}},
    "stopping": {"stopping": "optimal"},
    "must": {"required_phrases": ["dog"]},
}


def refused(settings):
    with pytest.raises(ConfigError) as caught:
        DecodingConfig.model_validate(settings)
    return str(caught.value)


@pytest.mark.parametrize("name", OF_BEAMS)
@pytest.mark.parametrize("drawn", DRAWN)
def test_what_only_a_beam_can_do_is_refused_where_outputs_are_drawn(name, drawn):
    why = "sampling" if drawn == "sampling" else "consensus"
    assert refused({**DRAWN[drawn], **OF_BEAMS[name]}) == (
        f"decoding.{name}: only a beam can keep to it, and outputs are drawn "
        f"(decoding.{why} is set)\n  leave it out, or set decoding.{why} to null"
    )


@pytest.mark.parametrize("drawn", DRAWN)
def test_settings_at_their_defaults_are_never_refused(drawn):
    written_out = DecodingConfig().model_dump(mode="json")
    DecodingConfig.model_validate({**written_out, **DRAWN[drawn]})


def test_more_outputs_than_hypotheses_are_refused():
    assert refused({"beam_size": 3, "n_best": 4}) == (
        "decoding.n_best: 4 outputs are wanted, but a beam of 3 finds at most 3\n"
        "  set decoding.beam_size to 4 or more, or nbest to 3 or less"
    )
    assert (
        DecodingConfig.model_validate({"beam_size": 3, "n_best": 4, "sampling": {}}).num_outputs
        == 4
    )


def test_a_consensus_is_one_output():
    assert refused({"n_best": 2, "mbr": {}}) == (
        "decoding.n_best: 2 outputs are wanted, but a consensus is one "
        "(decoding.mbr is set)\n  set nbest to 1, or set decoding.mbr to null"
    )


def test_groups_share_a_beam_evenly():
    assert refused({"beam_size": 4, "diversity": {"num_beam_groups": 3}}) == (
        "decoding.diversity.num_beam_groups: a beam of 4 cannot be shared by 3 groups\n"
        "  choose a number of groups that divides decoding.beam_size"
    )


def test_what_is_shortest_is_not_longer_than_what_is_longest():
    assert refused({"min_length": 5, "max_length": 4}) == (
        "decoding.min_length: outputs are to have at least 5 tokens and may have 4\n"
        "  lower it, or raise decoding.max_length"
    )


@pytest.mark.parametrize(
    ("name", "phrases"), [("must", [" "]), ("must", [[]]), ("must", [["a", ""]]), ("never", [""])]
)
def test_an_empty_phrase_is_refused(name, phrases):
    assert refused({name: phrases}) == (
        f"decoding.{name}: an empty phrase says nothing\n  leave it out"
    )


def test_a_dictionary_is_of_no_use_where_unknown_words_stay():
    assert refused({"phrase_table": "words.txt"}) == (
        "decoding.phrase_table: it says what unknown words become, but decoding.unk_replacement keeps them\n"
        "  set decoding.unk_replacement to copy, or leave the dictionary out"
    )


@pytest.mark.parametrize("name", ["beam", "nbest"])
def test_a_width_below_one_is_refused_where_it_is_given_in_a_call(name):
    with pytest.raises(ConfigError) as caught:
        DecodingConfig().with_beam_size(**{name: 0})
    assert str(caught.value) == f"decoding.{name}: cannot be 0\n  give 1 or more"
