"""What other toolkits call our settings, and which settings have an option of their own.

The names are those of torch, Hugging Face, Lightning, fairseq, JoeyNMT and OpenNMT-py.
"""

from collections.abc import Mapping

_NAMES = {
    "learning_rate": "lr base_lr max_lr peak_lr lrate",
    "max_tokens": "batch_size train_batch_size per_device_train_batch_size batch_tokens batch",
    "max_epochs": "epochs epoch num_epochs n_epochs num_train_epochs",
    "max_steps": "steps num_steps n_steps train_steps updates max_updates max_update iterations",
    "max_minutes": "minutes max_time time_limit",
    "patience": "early_stopping early_stopping_patience",
    "validate_every": "eval_steps valid_steps validation_freq validate_interval eval_every",
    "save_every": "save_steps save_interval save_checkpoint_steps checkpoint_every",
    "gradient_accumulation_steps": "accum_count accumulate_grad_batches batch_multiplier "
    "update_freq gradient_accumulation grad_accum",
    "max_grad_norm": "clip clip_norm grad_clip clip_grad_norm gradient_clip_val gradient_clip",
    "weight_decay": "wd l2 decay",
    "optimizer": "optim",
    "lr_scheduler": "scheduler scheduling lr_schedule lr_scheduler_type",
    "warmup_steps": "warmup num_warmup_steps warmup_updates",
    "beta1": "betas adam_betas adam_beta1",
    "label_smoothing": "smoothing label_smoothing_factor",
    "precision": "fp16 bf16 amp mixed_precision dtype",
    "seed": "random_seed manual_seed rng_seed",
    "metric_for_best_model": "metric best_metric early_stopping_metric",
    "dropout": "dropout_rate dropout_prob p_dropout hidden_dropout_prob dropout_p",
    "hidden_size": "hidden hidden_dim rnn_size d_model dim model_dim n_embd hid_dim",
    "embedding_size": "embedding_dim embed_dim emb_dim emb_size word_vec_size embed_size",
    "num_layers": "layers n_layers n_layer num_hidden_layers enc_layers dec_layers depth",
    "num_heads": "heads n_heads n_head nhead num_attention_heads",
    "max_vocab_size": "vocab_size vocab voc_limit src_vocab_size tgt_vocab_size",
    "beam_size": "beam num_beams beam_width",
    "n_best": "nbest num_return_sequences",
}
ALIASES = {alias: name for name, aliases in _NAMES.items() for alias in aliases.split()}
OTHER_UNITS = {"max_tokens": "N", "precision": "bf16", "beta1": "0.9", "patience": "N"}
"""What to write for a setting whose aliases have values of another kind, such as sentences."""
SHORTCUTS: Mapping[str, str] = {
    "minutes": "training.max_minutes",
    "steps": "training.max_steps",
    "seed": "training.seed",
    "batch_tokens": "training.batching.max_tokens",
    "lr": "training.optimizer.learning_rate",
    "metric": "training.metric_for_best_model",
}
"""Settings by the name of the option of `heedful train` that is short for them."""


def option_of(setting: str) -> str:
    """Return the option that is short for a setting, or ""."""
    return next(
        (f"--{name.replace('_', '-')}" for name in SHORTCUTS if SHORTCUTS[name] == setting), ""
    )
