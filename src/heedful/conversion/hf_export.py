"""`--to hf`: Transformer runs as Marian or BART folders that transformers loads.

Language models that were imported from a folder go back to it (`hf_language_models`).
Sinusoidal positions make a Marian model, learned positions with a norm of the embeddings a BART
model. The folder also has the recipe and the tokenizers of the run. Invariant: importing it gives
the run again, bit for bit.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from heedful.attention.positional_encoding import LearnedEncodingConfig, SinusoidalEncodingConfig
from heedful.attention.positional_encoding import SinusoidalEncoding as Sinusoids
from heedful.conversion import hf_language_models as language_models
from heedful.conversion.exporting import check_equal_outputs, sample_targets
from heedful.conversion.hf_folder import write_hf_folder
from heedful.conversion.hf_tokenizer_files import describe_usage, write_tokenizer_files
from heedful.conversion.hf_transformer import (
    ACTIVATIONS,
    DECODER_TABLE,
    ENCODER_TABLE,
    HEAD,
    NORM_EPS,
    SHARED,
    tensor_table,
)
from heedful.conversion.importing import write_run_files
from heedful.conversion.interface import Exporter
from heedful.conversion.tensor_names import identity_order
from heedful.data.text.batching import collate_sources
from heedful.errors import DataError, check
from heedful.search import LengthPenalty
from heedful.storage.state_dict import unique_weights
from heedful.tasks.prediction import LoadedRun
from heedful.tokenization.vocabulary import BOS, EOS, PAD

_ACTIVATION_NAMES = {native: foreign for foreign, native in reversed(ACTIVATIONS.items())}
_MIN_POSITIONS = 1024  # of a table of sinusoids
_TOLERANCE = 1e-3  # of log-probabilities
_BEAM_SIZE = 4


class HFExporter(Exporter):
    """Writes folders of Marian and BART models."""

    name = "hf"
    description = "a Hugging Face folder"
    packages = ("transformers",)
    extra = "hf"

    @override
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        return None if language_models.original_folder(run) else unsupported_reason(run)

    @override
    def write(self, run: LoadedRun, folder: Path) -> None:
        if original := language_models.original_folder(run):
            language_models.write(run, original, folder)
            return
        write_hf_folder(folder, _model_config(run), _generation_config(run), _tensors(run))
        write_tokenizer_files(run.tokenizers, folder, run.config.tokenizers)
        write_run_files(run, folder)

    @override
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        from transformers import AutoModelForSeq2SeqLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        if original := language_models.original_folder(run):
            return language_models.compare(run, original, folder, sources)
        model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        _compare_log_probs(run, model, sources, str(folder))
        for beam_size in (1, _BEAM_SIZE):
            _compare_search(run, model, sources, beam_size=beam_size, location=str(folder))
        return f"greedy and beam outputs of {len(sources)} sample texts equal those of the run"

    @override
    def usage(self, run: LoadedRun) -> str:
        if original := language_models.original_folder(run):
            return language_models.describe_usage(original)
        return describe_usage(run.tokenizers, run.config.tokenizers)


EXPORTER = HFExporter()


# ----- what the format cannot hold


def unsupported_reason(run: LoadedRun) -> str | None:
    """Return the first setting that neither Marian nor BART has; None if they have all."""
    model = run.config.model
    if model.type != "encoder-decoder":
        others = "an encoder-decoder, nor a language model that was imported from such a folder"
        return f"the model is of type {model.type!r}, neither {others}"
    for side in ("encoder", "decoder"):
        config = getattr(model, side)
        if config.type != "transformer":
            return f"model.{side}.type is {config.type!r}, not 'transformer'"
        if reason := _first_reason(_layer_conditions(config)):
            return f"model.{side}.{reason}"
    return _first_reason(_model_conditions(run))


def _first_reason(conditions: Mapping[str, object]) -> str | None:
    return next((reason for reason, is_true in conditions.items() if not is_true), None)


def _layer_conditions(config: Any) -> dict[str, object]:
    """Return the conditions for one side, by the reason if one does not hold."""
    layer, encoding = config.feed_forward[0], config.positional_encoding
    conditions = _attention_conditions("attention", config.attention)
    if getattr(config, "cross_attention", None):
        conditions |= _attention_conditions("cross_attention", config.cross_attention)
    is_plain = layer.type == "plain" and not layer.gated and layer.bias
    norm = (config.norm, config.norm_order, config.norm_eps)
    return conditions | {
        "attention_types must be 'full'": all(e.type == "full" for e in config.attention_types),
        "feed_forward must be the same in all layers": len(set(config.feed_forward)) == 1,
        "feed_forward must be plain, with a bias and without a gate": is_plain,
        "norm must be 'layer', with norm_order 'post'": norm[:2] == ("layer", "post"),
        f"norm_eps must be {NORM_EPS}": norm[2] == NORM_EPS,
        "num_segments must be 0": not getattr(config, "num_segments", 0),
        "positional_encoding must be sinusoidal or learned": isinstance(
            encoding, SinusoidalEncodingConfig | LearnedEncodingConfig
        ),
    }


def _attention_conditions(name: str, attention: Any) -> dict[str, object]:
    heads, alignment = attention.multi_head, attention.alignment
    has_usual_sizes = heads and heads.head_dim is None
    return {
        f"{name}.score must be 'scaled-dot'": attention.score.type == "scaled-dot",
        f"{name}.alignment must be 'softmax' of temperature 1": alignment.type == "softmax"
        and getattr(alignment, "temperature", 1.0) == 1.0,
        f"{name}.readout must be 'weighted-sum'": attention.readout.type == "weighted-sum",
        f"{name}.multi_head must be set, without head_dim and num_kv_heads": has_usual_sizes
        and heads.num_kv_heads in (None, heads.num_heads),
    }


def _model_conditions(run: LoadedRun) -> dict[str, object]:
    """Return the conditions for both sides together, by the reason if one does not hold."""
    model = run.config.model
    encoder, decoder = model.encoder, model.decoder
    cross = decoder.cross_attention or decoder.attention
    is_learned = isinstance(encoder.positional_encoding, LearnedEncodingConfig)
    sizes = {len(run.tokenizers.source), len(run.tokenizers.target)}
    same = ("hidden_size", "scale_embeddings", "embedding_norm", "positional_encoding")
    return {
        "model.decoder.output_head must be 'softmax'": decoder.output_head.type == "softmax",
        "model.source_eos must be true": model.source_eos,
        "model.embeddings must not be 'shared-inputs'": model.embeddings != "shared-inputs",
        "model.decoder.cross_attention_to must be 'top-layer'": (
            decoder.cross_attention_to == "top-layer"
        ),
        "model.decoder.cross_attention must have as many heads as model.decoder.attention": (
            cross.multi_head.num_heads == decoder.attention.multi_head.num_heads
        ),
        **{
            f"{name} must be the same in encoder and decoder": getattr(encoder, name)
            == getattr(decoder, name)
            for name in same
        },
        "feed_forward.activation must be the same in encoder and decoder": (
            encoder.feed_forward[0].activation == decoder.feed_forward[0].activation
        ),
        "embedding_norm must be true with learned positions (BART), false with sinusoidal ones "
        "(Marian)": is_learned == encoder.embedding_norm,
        "with learned positions (BART) both vocabularies must have one size": not is_learned
        or len(sizes) == 1,
    }


# ----- settings


def _is_marian(run: LoadedRun) -> bool:
    return isinstance(run.config.model.encoder.positional_encoding, SinusoidalEncodingConfig)


def _num_positions(run: LoadedRun) -> int:
    encoding = run.config.model.encoder.positional_encoding
    if isinstance(encoding, LearnedEncodingConfig):
        return encoding.max_positions
    return max(_MIN_POSITIONS, run.config.decoding.max_source_length + 1)


def _model_config(run: LoadedRun) -> dict[str, Any]:
    model, is_marian = run.config.model, _is_marian(run)
    is_shared = model.embeddings == "shared"
    # BART ties all tables or none.
    is_tied = is_shared or (is_marian and model.embeddings == "tied")
    sizes = {
        f"{side}_{foreign}": value
        for side in ("encoder", "decoder")
        for foreign, value in _side_sizes(getattr(model, side)).items()
    }
    marian = {
        "decoder_vocab_size": len(run.tokenizers.target),
        "share_encoder_decoder_embeddings": is_shared,
    }
    encoder = model.encoder
    return {
        "architectures": ["MarianMTModel" if is_marian else "BartForConditionalGeneration"],
        "model_type": "marian" if is_marian else "bart",
        "is_encoder_decoder": True,
        "d_model": encoder.hidden_size,
        **sizes,
        "activation_function": _ACTIVATION_NAMES[encoder.feed_forward[0].activation],
        "scale_embedding": encoder.scale_embeddings,
        "dropout": encoder.dropout,
        "attention_dropout": encoder.attention.dropout,
        "activation_dropout": encoder.feed_forward[0].dropout,
        "max_position_embeddings": _num_positions(run),
        "vocab_size": len(run.tokenizers.source),
        **(marian if is_marian else {}),
        "tie_word_embeddings": is_tied,
        **_SPECIAL_TOKENS,
        "dtype": "float32",
    }


def _side_sizes(config: Any) -> dict[str, int]:
    return {
        "layers": config.num_layers,
        "attention_heads": config.attention.multi_head.num_heads,
        "ffn_dim": config.feed_forward[0].intermediate_size,
    }


_SPECIAL_TOKENS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": EOS,
}
_EARLY_STOPPING: dict[str, bool | str] = {
    "heuristic": False,
    "first-finished": True,
    "patience": True,
    "optimal": "never",
}


def _generation_config(run: LoadedRun) -> dict[str, Any]:
    """Return the settings of `generate` that are nearest to those of the run.

    Its length penalty is log P / length^alpha; a run with GNMT's gets none.
    """
    decoding = run.config.decoding
    penalty = decoding.length_penalty.build()
    settings = {
        **_SPECIAL_TOKENS,
        "num_beams": decoding.beam_size,
        "length_penalty": penalty.alpha if penalty.formula == "power" else 0.0,
        "early_stopping": _EARLY_STOPPING[decoding.stopping.type],
        "max_length": min((decoding.max_length or 510) + 2, _num_positions(run)),
        "min_length": decoding.min_length + 1 if decoding.min_length else 0,
        "no_repeat_ngram_size": decoding.no_repeat_ngram_size,
    }
    if decoding.suppressed_tokens:
        settings["suppress_tokens"] = list(decoding.suppressed_tokens)
    if decoding.forced_bos_token_id is not None:
        settings["forced_bos_token_id"] = decoding.forced_bos_token_id
    return settings


# ----- tensors


def _tensors(run: LoadedRun) -> dict[str, Tensor]:
    sizes = len(run.tokenizers.source), len(run.tokenizers.target)
    table = tensor_table(*map(identity_order, sizes))
    weights = unique_weights(run.model)
    tensors = table.export_tensors(weights)
    tensors |= _zero_biases(run, tensors)
    sharing, is_marian = run.config.model.embeddings, _is_marian(run)
    if sharing == "shared":
        tensors[SHARED] = tensors.pop(ENCODER_TABLE)
    elif not is_marian:
        tensors[SHARED] = tensors[ENCODER_TABLE].clone()
        tensors.setdefault(HEAD, tensors[DECODER_TABLE].clone())
    encoding = run.config.model.encoder.positional_encoding
    if is_marian and encoding.layout == "interleaved":
        positions = torch.arange(_num_positions(run))
        for side in ("encoder", "decoder"):
            name = f"model.{side}.embed_positions.weight"
            tensors[name] = Sinusoids(run.config.model.encoder.hidden_size)(positions)
    return tensors


def _zero_biases(run: LoadedRun, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return zeros for biases that their layers have and those of the run do not."""
    zeros = {"final_logits_bias": torch.zeros(1, len(run.tokenizers.target))}
    for name, value in tensors.items():
        if name.endswith("_proj.weight"):
            zeros[name.removesuffix("weight") + "bias"] = torch.zeros(len(value))
    return {name: value for name, value in zeros.items() if name not in tensors}


