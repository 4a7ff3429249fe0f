"""Encoders, decoders and whole models.

Reading order: `base` (interfaces), `recurrent` (Bahdanau et al. and others), `encoder_decoder` (the
whole model) and `output_heads`. Other encoders and decoders: `transformer`, `convolutional`,
`bytenet`, `hierarchical`, `bag_of_words`, `pretrained`; for images `image_encoders`,
`image_transformers` and `efficientnet_encoder` with `captioning` and `feature_extraction`. Other
models: `language_model`, `masked_language_model`, `prefix_lm` and `ensembles`. `copying` has the
output heads that copy, `scheduled_sampling` the choice of decoder inputs.
"""
