"""Runs that are asked together: ensembles, language models, and what keeps them apart."""

import numpy as np
import pytest

import heedful
from heedful.config import validate_settings
from heedful.errors import ConfigError, RunError
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.recipes import Recipe
from heedful.runs import Run, load, load_translator
from tests.shape_checking import unchecked

TEXTS = ["the dog is in the garden", "a cat sees the dog", "the cat, the dog"]
SHARED = {"type": "shared", "tokenizer": {"type": "word"}}
SMALL = {"embedding_size": 8, "hidden_size": 8}
MODELS = {
    "translator": {
        "encoder": {"type": "recurrent", **SMALL},
        "decoder": {"type": "recurrent", **SMALL, "attention": {"score": {"type": "bilinear"}}},
    },
    "language-model": {
        "type": "language-model",
        "embedding_size": 8,
        "backbone": {"hidden_size": 8},
    },
    "masked-language-model": {
        "type": "masked-language-model",
        "encoder": {"type": "recurrent", **SMALL},
        "tie_embeddings": False,
    },
}


@pytest.fixture(autouse=True)
def _quickly():
    with unchecked():
        yield


@pytest.fixture
def write(tmp_path):
    """Write a run of random weights, and give its folder."""
    import torch

    def make(name, model="translator", *, texts=TEXTS, seed=0, text=SHARED, decoding=None):
        torch.manual_seed(seed)
        said = {"model": MODELS[model], "tokenizers": text, "decoding": decoding or {}}
        recipe = validate_settings(Recipe, said, location="test")
        cut = recipe.tokenizers.train(texts, texts)
        made = recipe.model.build(
            source_vocab_size=len(cut.source), target_vocab_size=len(cut.target)
        )
        run = Run(tmp_path / name)
        run.folder.mkdir()
        run.initialize(recipe, cut)
        run.save_model(made.state_dict(), step=0)
        return run.folder

    return make


def texts_of(translator):
    return [each.text for each in translator.translate(TEXTS)]


def test_several_runs_are_asked_together(write):
    one, other = write("one"), write("other", seed=1)
    joined = load_translator(
        one, ensemble_with=[other], overrides=["decoding.ensemble_averaging=probabilities"]
    )
    assert isinstance(joined.model, Ensemble)
    assert joined.model.averaging == "probabilities"
    alone = [load_translator(folder).score([(TEXTS[0], TEXTS[1])])[0] for folder in (one, other)]
    (together,) = joined.score([(TEXTS[0], TEXTS[1])])
    mean = np.log(np.mean([np.exp(each.log_probs) for each in alone], axis=0))
    np.testing.assert_allclose(together.log_probs, mean, atol=1e-5)


def test_a_run_with_itself_says_what_it_says_alone(write):
    one = write("one")
    assert texts_of(heedful.load(one, ensemble_with=[one])) == texts_of(heedful.load(one))


def test_a_language_model_has_a_say(write, tmp_path, monkeypatch):
    one = write("one")
    write("lm", "language-model", seed=2)
    monkeypatch.chdir(tmp_path)  # its folder is named as seen from here
    said = ["decoding.shallow_fusion.run=lm", "decoding.shallow_fusion.weight=5"]
    fused = load(one, overrides=said)
    assert isinstance(fused.model, ShallowFusion)
    assert fused.model.weight == 5
    assert texts_of(fused) != texts_of(load(one))
    silent = load(one, overrides=[said[0], "decoding.shallow_fusion.weight=0"])
    assert texts_of(silent) == texts_of(load(one))


def test_a_language_model_joins_an_ensemble_from_outside(write):
    one, lm = write("one"), write("lm", "language-model")
    made = load(one, ensemble_with=[one], overrides=[f"decoding.shallow_fusion.run={lm}"])
    assert isinstance(made.model, ShallowFusion)
    assert isinstance(made.model.model, Ensemble)


def refused(kind, *names, **options):
    with pytest.raises(kind) as caught:
        load(*names, **options)
    return str(caught.value)


def test_other_vocabularies_are_refused_by_folder_and_first_difference(write):
    one, other = write("one"), write("other", texts=[TEXTS[0].replace("dog", "hound"), *TEXTS[1:]])
    message = refused(RunError, one, ensemble_with=[one, other])
    assert message.startswith(f"{other}: its source vocabulary is another: token ")
    assert message.endswith(
        " here and ' cat' there\n  use runs that were trained with the same tokenizers"
    )


def test_a_vocabulary_that_goes_on_is_another(write):
    one, other = write("one"), write("other", texts=[*TEXTS, "the~"])
    assert refused(RunError, one, ensemble_with=[other]) == (
        f"{other}: its source vocabulary is another: it has 14 tokens, and not 13\n"
        "  use runs that were trained with the same tokenizers"
    )


def test_another_way_to_cut_is_another_vocabulary(write):
    kinds = {"source": {"type": "word"}, "target": {"type": "character"}}
    one, other = write("one"), write("other", text={"type": "separate", **kinds})
    assert refused(RunError, one, ensemble_with=[other]) == (
        f"{other}: its target vocabulary is another: tokens are cut by WordTokenizer here and by "
        "CharacterTokenizer there\n  use runs that were trained with the same tokenizers"
    )


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_what_does_not_translate_is_no_member(write, kind):
    one, other = write("one"), write("other", kind)
    assert refused(RunError, one, ensemble_with=[other]) == (
        f"{other}: this run is a {kind}, and only models that translate make an ensemble\n"
        "  leave it out"
    )
    assert refused(ConfigError, other, ensemble_with=[one]) == (
        f"others: a {kind} cannot be asked together with {one}\n"
        "  only models that translate make an ensemble: name the run alone"
    )


@pytest.mark.parametrize(
    ("model", "kind"),
    [("translator", "encoder-decoder"), ("masked-language-model", "masked-language-model")],
)
def test_only_a_language_model_can_be_fused(write, model, kind):
    one, other = write("one"), write("other", model)
    message = refused(ConfigError, one, overrides=[f"decoding.shallow_fusion.run={other}"])
    assert message == (
        f"decoding.shallow_fusion.run: the run {other} is a {kind}: it does not say how texts go "
        "on by themselves\n  name a run whose model is of `type: language-model`"
    )


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_a_model_of_running_text_is_not_fused(write, kind):
    one = write("one", kind)
    assert refused(ConfigError, one, overrides=[f"decoding.shallow_fusion.run={one}"]) == (
        f"decoding.shallow_fusion.run: a {kind} is not fused with another\n"
        "  leave language_model out"
    )


def test_a_language_model_of_other_tokens_is_refused(write):
    one, lm = write("one"), write("lm", "language-model", texts=[*TEXTS, "the~"])
    assert refused(ConfigError, one, overrides=[f"decoding.shallow_fusion.run={lm}"]) == (
        f"decoding.shallow_fusion.run: the vocabulary of {lm} is not that of the target texts: "
        "it has 14 tokens, and not 13\n  train it on target texts with their tokenizer"
    )


def test_a_folder_that_is_no_run_is_named(write, tmp_path):
    one = write("one")
    assert refused(RunError, one, ensemble_with=[tmp_path / "two"]).startswith(
        f"{tmp_path / 'two'}: "
    )
