"""Search through CTranslate2 finds what our own search finds, where it claims so."""

import random

import pytest
import torch

from heedful.acceleration import ct2
from heedful.acceleration.precision import convert_model
from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import collate_sources
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.search import BeamSearchOptions, LengthPenalty
from heedful.search.stopping import FIRST_FINISHED, heuristic_stopping
from heedful.tasks.translation.translator import TextBackend
from heedful.tokenization.vocabulary import BOS, EOS
from tests.catalogue import build
from tests.commands import heedful, write_random_run


def needs_ct2(test):
    reason = "CTranslate2 is not installed"
    return pytest.mark.extras(pytest.mark.skipif(not ct2.is_installed(), reason=reason)(test))


VOCABULARY = 40
TEXTS = ["", "a", "abc d", "dcba", "bb", "a b c d", "dddd"]


def build_transformer(norm_order="pre", eos_bias=0.0, **settings):
    """Return a model of the recipes' form with parameters large enough to give distinct outputs."""
    torch.manual_seed(0)
    heads = {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 4}}
    part = {"type": "transformer", "hidden_size": 32, "num_layers": 2, "norm_order": norm_order}
    part |= {"attention": heads, "feed_forward": [{"intermediate_size": 64}], **settings}
    config = EncoderDecoderConfig.model_validate({"encoder": part, "decoder": part})
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
        model.decoder.output_head.projection.bias[EOS] += eos_bias
    return model


def random_sources(count=24):
    chance = random.Random(0)
    return [
        [chance.randrange(4, VOCABULARY) for _ in range(chance.randrange(1, 9))]
        for _ in range(count)
    ]


def own_search(model, sources, limits, options):
    with torch.inference_mode():
        found = accelerate_for_inference(model, "cpu").search(
            collate_sources(sources),
            beam_size=options.beam_size,
            max_lengths=torch.tensor(limits),
            length_penalty=options.length_penalty,
            options=BeamSearchOptions(stopping=options.stopping),
        )
    return [hypotheses[0].tokens for hypotheses in found]


@needs_ct2
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_exact_searches_find_the_same_tokens(norm_order, beam_size):
    model = build_transformer(norm_order, eos_bias=4.0)
    sources = random_sources()
    limits = [len(source) + 8 for source in sources]
    options = ct2.BeamOptions(beam_size, LengthPenalty(0.0), heuristic_stopping)
    assert options.is_exact
    actual = ct2.CTranslate2Search(model).find_best(sources, limits, options)
    expected = own_search(model, sources, limits, options)
    assert any(tokens is not None for tokens in actual)
    pairs = zip(actual, expected, strict=True)
    assert all(tokens in (None, other) for tokens, other in pairs)
    if beam_size == 1:
        assert actual == expected


@needs_ct2
def test_tokens_of_int8_search_are_nearly_as_probable():
    model, sources = build_transformer(), random_sources()
    options = ct2.BeamOptions(1, LengthPenalty(0.0), heuristic_stopping)
    search = ct2.CTranslate2Search(model, compute_type="int8")
    tokens = torch.tensor(search.find_best(sources, [1] * len(sources), options))
    with torch.inference_mode():
        state = model.initial_state(collate_sources(sources))
        log_probs = model.step(torch.full((len(sources),), BOS), state).log_probs
    losses = log_probs.amax(dim=1) - log_probs.gather(1, tokens).squeeze(1)
    assert losses.mean() < 0.2 * log_probs.std()  # which tokens, depends on the processor


@needs_ct2
def test_activation_and_embedding_norm_converted():
    settings = {"feed_forward": [{"intermediate_size": 64, "activation": "swish"}]}
    model = build_transformer(embedding_norm=True, **settings)
    sources, options = random_sources(), ct2.BeamOptions(1, LengthPenalty(0.0), heuristic_stopping)
    limits = [6] * len(sources)
    actual = ct2.CTranslate2Search(model).find_best(sources, limits, options)
    assert actual == own_search(model, sources, limits, options)


