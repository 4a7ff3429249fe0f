"""Perplexity against its definition, worked out token by token."""

import math

import pytest
import torch

from heedful.data.text.token_stream import (
    LMBatch,
    LMBatchingConfig,
    concatenate_lines,
    overlapping_windows,
)
from heedful.evaluation.perplexity import TokenLoss, compute_token_loss
from heedful.models.language_model import LanguageModelConfig, RecurrentBackboneConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig

LINES = ["Quis est in horto?", "", "Caecilius  in horto est.", "Marcus in via."]


def model_of(tokenizer):
    config = LanguageModelConfig(backbone=RecurrentBackboneConfig(hidden_size=9), embedding_size=5)
    size = len(tokenizer)
    return config.build(source_vocab_size=size, target_vocab_size=size).double().eval()


@pytest.mark.parametrize("tokens_by", [WordTokenizerConfig(), CharacterTokenizerConfig()])
@pytest.mark.parametrize("context", [2, 7, 10, 500])
def test_perplexity_same_as_token_by_token_scoring(tokens_by, context):
    tokenizer = tokens_by.train(LINES)
    model = model_of(tokenizer)
    tokens = concatenate_lines(LINES, tokenizer)
    stride, total_nll = context // 2, 0.0
    for place in range(1, len(tokens)):
        # The first piece that reaches so far; pieces begin every half context.
        start = max(0, math.ceil((place - context) / stride)) * stride
        shown = torch.tensor(tokens[start:place]).long().unsqueeze(0)
        outputs = model(LMBatch(shown, shown)).log_probs[0, -1]
        total_nll -= outputs[tokens[place]].item()
    batches = overlapping_windows(tokens, LMBatchingConfig(batch_size=3, context_length=context))
    result = compute_token_loss(model, batches)
    assert result.total_nll == pytest.approx(total_nll)
    assert result.num_tokens == len(tokens) - 1


def text_scores(loss, lines):
    return {score.name: score.value for score in loss.text_scores(lines, "")}


def test_perplexity_per_token_word_and_character():
    loss = TokenLoss(total_nll=6 * math.log(8), num_tokens=3, num_correct=0)
    result = text_scores(loss, ["a bc", "d"])  # 3 words, 7 characters
    assert result["nats per token"] == pytest.approx(2 * math.log(8))
    assert result["perplexity per token"] == pytest.approx(64)
    assert result["perplexity per word"] == pytest.approx(64)
    assert result["perplexity per character"] == pytest.approx(8 ** (6 / 7))
    assert result["bits per character"] == pytest.approx(18 / 7)


def test_character_tokenizer_returns_perplexity_per_character():
    tokenizer = CharacterTokenizerConfig().train(LINES)
    batches = overlapping_windows(concatenate_lines(LINES, tokenizer), LMBatchingConfig())
    loss = compute_token_loss(model_of(tokenizer), batches)
    result = text_scores(loss, LINES)
    assert loss.num_tokens == sum(len(line) + 1 for line in LINES)
    assert result["perplexity per token"] == result["perplexity per character"]


def test_correct_tokens_counted():
    tokenizer = CharacterTokenizerConfig().train(["ab"])
    model = model_of(tokenizer)
    model.lm_head.weight.data.zero_()
    model.lm_head.bias.data.zero_()[tokenizer.encode("a")[0]] = 1.0
    batches = overlapping_windows(concatenate_lines(["aab", "b"], tokenizer), LMBatchingConfig())
    result = compute_token_loss(model, batches)
    assert (result.num_correct, result.num_tokens) == (2, 6)
    assert result.token_scores("")[2].value == pytest.approx(100 / 3)


def test_infinite_perplexity():
    assert text_scores(TokenLoss(1e6, 1, 0), ["a"])["perplexity per word"] == math.inf
