"""Training: objectives, optimizers, the step, checkpoints, callbacks, several processes."""
