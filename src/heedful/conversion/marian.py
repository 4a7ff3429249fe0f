"""Marian folders of Hugging Face (OPUS-MT) as translation runs."""

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from heedful.attention.positional_encoding import SinusoidalEncoding, SinusoidLayout
from heedful.conversion.hf_folder import HFFolder
from heedful.conversion.hf_transformer import (
    Vocabularies,
    check_architecture,
    read_reexported,
    read_seq2seq,
    special_token_ids,
)
from heedful.conversion.interface import ImportedRun
from heedful.conversion.tensor_names import VocabularyOrder
from heedful.errors import DataError, check, format_count
from heedful.tokenization.imported import SentencePieceTokenizer, SentencePieceTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import Vocabulary

ARCHITECTURE = "MarianMTModel"
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
UNK_TOKEN = "<unk>"
TOKENIZER = SentencePieceTokenizerConfig(language_codes=True)
_AGAIN_HINT = "download the folder again"


def read_run(folder: HFFolder) -> ImportedRun:
    """Read a Marian model, its vocabularies and SentencePiece models."""
    check_architecture(folder, (ARCHITECTURE,))
    tensors = folder.read_tensors()
    if (exported := read_reexported(folder, tensors)) is not None:
        return exported
    layout = find_position_layout(folder, tensors)
    return read_seq2seq(
        folder,
        tensors,
        read_vocabularies(folder),
        encoder_and_decoder={"positional_encoding": {"type": "sinusoidal", "layout": layout}},
        summary="Marian model of Hugging Face",
    )


def find_position_layout(folder: HFFolder, tensors: Mapping[str, Tensor]) -> SinusoidLayout:
    """Return how sinusoids are laid out: "split", unless a stored table differs."""
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    stored = [_layouts_of(tensors[name].float()) for name in names if name in tensors]
    layouts = set.intersection(*stored) if stored else {"split"}
    message = "the position tables are neither all sines before all cosines nor interleaved"
    check(layouts, str(folder.path), message, "Marian models have sinusoids", DataError)
    return "split" if "split" in layouts else "interleaved"


def _layouts_of(table: Tensor) -> set[SinusoidLayout]:
    """Return the layouts in which a table holds sinusoids."""
    positions = torch.arange(len(table))
    return {
        layout
        for layout in get_args(SinusoidLayout)
        if torch.allclose(
            SinusoidalEncoding(table.size(1), layout=layout)(positions), table, atol=1e-5
        )
    }


def read_vocabularies(folder: HFFolder) -> Vocabularies:
    """Read the vocabularies, one or two, and the SentencePiece models of both sides."""
    size = folder.setting("vocab_size", int)
    target_size = folder.setting("decoder_vocab_size", int, size)
    is_shared = folder.setting("share_encoder_decoder_embeddings", bool, True)
    source = _read_tokenizer(folder, VOCABULARY, SOURCE_MODEL, size)
    has_two = folder.has(TARGET_VOCABULARY)
    name = TARGET_VOCABULARY if has_two else VOCABULARY
    target = _read_tokenizer(folder, name, TARGET_MODEL, size if is_shared else target_size)
    settings: dict[str, Any] = {"type": "separate"}
    settings |= {side: TOKENIZER.model_dump() for side in ("source", "target")}
    return Vocabularies(TokenizerPair(source[0], target[0]), settings, source[1], target[1])


def _read_tokenizer(
    folder: HFFolder, vocabulary_name: str, model_name: str, size: int
) -> tuple[SentencePieceTokenizer, VocabularyOrder]:
    ids = folder.read_json(vocabulary_name)
    location = str(folder.path / vocabulary_name)
    names = {index: token for token, index in ids.items()}
    message = f"has {format_count(len(ids), 'token')}, but the vocab_size of config.json is {size}"
    is_complete = len(ids) == size and set(names) == set(range(size))
    check(is_complete, location, message, _AGAIN_HINT, DataError)
    message = f"has no token {UNK_TOKEN}"
    check(UNK_TOKEN in ids, location, message, _AGAIN_HINT, DataError)
    order = VocabularyOrder.from_special_tokens(
        size, unk=ids[UNK_TOKEN], **special_token_ids(folder)
    )
    tokens = order.tokens([names[index] for index in range(size)])
    path = folder.path / model_name
    try:
        return TOKENIZER.build(Vocabulary(tokens), path.read_bytes()), order
    except (OSError, ValueError):
        message = "missing, or not a SentencePiece model"
        raise DataError(str(path), message, _AGAIN_HINT) from None
