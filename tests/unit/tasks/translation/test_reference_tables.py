"""References of texts for CIDEr-D as a reward: equal sources, mixtures, settings that clash."""

import numpy as np
import pytest

from heedful.data.shuffling import DataCursor
from heedful.data.text.example_formats import ExampleSource
from heedful.data.text.pair_dataset import Pair
from heedful.errors import ConfigError
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.tasks.translation.task import TASK
from heedful.training.objectives import SelfCriticalObjectiveConfig
from heedful.training.rollouts import CiderDReward, Rollout
from tests.commands import write_recipe
from tests.unit.evaluation.slow_cider_d import slow_cider_d

PAIRS = [
    Pair("a b", "dog runs fast"),
    Pair("c", "cat sits"),
    Pair("a b", "a dog runs"),
    Pair("a", "two men"),
]
EOS = 3


def data_module(tmp_path, *corpora, settings=()):
    recipe = load_recipe(str(write_recipe(tmp_path, steps=2, every=2)), settings)
    examples = [ExampleSource(pairs, str) for pairs in corpora]
    joined = [pair for pairs in corpora for pair in pairs]
    tokenizers = recipe.tokenizers.train(*TASK.data.example_format.tokenizer_texts(joined))
    tokenized = TASK.data.tokenize_train(recipe, tokenizers, examples)
    return TASK.data.build_data_module(recipe, tokenizers, tokenized, examples[0])


def test_targets_of_equal_sources_are_references_of_each_other(tmp_path):
    module = data_module(tmp_path, PAIRS)
    table = module.build_reference_table()
    assert table.num_references == 4
    assert sorted(table.scorer.group_sizes.tolist()) == [1, 1, 2]
    encode = module.tokenizers.target.encode
    texts = {"a b": ["dog runs fast", "a dog runs"], "c": ["cat sits"], "a": ["two men"]}
    groups = [[[*encode(text), EOS] for text in choices] for choices in texts.values()]
    output = Rollout(tuple(encode("a dog sits")))
    for batch, _ in zip(module.train_batches(DataCursor(0, 0)), range(3), strict=False):
        rewards = CiderDReward(table)(batch, [[output]] * len(batch.targets))
        for row, (reward,) in zip(batch.sources.tokens.tolist(), rewards, strict=True):
            source = module.tokenizers.source.decode([token for token in row if token > EOS])
            group = list(texts).index(source)
            assert reward == pytest.approx(slow_cider_d(groups, [*output.tokens, EOS], group))


def test_mixture_has_the_references_of_all_corpora(tmp_path):
    corpora = "[{weight: 0.5, source: %s}, {weight: 1, source: %s}]"
    source = "{type: synthetic, name: reverse, num_examples: 2}"
    settings = [f"data.train={{type: mixture, corpora: {corpora % (source, source)}}}"]
    module = data_module(tmp_path, PAIRS[:2], PAIRS[2:], settings=settings)
    assert len(module.train) == 3  # an epoch has half of the first corpus
    table = module.build_reference_table()
    assert table.num_references == 4
    assert np.sort(table.scorer.group_sizes).tolist() == [1, 1, 2]


def test_objective_without_the_reward_needs_no_references(tmp_path):
    module = data_module(tmp_path, PAIRS)
    lines: list[str] = []
    for config in ({"type": "cross-entropy"}, {"type": "reinforce", "num_samples": 2}):
        recipe = load_recipe(
            str(write_recipe(tmp_path, steps=2, every=2)), [f"training.objective={config}"]
        )
        TASK.add_training_data(
            TASK.build_objective(recipe.training), recipe.training, module, lines.append
        )
    assert lines == []


def test_subword_regularization_raises(tmp_path):
    path = write_recipe(tmp_path, steps=2, every=2)
    bpe = "type: subword, vocab_size: 300, model_type: bpe"
    tokenizer = f"{{{bpe}, subword_regularization: {{type: bpe-dropout}}}}"
    settings = [
        "training.objective.type=self-critical",
        f"tokenizers.target={tokenizer}",
    ]
    with pytest.raises(ConfigError) as caught:
        train(str(path), tmp_path / "run", settings=settings)
    assert str(caught.value) == (
        "training.objective.reward: 'cider-d' needs tokens that are the same in each epoch\n"
        "  remove subword_regularization and hidden_word_rate from the tokenizers"
    )


def test_translation_trains_on_cider_d(tmp_path, capsys):
    path = write_recipe(tmp_path, steps=2, every=2)
    train(str(path), tmp_path / "run", settings=["training.objective.type=self-critical"])
    assert "reward cider-d: document frequencies of" in capsys.readouterr().err
    assert SelfCriticalObjectiveConfig().type in (tmp_path / "run" / "config.yaml").read_text()
