from heedful.recipes import load_recipe, recipe_names
from heedful.recipes.recipe import recipe_groups


def test_a_new_kind_brings_its_own_defaults():
    recipe = load_recipe("default", ["model.decoder.attention.score.type=bilinear"])
    assert recipe.model.decoder.attention.score.model_dump() == {"type": "bilinear"}
    assert recipe.model.decoder.hidden_size == 256


def test_overrides_reach_any_depth():
    recipe = load_recipe(
        "reverse-tiny", ["training.batching.max_tokens=99", "tokenizers.source.type=character"]
    )
    assert recipe.training.batching.max_tokens == 99
    assert recipe.tokenizers.source.type == "character"


def test_every_recipe_is_a_system_or_a_form_of_one():
    told = [
        f"{name}{form}"
        for name, forms in recipe_groups()
        for form in ("", *(f"-{f}" for f in forms))
    ]
    assert sorted(told) == recipe_names()


def test_recipes_of_one_size_come_first():
    has_forms = [bool(system.variants) for system in recipe_groups()]
    assert has_forms == sorted(has_forms)
    assert ("default", ()) in recipe_groups()
