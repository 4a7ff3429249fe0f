"""Text: from characters to tokens and back.

Reading order: `vocabulary`, `tokenizer` (the interface; words and characters), `tokenizer_pair`
(source and target); subwords: `subword`, `subword_regularization`; of pretrained models:
`pretrained`, `wordpiece`, `byte_level_bpe`, `bart` and `imported`; special texts: `whitespace`,
`sentences`, `position` and `smiles`; `standalone` (without heedful) and `ragged_array`.
"""
