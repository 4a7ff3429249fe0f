"""`explain`: predictions with edited attention, the best tokens of each step, and checks."""

import json
from itertools import product

import numpy as np
import pytest
import torch

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.decoding.requests import Request
from heedful.errors import ConfigError, DataError
from heedful.inspection.explanation import Explanation, kl_divergence
from tests.commands import write_random_run

PATH = "decoder.wiring.attention"
TEXT = "a b c d"
SIZES = {"hidden_size": 8, "embedding_size": 8}
TRANSFORMER = {
    "type": "transformer",
    "hidden_size": 8,
    "num_layers": 2,
    "attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}},
}
CONVOLUTIONS = {"type": "convolutional", "embedding_size": 6, "layers": [{"hidden_size": 6}]}
RECURRENT = {"type": "recurrent", **SIZES}
MODELS = {
    "rnn": {"encoder": RECURRENT, "decoder": RECURRENT},
    "transformer": {"encoder": TRANSFORMER, "decoder": TRANSFORMER},
    "convolutional": {"encoder": CONVOLUTIONS, "decoder": CONVOLUTIONS},
    "copying": {
        "encoder": RECURRENT,
        "decoder": {**RECURRENT, "output_head": {"type": "pointer-generator"}},
    },
    "monotonic": {
        "encoder": RECURRENT,
        "decoder": {**RECURRENT, "attention": {"alignment": {"type": "monotonic"}}},
    },
    "sentinel": {"encoder": RECURRENT, "decoder": {**RECURRENT, "wiring": {"type": "adaptive"}}},
    "prefix-lm": {
        "type": "prefix-lm",
        "embedding_size": 8,
        "backbone": TRANSFORMER,
        "positional_encoding": {"type": "sinusoidal"},
    },
}
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "n_best": 2},
    "sampling": {"beam_size": 1, "sampling": {}},
    "constraints": {"beam_size": 3, "required_phrases": ["c b"], "forbidden_phrases": ["d"]},
}
WORDS = {"type": "shared", "tokenizer": {"type": "word"}}
TEXTS = [TEXT, "d c b a", "b", "a a c"]


@pytest.fixture(scope="module")
def letters(trained):
    return heedful.load(trained, device="cpu")


@pytest.fixture(scope="module", params=MODELS)
def predictor(request, tmp_path_factory):
    tokenizers = WORDS
    if request.param == "copying":
        tokenizers = {"type": "shared", "tokenizer": {"type": "word", "open_vocabulary": True}}
    settings = {"model": MODELS[request.param], "tokenizers": tokenizers}
    settings["decoding"] = {"min_length": 4, "max_length": 6}
    folder = tmp_path_factory.mktemp("explained") / "run"
    run = write_random_run(folder, settings, TEXTS, TEXTS, seed=3)
    return heedful.load(run, device="cpu")


def with_search(predictor, name):
    search = {"decoding": {**predictor.decoding.model_dump(), **SEARCHES[name]}}
    config = type(predictor.decoding).model_validate(search["decoding"])
    return type(predictor)(predictor.model, predictor.tokenizers, config, device="cpu")


def default_layer(explanation):
    return next(layer for layer in explanation.layers if layer.is_default)


def test_explanation_without_edits_is_the_translation(predictor):
    searching = with_search(predictor, "greedy")
    explanation, expected = searching.explain(TEXT), searching.translate(TEXT)
    assert explanation.result.tokens == expected.tokens
    log_probs = expected.log_probs.tolist()
    assert len(explanation.top) == len(log_probs)
    for (best, *_), token_id, log_prob in zip(
        explanation.top, expected.token_ids, log_probs, strict=False
    ):
        assert best.log_prob >= log_prob - 1e-5
        assert best.id == token_id or best.token == "(end)"  # which comes too early


@pytest.mark.parametrize("search", SEARCHES)
def test_row_set_to_own_weights_changes_no_token_in_any_search(predictor, search):
    searching = with_search(predictor, search)
    plain = searching.explain(TEXT, need_effects=False)
    edits = [
        AttentionEdit(layer=layer.path, step=layer.first_step + 1, head=head, row=row.tolist())
        for layer in plain.layers
        if layer.kind != "copy"
        for head, row in enumerate(layer.weights[:, 1])
    ]
    edited = searching.explain(TEXT, edits=edits, need_effects=False)
    assert edited.result.token_ids == plain.result.token_ids
    assert edited.result.log_prob == pytest.approx(plain.result.log_prob, abs=1e-5)
    for layer, other in zip(plain.layers, edited.layers, strict=True):
        np.testing.assert_allclose(layer.weights, other.weights, atol=1e-5)


