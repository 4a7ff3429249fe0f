"""Ensembles and shallow fusion: models that decode together.

Members of an ensemble have equal source and target vocabularies, entry by entry; the language
model of shallow fusion has the target vocabulary. Errors name the run and the first difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from heedful.acceleration.registry import accelerate_for_inference
from heedful.decoding.token_texts import vocabulary_texts
from heedful.errors import ConfigError, RunError
from heedful.models.base import DecodableModel, Seq2SeqModel
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.models.language_model import LanguageModel
from heedful.tasks.task import LoadedRun
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair

_LANGUAGE_MODEL = "decoding.shallow_fusion.run"


def build_ensemble(
    members: Sequence[LoadedRun],
    load_run: Callable[[Path | str], LoadedRun],
    device: torch.device,
) -> DecodableModel:
    """Join the models of runs with the language model that the first of them names."""
    first, decoding = members[0], members[0].config.decoding
    models: list[DecodableModel] = []
    for member in members:
        if not isinstance(member.model, Seq2SeqModel):
            raise RunError(
                str(member.folder),
                f"this run is a {member.config.model.type}; only translation models form an "
                "ensemble",
                "leave it out",
            )
        check_same_vocabularies(first.tokenizers, member.tokenizers, run_dir=member.folder)
        models.append(accelerate_for_inference(member.model, device))
    joined = Ensemble(models, decoding.ensemble_averaging) if len(models) > 1 else models[0]
    if decoding.shallow_fusion is None:
        return joined
    lm_run = load_run(decoding.shallow_fusion.run)
    if not isinstance(lm_run.model, LanguageModel):
        raise ConfigError(
            _LANGUAGE_MODEL,
            f"the run {lm_run.folder} is a {lm_run.config.model.type}, not a language model",
            "name a run whose model has `type: language-model`",
        )
    check_same_target_vocabulary(
        first.tokenizers.target, lm_run.tokenizers.target, run_dir=lm_run.folder
    )
    return ShallowFusion(
        joined,
        accelerate_for_inference(lm_run.model, device),
        weight=decoding.shallow_fusion.weight,
        context_length=lm_run.config.data.lm_batching.context_length,
    )


def check_same_vocabularies(
    expected: TokenizerPair, other: TokenizerPair, *, run_dir: Path | str
) -> None:
    """Raise RunError if a run has other vocabularies."""
    for side in ("source", "target"):
        if difference := _first_difference(getattr(expected, side), getattr(other, side)):
            raise RunError(
                str(run_dir),
                f"its {side} vocabulary differs: {difference}",
                "use runs that were trained with the same tokenizers",
            )


def check_same_target_vocabulary(
    expected: Tokenizer, other: Tokenizer, *, run_dir: Path | str
) -> None:
    """Raise ConfigError if a language model has another vocabulary than the target texts."""
    if difference := _first_difference(expected, other):
        raise ConfigError(
            _LANGUAGE_MODEL,
            f"the vocabulary of {run_dir} differs from that of the target texts: {difference}",
            "train it on target texts with their tokenizer",
        )


def _first_difference(expected: Tokenizer, other: Tokenizer) -> str | None:
    if type(expected) is not type(other):
        return f"the tokenizer is {type(other).__name__}, not {type(expected).__name__}"
    expected_tokens, other_tokens = vocabulary_texts(expected), vocabulary_texts(other)
    for index, (token, found) in enumerate(zip(expected_tokens, other_tokens, strict=False)):
        if token != found:
            return f"token {index} is {found!r}, not {token!r}"
    if len(expected_tokens) != len(other_tokens):
        return f"it has {len(other_tokens)} tokens, not {len(expected_tokens)}"
    return None
