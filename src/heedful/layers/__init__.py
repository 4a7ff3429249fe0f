"""Layers: the parts that encoders and decoders are built from.

Reading order: `embeddings`; recurrent: `rnn_cells`, `rnn_cell_config`, `rnn` (layers of cells) and
`self_attentive_cells`; Transformer: `self_attention`, `sublayers` (feed-forward; norm, dropout and
residual) and `transformer`; `convolution`;
`mixture_of_experts` with `expert_gates`; `pooling`, `crf` (tags) and `glimpses` (images);
`initialization`.
"""