@pytest.mark.parametrize("search", SEARCHES)
def test_forced_cell_is_returned_as_forced_in_any_search(predictor, search):
    searching = with_search(predictor, search)
    layer = default_layer(searching.explain(TEXT, need_effects=False))
    edit = AttentionEdit(layer=layer.path, step=layer.first_step, set={2: 1})
    edited = default_layer(searching.explain(TEXT, edits=[edit], need_effects=False))
    forced = np.broadcast_to(np.eye(edited.weights.shape[-1])[2], edited.weights[:, 0].shape)
    np.testing.assert_array_equal(edited.weights[:, 0], forced)


def test_forced_cell_of_a_model_that_copies_letters_is_the_letter_that_is_written(letters):
    for position in range(4):
        explanation = letters.explain(TEXT, edits=[AttentionEdit(step=1, set={position: 1})])
        assert explanation.result.tokens[:2] == ["a", "abcd"[position]]


def test_edits_hold_in_beam_search_with_a_prefix_and_a_tree(letters):
    edit, options = AttentionEdit(step=2, set={0: 1}), letters.parse_options({"need_tree": True})
    result = letters.explain(Request(TEXT, prefix="d"), options, edits=[edit]).result
    assert result.tokens[::2][:2] == ["d", "a"]
    assert "a" in {node.token for node in result.tree}
    tokens = {node.token: node.token_id for node in result.tree}
    assert [tokens[token] for token in result.tokens] == list(result.token_ids)


def test_dropped_source_token_is_not_written_and_has_no_weight(letters):
    explanation = letters.explain(TEXT, edits=[AttentionEdit(layer="source", scale={2: 0})])
    assert "c" not in explanation.result.tokens
    (layer,) = explanation.layers
    assert (layer.weights[..., 2] == 0).all()
    np.testing.assert_allclose(layer.weights.sum(-1), 1, rtol=1e-6)


def test_explaining_leaves_the_predictor_as_it_was(letters):
    before = letters.translate(TEXT)
    letters.explain(TEXT, edits=[AttentionEdit(step=0, set={3: 1})])
    after = letters.translate(TEXT)
    assert after.tokens == before.tokens
    assert np.array_equal(after.weights, before.weights)


def test_texts_of_an_edited_translator_are_those_of_own_search(letters):
    edited = letters.with_edits([AttentionEdit(step=0, set={3: 1})])
    assert not edited.has_text_backend
    assert list(edited.predict_texts([TEXT])) == [edited.translate(TEXT).text]


def test_members_of_an_ensemble_are_edited_by_name(trained):
    ensemble = heedful.load(trained, device="cpu", ensemble_with=[trained])
    paths = [layer.path for layer in ensemble.explain(TEXT).layers]
    assert paths == [f"member.0.{PATH}", f"member.1.{PATH}"]
    edit = AttentionEdit(layer=f"member.1.{PATH}", step=0, set={3: 1})
    first, second = (layer.weights[0] for layer in ensemble.explain(TEXT, edits=[edit]).layers)
    assert second[0].tolist() == [0, 0, 0, 1, 0]
    assert first[0].max() < 1
    both = [AttentionEdit(layer="source", step=0, set={3: 1})]
    assert ensemble.explain(TEXT, edits=both).result.tokens[0] == "d"


def test_effects_are_the_divergences_of_single_edits(predictor):
    explanation = predictor.explain(TEXT)
    layer = default_layer(explanation)
    (checks,) = (
        checks for checks in explanation.checks if checks.effects and checks.path == layer.path
    )
    uniform = {"alignment": {"type": "fixed"}}
    strongest = {"scale": {int(layer.weights[0, 1].argmax()): 0.0}}
    plain = predictor.force(TEXT, explanation.result, 1)[0, 1]
    for name, action in {"uniform": uniform, "without_strongest": strongest}.items():
        fields = {"layer": layer.path, "step": layer.first_step + 1, **action}
        try:
            edited = predictor.with_edits([AttentionEdit.from_json(fields)])
        except ConfigError:  # a monotonic alignment, or a sentinel, keeps its alignment
            continue
        if layer.weights.shape[0] > 1 and name == "without_strongest":
            continue  # each head has its own strongest position
        if "Monotonic" in repr(predictor.model) or "Sentinel" in repr(predictor.model):
            continue  # without a position the pointer goes elsewhere, and the gate takes a share
        expected = kl_divergence(plain, edited.force(TEXT, explanation.result, 1)[0, 1])
        assert checks.effects[name][1] == pytest.approx(expected.item(), rel=1e-3, abs=1e-6)


def test_permuted_row_has_each_weight_at_the_next_visible_position():
    from heedful.inspection.explanation import _perturb

    weights = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0])
    mask = torch.tensor([True, False, True, True, False])
    expected = torch.tensor([0.2, 0.0, 0.5, 0.3, 0.0])
    torch.testing.assert_close(_perturb("permuted", weights, mask), expected)


