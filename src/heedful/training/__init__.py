"""Training: objectives, optimizers, the step, checkpoints, callbacks, multiple processes.

Reading order: `config`, `objectives` with `rollouts`, `reference_rewards` and `guided_alignment`,
`optim`, `trainer` (one step), `state` and `checkpoints`, `callbacks` with `progress` and
`trackers`; several processes: `distributed`, `data_parallel` and `process_group`; `prefetching`,
`step_capture` (CUDA graphs) and `rng`.
"""
