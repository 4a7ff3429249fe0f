"""Models of other libraries as runs, and runs as models of other libraries.

Reading order: `interface`, `registry`, `tensor_names` and `special_tokens`. Import: `importing`;
from Hugging Face `hf_folder`, `hf_tokenizers`, `hf_transformer` with `marian` and `bart`, `bert`
and `gpt2`; from other toolkits `nmt_checkpoints`, `checkpoint_files` and `checkpoint_rules` with
`joeynmt`, `opennmt` and `eole`. Export: `exporting` and `model_card`; to Hugging Face `hf_export`,
`hf_language_models` and `hf_tokenizer_files`; `ct2_export` and `safetensors_export`; graphs by
`graphs` and `graph_capture` with `onnx_export`, `onnx_runner` and `torch_export`; and `programs`,
which use an exported folder.
"""