def test_inexact_searches_named():
    assert not ct2.BeamOptions(4, LengthPenalty(0.6), heuristic_stopping).is_exact
    assert not ct2.BeamOptions(4, LengthPenalty(0.0), FIRST_FINISHED).is_exact


def test_accelerated_models_supported_and_other_layers_are_not():
    assert ct2.unsupported_reason(accelerate_for_inference(build_transformer(), "cpu")) is None
    plain = "layers must have full multi-head softmax attention and one plain feed-forward layer"
    assert ct2.unsupported_reason(build("transformer, score relative-key")) == plain
    model = build_transformer()
    model.decoder.output_head = model.decoder.output_head.projection
    assert ct2.unsupported_reason(model) == "the output head must be a softmax over the vocabulary"


def write_run(folder, alpha):
    heads = {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}
    part = {"type": "transformer", "hidden_size": 16, "num_layers": 1, "attention": heads}
    settings = {
        "tokenizers": {"type": "shared", "tokenizer": {"type": "character"}},
        "model": {"encoder": part, "decoder": part},
        "decoding": {"length_penalty": alpha, "max_length_ratio": 1, "max_length_offset": 3},
    }
    return write_random_run(folder, settings, TEXTS, TEXTS, seed=0)


@needs_ct2
@pytest.mark.parametrize("beam", ["1", "3"])
def test_translate_and_evaluate_print_the_same_with_each_backend(
    tmp_path, capsys, monkeypatch, beam
):
    run = write_run(tmp_path / "run", alpha=0)
    calls = []
    find_best = ct2.CTranslate2Search.find_best
    monkeypatch.setattr(
        ct2.CTranslate2Search, "find_best", lambda *args: calls.append(1) or find_best(*args)
    )
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    texts = tmp_path / "texts"
    commands = [("translate", run, texts), ("evaluate", run, "--source", texts, "--target", texts)]
    for command in commands:
        words = *command, "--beam", beam, "--device", "cpu", "--backend"
        own = heedful(capsys, monkeypatch, *words, "torch")
        assert own.code == 0
        assert not calls
        for backend in ("auto", "ct2"):
            assert heedful(capsys, monkeypatch, *words, backend).out == own.out
            assert calls
            calls.clear()


def test_missing_package_raises(monkeypatch):
    monkeypatch.setattr(ct2, "is_installed", lambda: False)
    with pytest.raises(ConfigError) as raised:
        TextBackend(build_transformer(), DecodingConfig(backend="ct2"), "cpu")
    assert str(raised.value) == (
        "--backend: CTranslate2 is not installed\n  pip install 'heedful[ct2]'"
    )
    assert not TextBackend(build_transformer(), DecodingConfig(), "cpu").is_available


@pytest.mark.parametrize(
    ("change", "device", "message"),
    [
        (None, "cuda", "CTranslate2 runs on the CPU here, but the device is 'cuda'"),
        ("bf16", "cpu", "CTranslate2 runs in fp32 or int8 here"),
        (
            "gru",
            "cpu",
            "CTranslate2 cannot run this model: encoder and decoder must be Transformers",
        ),
    ],
)
def test_models_that_ct2_cannot_run_reported(monkeypatch, change, device, message):
    monkeypatch.setattr(ct2, "is_installed", lambda: True)
    model = build("gru, attend-then-step").float() if change == "gru" else build_transformer()
    if change == "bf16":
        model = convert_model(model, "bf16")
    with pytest.raises(ConfigError) as raised:
        TextBackend(model, DecodingConfig(backend="ct2"), device)
    assert str(raised.value) == f"--backend: {message}\n  leave it out"
    assert not TextBackend(model, DecodingConfig(), device).is_available


def test_setting_that_ct2_does_not_have_raises(monkeypatch):
    monkeypatch.setattr(ct2, "is_installed", lambda: True)
    config = DecodingConfig(backend="ct2", repetition_penalty=1.5)
    backend = TextBackend(build_transformer(), config, "cpu")
    with pytest.raises(ConfigError, match=r"decoding\.repetition_penalty as we define it"):
        backend.find_best([], config)
