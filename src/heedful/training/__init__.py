"""Training: objectives, optimizers, the step, checkpoints, callbacks, multiple processes."""
