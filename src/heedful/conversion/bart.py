"""BART folders of Hugging Face as translation runs: any task of one text in, another out."""

from heedful.conversion.hf_folder import CONFIG, HFFolder
from heedful.conversion.hf_tokenizers import read_hf_tokenizer
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
from heedful.tokenization.byte_level_bpe import (
    BartTokenizer,
    BartTokenizerConfig,
    ByteLevelBPETokenizerConfig,
)
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import Vocabulary

ARCHITECTURES = ("BartForConditionalGeneration", "BartModel")
_UNK_TOKEN = "<unk>"


def read_run(folder: HFFolder) -> ImportedRun:
    """Read a BART model and its tokenizer."""
    check_architecture(folder, ARCHITECTURES)
    tensors = folder.read_tensors()
    if (exported := read_reexported(folder, tensors)) is not None:
        return exported
    positions = folder.setting("max_position_embeddings", int)
    return read_seq2seq(
        folder,
        tensors,
        read_vocabularies(folder),
        encoder_and_decoder={
            "positional_encoding": {"type": "learned", "max_positions": positions},
            "embedding_norm": True,
        },
        summary="BART model of Hugging Face",
    )


def read_vocabularies(folder: HFFolder) -> Vocabularies:
    """Read the tokenizer, which source and target share."""
    tokenizer = read_hf_tokenizer(folder, vocab_size=folder.setting("vocab_size", int))
    message = "the tokenizer is not byte-level BPE"
    is_known = isinstance(tokenizer.config, ByteLevelBPETokenizerConfig)
    hint = "BART models have byte-level BPE"
    check(is_known, str(folder.path), message, hint, DataError)
    names = list(tokenizer.tokens)
    bos = folder.setting("bos_token_id", int)
    message = f"bos_token_id is {bos}, but the vocabulary has {format_count(len(names), 'token')}"
    hint = "download the folder again"
    check(0 <= bos < len(names), str(folder.path / CONFIG), message, hint, DataError)
    special = special_token_ids(folder)
    unk = names.index(_UNK_TOKEN) if _UNK_TOKEN in names else None
    order = VocabularyOrder.from_special_tokens(len(names), unk=unk, text_token=bos, **special)
    tokens = order.tokens(names)
    others = (names[index] for index in sorted(set(tokenizer.special_ids.values()) - {bos}))
    config = BartTokenizerConfig(
        add_prefix_space=tokenizer.config.add_prefix_space,  # type: ignore[attr-defined]
        prefix_token=names[bos],
        special_tokens=tuple(name for name in others if name in tokens),
    )
    shared = BartTokenizer(Vocabulary(tokens), tokenizer.merges, config)
    settings = {"type": "shared", "tokenizer": config.model_dump(mode="json")}
    return Vocabularies(TokenizerPair(shared, shared), settings, order, order)
