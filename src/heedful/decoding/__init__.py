"""Decoding: requests as token ids, decoding strategies, and translations with their attention.

Reading order: `config` (settings), `requests` (a text with its constraints), `forbidden_text`,
`strategies` (search, sampling, MBR), `translation` (the result), `word_alignment` and
`search_tree`.
"""
