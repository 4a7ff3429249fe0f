"""Registers the kernels of all ops. Importing this module is all that it takes to use them."""

from __future__ import annotations

from heedful.acceleration.attention_kernels import (
    append_rows,
    attend_in_chunks,
    can_look_up,
    chunked_additive_score,
    exceeds_query_chunk,
    exceeds_unchunked,
    has_single_cpu_query,
    is_eager_on_cpu,
    lookup_sinusoids,
    sdpa_context,
    single_query_context,
)
from heedful.acceleration.candidate_kernels import (
    can_rank_in_chunks,
    can_rank_with_numpy,
    find_candidates_in_chunks,
    find_candidates_with_numpy,
)
from heedful.acceleration.recurrent_kernels import (
    has_kernel_for_final_state,
    has_kernel_for_outputs,
    has_kernel_for_states,
    torch_final_state,
    torch_outputs,
    torch_states,
)
from heedful.attention.additive_scores import additive_score
from heedful.attention.attention import softmax_context
from heedful.attention.positional_encoding import sinusoids
from heedful.layers.rnn import unroll_outputs, unroll_states, unroll_with_final_state
from heedful.layers.self_attention import attend_at_positions, write_rows
from heedful.search.candidates import find_candidates

additive_score.register("chunked", chunked_additive_score, exceeds_unchunked)
softmax_context.register("single-query", single_query_context, has_single_cpu_query)
softmax_context.register("sdpa", sdpa_context, lambda *_: True)
sinusoids.register("table", lookup_sinusoids, can_look_up)
write_rows.register("append", append_rows, is_eager_on_cpu)
attend_at_positions.register("chunked", attend_in_chunks, exceeds_query_chunk)
unroll_outputs.register("torch", torch_outputs, has_kernel_for_outputs)
unroll_states.register("torch", torch_states, has_kernel_for_states)
unroll_with_final_state.register("torch", torch_final_state, has_kernel_for_final_state)
find_candidates.register("numpy", find_candidates_with_numpy, can_rank_with_numpy)
find_candidates.register("chunked", find_candidates_in_chunks, can_rank_in_chunks)
