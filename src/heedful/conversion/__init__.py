"""Models of other libraries as runs, and runs as models of other libraries.

Reading order: `interface`, `registry` and `tensor_names`. Import: `importing`; from Hugging Face
`hf_folder`, `hf_tokenizers`, `hf_transformer` with `marian` and `bart`, `bert` and `gpt2`; from
other toolkits `checkpoint_files` and `checkpoint_rules` with `joeynmt`, `opennmt` and `eole`.
Export: `exporting`; to Hugging Face `hf_export`, `hf_language_models` and `hf_tokenizer_files`;
`ct2_export`, `argos_export` and `safetensors_export`; graphs by `graphs` and `graph_capture` with
`onnx_export`, `onnx_runner` and `torch_export`; pages by `page_models`, `page_tasks` and
`page_export`.
"""