def test_checks_of_a_layer_count_positions_and_sums(letters):
    explanation = letters.explain(TEXT, edits=[AttentionEdit(step=0, row=[0.5, 0.5])])
    (checks,) = explanation.checks
    assert checks.effective_support[0, 0] == pytest.approx(2)
    np.testing.assert_allclose(checks.row_sums, 1, rtol=1e-6)
    assert checks.max_hidden_weight == 0


def test_explanation_is_json(letters):
    edit = AttentionEdit(step=0, set={3: 1})
    fields = json.loads(json.dumps(letters.explain(TEXT, edits=[edit]).to_json()))
    assert AttentionEdit.from_json(fields["edits"][0]) == edit
    assert fields["layers"][0]["path"] == PATH
    assert fields["top"][0][0]["token"] == "d"
    assert set(fields["checks"][0]["effects"]) == {"permuted", "uniform", "without_strongest"}
    assert len(fields["token_ids"]) == len(fields["result"]["tokens"])


def test_prefix_tokens_equal_a_prefix_of_text(letters):
    ids = letters.tokenizers.target.encode("d c")
    by_tokens = letters.translate(Request(TEXT, prefix_tokens=ids))
    by_text = letters.translate(Request(TEXT, prefix="d c"))
    assert by_tokens.token_ids == by_text.token_ids
    assert by_tokens.log_prob == by_text.log_prob


def test_prefix_tokens_are_kept_where_text_would_be_tokenized_otherwise(tmp_path):
    subwords = {"type": "shared", "tokenizer": {"type": "subword", "vocab_size": 270}}
    texts = ["abab baba abba", "ab ab", "ba ba ab"] * 20
    settings = {"model": MODELS["rnn"], "tokenizers": subwords}
    translator = heedful.load(write_random_run(tmp_path / "run", settings, texts, texts, seed=1))
    tokenizer = translator.tokenizers.target
    pairs = map(list, product(range(260, len(tokenizer)), repeat=2))
    ids = next(pair for pair in pairs if tokenizer.encode(tokenizer.decode(pair)) != pair)
    assert list(translator.translate(Request("ab", prefix_tokens=ids)).token_ids[: len(ids)]) == ids


@pytest.mark.parametrize("ids", [[10_000], [3], [-1]])
def test_prefix_tokens_without_such_a_token_are_rejected(letters, ids):
    with pytest.raises(DataError, match="prefix_tokens has"):
        letters.translate(Request(TEXT, prefix_tokens=ids))


def test_prefix_is_a_text_or_tokens(letters):
    with pytest.raises(DataError, match="as a text and as tokens"):
        letters.translate(Request(TEXT, prefix="a", prefix_tokens=[5]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer": "decoder.atention", "set": {0: 1}}, f"the layers are: {PATH}"),
        ({"head": 2, "set": {0: 1}}, f"{PATH} has head 0 alone"),
        ({"step": 9, "set": {0: 1}}, f"step is 9, but the steps of {PATH} are 0 to 4"),
        ({"step": 1, "set": {7: 1}}, f"position is [7], but those of {PATH} are 0 to 4"),
        ({"scale": dict.fromkeys(range(5), 0)}, f"all positions of {PATH} are removed"),
    ],
)
def test_edits_without_such_a_layer_head_step_or_position_are_rejected(letters, fields, message):
    with pytest.raises(ConfigError) as caught:
        letters.explain(TEXT, edits=[AttentionEdit.from_json(fields)])
    assert message in str(caught.value)


def test_empty_text_has_an_empty_explanation(letters):
    explanation = letters.explain("", edits=[AttentionEdit(step=0, set={0: 1})])
    assert explanation.result.text == ""
    assert (list(explanation.layers), explanation.checks) == ([], [])


def test_effects_of_last_steps_computed_first_within_time_limit(letters, monkeypatch):
    every = letters.explain(TEXT).checks[-1].effects
    monkeypatch.setattr("heedful.inspection.explanation._MAX_TOKENS", 1)  # one row at a time
    explanation = letters.explain(TEXT, effect_seconds=0)
    (effects,) = [one.effects for one in explanation.checks if one.effects]
    name, *others = effects
    assert np.isnan(effects[name][:-1]).all()
    assert effects[name][-1] == pytest.approx(every[name][-1], abs=1e-5)
    assert all(np.isnan(effects[other]).all() for other in others)
    assert explanation.to_json()["checks"][-1]["effects"][name][0] is None


def test_explanation_json_round_trip(predictor):
    path = default_layer(predictor.explain(TEXT, need_effects=False)).path
    edit = AttentionEdit(step=0, head=0, scale={0: 0.5}, layer=path)
    explanation = predictor.explain(TEXT, edits=[edit])
    fields = json.loads(json.dumps(explanation.to_json()))
    read = Explanation.from_json(fields)
    assert read.edits == [edit]
    assert read.result == fields["result"]
    again = {name: read._replace(result=explanation.result).to_json()[name] for name in fields}
    assert again == fields
