"""Encoders, decoders and whole models.

Reading order: `base` (interfaces), `recurrent` (Bahdanau et al. and others), `encoder_decoder` (the
whole model) and `output_heads`. Other encoders and decoders: `transformer`, `convolutional`,
`bytenet`, `text_encoders`, `pretrained`; for images `image_encoders` and `efficientnet` with
`captioning` and `feature_extraction`. Other models: `pooled_text`, `language_model`,
`masked_language_model`, `prefix_lm` and `ensembles`. `copying` has the output heads that copy,
`scheduled_sampling` the choice of decoder inputs.
"""
