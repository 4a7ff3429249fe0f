"""Training: objectives, optimizers, the step, checkpoints, callbacks, multiple processes.

Reading order: `config`, `objectives` with `rollouts` and `guided_alignment`,
`optim`, `trainer` (one step), `state` and `checkpoints`, `callbacks` with `progress` and
`trackers`; several processes: `distributed`, `shared_memory` and `data_parallel`; `prefetching`
and `step_capture` (CUDA graphs).
"""