# ----- opened again


def _compare_log_probs(
    run: LoadedRun, model: Any, sources: Sequence[Sequence[int]], location: str
) -> None:
    batch = collate_sources(sources)
    targets = sample_targets(run, [(list(source) * 4)[:4] for source in sources])
    mask = (batch.tokens != PAD).long()
    with torch.no_grad():
        native = run.model.decoder(targets, run.model.encoder(*batch)).log_probs  # type: ignore[operator]
        logits = model(
            input_ids=batch.tokens, attention_mask=mask, decoder_input_ids=targets
        ).logits
    difference = float((native - logits.log_softmax(-1)).abs().max())
    message = f"log-probabilities differ by {difference:.2g}"
    hint = "please report this run: nothing was written"
    check(difference < _TOLERANCE, location, message, hint, DataError)


def _compare_search(
    run: LoadedRun, model: Any, sources: Sequence[Sequence[int]], *, beam_size: int, location: str
) -> None:
    """Compare searches without a length penalty; beams that reach the limit end differently."""
    batch = collate_sources(sources)
    positions = _num_positions(run)
    limit = min(2 * max(map(len, sources)) + 20, positions - 2)
    results = run.model.search(  # type: ignore[operator]
        batch,
        beam_size=beam_size,
        max_lengths=torch.full((len(sources),), limit),
        length_penalty=LengthPenalty(),
    )
    beam_options = {"length_penalty": 0.0, "early_stopping": False} if beam_size > 1 else {}
    outputs = model.generate(
        input_ids=batch.tokens,
        attention_mask=(batch.tokens != PAD).long(),
        num_beams=beam_size,
        **beam_options,
        max_length=limit + 2,
        min_length=0,
        no_repeat_ngram_size=0,
        suppress_tokens=None,
        forced_bos_token_id=None,
        do_sample=False,
    )
    native = [list(hypotheses[0].tokens) for hypotheses in results]
    # Without the first token, and without EOS and what follows it.
    foreign = [(tokens := ids[1:])[: [*tokens, EOS].index(EOS)] for ids in outputs.tolist()]
    ended = [index for index, ids in enumerate(native) if beam_size == 1 or len(ids) < limit]
    check_equal_outputs(
        [native[index] for index in ended], [foreign[index] for index in ended], location=location
    )
