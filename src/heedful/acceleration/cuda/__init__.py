"""Training and decoding on a GPU.

Reading order: `graphs` (a function as a CUDA graph), `training` (which Triton kernel serves which
layer), `unrolled_rnn` (recurrent layers that a graph can contain), `static_cache` (a Transformer
decoder whose caches keep their size), `token_choice` (a search step on the device), `search_graphs`
(graphs of steps, by their sizes), `greedy_search` and `beam_search` on these graphs, and
`captured_models`, which use them all.
"""
