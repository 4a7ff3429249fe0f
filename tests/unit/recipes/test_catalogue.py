from heedful.recipes import load_recipe


def test_a_new_kind_brings_its_own_defaults():
    recipe = load_recipe("default", ["model.decoder.attention.score.kind=bilinear"])
    assert recipe.model.decoder.attention.score.model_dump() == {"kind": "bilinear"}
    assert recipe.model.decoder.hidden_size == 256


def test_overrides_reach_any_depth():
    recipe = load_recipe(
        "reverse-tiny", ["training.batching.max_tokens=99", "text.source.kind=character"]
    )
    assert recipe.training.batching.max_tokens == 99
    assert recipe.text.source.kind == "character"
