"""Text: from characters to tokens and back.

Reading order: `vocabulary`, `tokenizer` (the interface; words and characters), `tokenizer_pair`
(source and target); subwords: `subword`, `subword_regularization`; of pretrained models:
`pretrained`, `wordpiece`, `byte_level_bpe` and `imported`; `special_texts` (tagged words,
sentences, molecules, positions); `standalone` (without heedful), `page_tokenizers`
(in JavaScript) and `ragged_array`.
"""
