"""Data: from files and built-in corpora to batches.

Reading order: `sources` (the interface of a source of examples), then the kind of data: `text`
(pairs and running text as token ids), `images` (captions and labels), `series` (windows of time
series). `synthetic` generates all three. `shuffling` orders an epoch, `text_files` reads lines.
"""
