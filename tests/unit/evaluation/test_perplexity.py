"""Perplexity against its definition, worked out token by token."""

import math

import pytest
import torch

from heedful.data.running import StreamsConfig, TextBatch, overlapping, run_together
from heedful.evaluation.perplexity import Perplexity, Surprise, perplexity, surprise
from heedful.readers.recurrent import RecurrentReaderConfig
from heedful.tasks.language_model import LanguageModelConfig
from heedful.text.config import CharacterConfig, WordConfig

LINES = ["Quis est in horto?", "", "Caecilius  in horto est.", "Marcus in via."]


def model_of(tokenizer):
    config = LanguageModelConfig(reader=RecurrentReaderConfig(hidden_size=9), embedding_size=5)
    size = len(tokenizer)
    return config.build(source_size=size, target_size=size).double().eval()


@pytest.mark.parametrize("tokens_by", [WordConfig(), CharacterConfig()])
@pytest.mark.parametrize("context", [2, 7, 10, 500])
def test_it_is_what_asking_for_one_token_after_another_gives(tokens_by, context):
    tokenizer = tokens_by.train(LINES)
    model = model_of(tokenizer)
    tokens = run_together(LINES, tokenizer)
    stride, nats = context // 2, 0.0
    for place in range(1, len(tokens)):
        # The first piece that reaches so far; pieces begin every half context.
        start = max(0, math.ceil((place - context) / stride)) * stride
        shown = torch.tensor(tokens[start:place]).long().unsqueeze(0)
        said = model(TextBatch(shown, shown)).log_probs[0, -1]
        nats -= said[tokens[place]].item()
    batches = overlapping(tokens, StreamsConfig(count=3, context=context))
    found = perplexity(surprise(model, batches), LINES)
    assert found.nats == pytest.approx(nats)
    assert found.num_tokens == len(tokens) - 1


def test_the_surprise_is_shared_out_over_tokens_words_and_characters():
    found = perplexity(Surprise(nats=6 * math.log(8), num_tokens=3, num_correct=0), ["a bc", "d"])
    assert found == Perplexity(6 * math.log(8), num_tokens=3, num_words=3, num_characters=7)
    assert found.loss == pytest.approx(2 * math.log(8))
    assert found.per_token == found.per_word == pytest.approx(64)
    assert found.per_character == pytest.approx(8 ** (6 / 7))
    assert found.bits_per_character == pytest.approx(18 / 7)


def test_characters_of_a_text_are_its_tokens_where_each_is_one():
    tokenizer = CharacterConfig().train(LINES)
    batches = overlapping(run_together(LINES, tokenizer), StreamsConfig())
    found = perplexity(surprise(model_of(tokenizer), batches), LINES)
    assert found.num_tokens == found.num_characters
    assert found.per_token == found.per_character


def test_the_tokens_held_likeliest_are_counted():
    tokenizer = CharacterConfig().train(["ab"])
    model = model_of(tokenizer)
    model.projection.weight.data.zero_()
    model.projection.bias.data.zero_()[tokenizer.encode("a")[0]] = 1.0
    batches = overlapping(run_together(["aab", "b"], tokenizer), StreamsConfig())
    found = surprise(model, batches)
    assert (found.num_correct, found.num_tokens) == (2, 6)
    assert found.metrics("")[2].value == pytest.approx(100 / 3)


def test_a_surprise_beyond_all_numbers_is_infinite():
    assert Perplexity(1e6, 1, 1, 1).per_word == math.inf
