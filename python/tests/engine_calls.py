"""The calls of engines, with arrays of numpy that have the shapes, dtypes and strides of theirs.

Each function makes all calls of one engine to the functions of its adapter, for a model with the
sizes that it is given; f16 is the model's dtype, which numpy has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cubinery.compat import (
    fla, flashinfer, sglang, tensorrt_llm, tokenspeed, transformers, vllm,
)  # fmt: skip

N, T, TOTAL, SLOTS, W = 2, 4, 70, 5, 4  # requests, tokens of each with its drafts, of a prompt


class Sizes(NamedTuple):
    """Of one GPU, and the dtype that the engine keeps states in."""

    heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    state: str

    @property
    def channels(self) -> int:
        return 2 * self.heads * self.key_dim + self.value_heads * self.value_dim


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


def single(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def ints(*values: int, dtype: Any = np.int32) -> Any:
    return np.array(values, dtype)


BOUNDS, SPANS = ints(0, 64, TOTAL), ints(*range(0, N * T + 1, T))
STEPS, READ, FLAGS = ints(*range(N + 1)), ints(*range(1, N + 1)), np.zeros(N, bool)
TABLE = np.zeros((N + 1, T + 2), np.int32)[:, :T]  # columns of a wider table
COUNTS = ints(*[1] * N)


def qkv(size: Sizes, *lead: int, repeated: bool = False) -> dict[str, Any]:
    heads = size.value_heads if repeated else size.heads
    return {
        "q": half(*lead, heads, size.key_dim),
        "k": half(*lead, heads, size.key_dim),
        "v": half(*lead, size.value_heads, size.value_dim),
    }


def logits(size: Sizes, *lead: int) -> dict[str, Any]:
    return {
        **{"a": half(*lead, size.value_heads), "b": half(*lead, size.value_heads)},
        **{"A_log": single(size.value_heads), "dt_bias": half(size.value_heads)},
    }


def gates(size: Sizes, *lead: int, beta: Any = np.float32) -> dict[str, Any]:
    return {
        "g": single(*lead, size.value_heads),
        "beta": np.zeros((*lead, size.value_heads), beta),
    }


def states(size: Sizes, *lead: int, dtype: str | None = None) -> Any:
    made = {"f32": single, "f16": half}[dtype or size.state]
    return made(*lead, size.value_heads, size.value_dim, size.key_dim)


def windows(size: Sizes, columns: int, turned: bool) -> Any:
    """A pool of the convolution's states; turned: channels are neighbours."""
    if turned:
        return half(SLOTS, columns, size.channels).swapaxes(1, 2)
    return half(SLOTS, size.channels, columns)


def vllm_functions(size: Sizes) -> None:
    pool, weight, drafts = states(size, SLOTS), half(size.channels, W), windows(size, W + 2, True)
    vllm.causal_conv1d_fn(
        half(TOTAL, size.channels).T, weight, None, windows(size, W + 2, True), BOUNDS,
        cache_indices=READ, has_initial_state=FLAGS, metadata=object(),
    )  # fmt: skip
    prompt = {**qkv(size, 1, TOTAL), **gates(size, 1, TOTAL), "cu_seqlens": BOUNDS}
    own = {"initial_state": states(size, N), "output_final_state": True}
    vllm.chunk_gated_delta_rule(**prompt, **own)
    fused = {**prompt, **own, "use_qk_l2norm_in_kernel": False}
    vllm.fi_chunk_gated_delta_rule(**fused)
    vllm.fi_chunk_gated_delta_rule(
        **fused, state_checkpoints=states(size, 2, dtype="f32"), checkpoint_every_n_tokens=64,
        checkpoint_cu_starts=ints(0, 1, 1, dtype=np.int64),
    )  # fmt: skip
    vllm.causal_conv1d_update(
        half(N, size.channels), windows(size, W - 1, True), weight, None, "silu",
        conv_state_indices=READ,
    )  # fmt: skip
    vllm.fused_recurrent_gated_delta_rule_packed_decode(
        half(N, size.channels), scale=None, initial_state=pool, ssm_state_indices=READ,
        out=half(N, 1, size.value_heads, size.value_dim), use_qk_l2norm_in_kernel=True,
        **logits(size, N),
    )  # fmt: skip
    vllm.fused_sigmoid_gating_delta_rule_update(
        **qkv(size, 1, N), **logits(size, N), initial_state=pool, cu_seqlens=STEPS,
        ssm_state_indices=READ, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    vllm.causal_conv1d_update(
        half(N * T, size.channels), drafts, weight, None, "silu", conv_state_indices=TABLE[:N, 0],
        num_accepted_tokens=COUNTS, query_start_loc=SPANS, max_query_len=T,
    )  # fmt: skip
    vllm.fused_sigmoid_gating_delta_rule_update(
        **qkv(size, 1, N * T), **logits(size, N * T), initial_state=pool, cu_seqlens=SPANS,
        ssm_state_indices=TABLE, num_accepted_tokens=COUNTS, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip


def sglang_convolutions(size: Sizes, weight: Any, kept: Any) -> None:
    """Of a prompt, and of a decoding step, on the same windows."""
    sglang.causal_conv1d_fn(
        half(TOTAL, size.channels).T, weight, None, conv_states=kept, query_start_loc=BOUNDS,
        cache_indices=READ, has_initial_state=FLAGS, seq_lens_cpu=[64, TOTAL - 64],
    )  # fmt: skip
    sglang.causal_conv1d_update(
        half(N, size.channels), kept, weight, None, "silu", conv_state_indices=READ
    )


def sglang_functions(size: Sizes) -> None:
    pool, weight, kept = states(size, SLOTS), half(size.channels, W), windows(size, W - 1, False)
    sglang_convolutions(size, weight, kept)
    prompt = {**qkv(size, 1, TOTAL), **gates(size, 1, TOTAL), "cu_seqlens": BOUNDS}
    for output_h in (False, True):
        sglang.chunk_gated_delta_rule(
            **prompt, initial_state=pool, initial_state_indices=READ, output_h=output_h,
            use_qk_l2norm_in_kernel=True, inplace_update=True,
        )  # fmt: skip
    sglang.fused_recurrent_gated_delta_rule_packed_decode(
        half(N, size.channels), scale=None, initial_state=pool, ssm_state_indices=READ,
        out=half(N, 1, size.value_heads, size.value_dim), use_qk_l2norm_in_kernel=True,
        **logits(size, N),
    )  # fmt: skip
    step = {
        **{"initial_state_source": pool, "initial_state_indices": READ},
        **{"softplus_beta": 1.0, "softplus_threshold": 20.0, "use_qk_l2norm_in_kernel": True},
    }
    sglang.fused_sigmoid_gating_delta_rule_update(
        **qkv(size, 1, N), **logits(size, N), cu_seqlens=STEPS, **step
    )
    sglang.causal_conv1d_update(
        half(N, T, size.channels).swapaxes(1, 2), kept, weight, None, "silu",
        conv_state_indices=READ, intermediate_conv_window=half(SLOTS, T, size.channels, W - 1),
        intermediate_state_indices=READ,
    )  # fmt: skip
    parents = np.zeros((N, T), np.int64)
    for tree in ({}, {"retrieve_parent_token": parents}):
        sglang.fused_sigmoid_gating_delta_rule_update(
            **qkv(size, 1, N * T), **logits(size, N * T), cu_seqlens=SPANS, **step,
            disable_state_update=True, cache_steps=T, intermediate_state_indices=READ,
            intermediate_states_buffer=states(size, SLOTS, T), **tree,
        )  # fmt: skip


def sglang_kda_functions(size: Sizes) -> None:
    """Of layers of Kimi Delta Attention: weights and biases are in f32."""
    pool, weight, kept = states(size, SLOTS), single(size.channels, W), windows(size, W - 1, True)
    sglang_convolutions(size, weight, kept)
    own = {
        "A_log": single(1, 1, size.value_heads, 1),
        "dt_bias": single(size.value_heads * size.key_dim),
        "lower_bound": -5.0,
    }
    for keeps in (False, True):
        sglang.chunk_kda(
            **qkv(size, 1, TOTAL), g=half(1, TOTAL, size.value_heads, size.key_dim),
            beta=half(1, TOTAL, size.value_heads), **own, initial_state=pool,
            initial_state_indices=READ, use_qk_l2norm_in_kernel=True, cu_seqlens=BOUNDS,
            beta_is_raw=True, output_intermediate_states=keeps,
        )  # fmt: skip
    sglang.fused_recurrent_kda_packed_decode(
        half(N, size.channels), half(N, size.value_heads * size.key_dim),
        half(N, size.value_heads), scale=None, initial_state=pool, ssm_state_indices=READ,
        out=half(N, 1, size.value_heads, size.value_dim), use_qk_l2norm_in_kernel=True, **own,
    )  # fmt: skip
    sglang.causal_conv1d_update(
        half(N, T, size.channels).swapaxes(1, 2), kept, weight, None, "silu",
        conv_state_indices=READ, intermediate_state_indices=READ,
        intermediate_conv_window=half(SLOTS, T, W - 1, size.channels).swapaxes(2, 3),
    )  # fmt: skip
    step = {
        **{"initial_state_source": pool, "initial_state_indices": READ, "is_kda": True},
        **{"softplus_beta": 1.0, "softplus_threshold": 20.0, "use_qk_l2norm_in_kernel": True},
    }
    for tree in ({}, {"retrieve_parent_token": np.zeros((N, T), np.int64)}):
        sglang.fused_sigmoid_gating_delta_rule_update(
            **qkv(size, 1, N * T), a=half(N * T, size.value_heads * size.key_dim),
            b=half(1, N * T, size.value_heads), **own, **step, cu_seqlens=SPANS,
            disable_state_update=True, cache_steps=T, intermediate_state_indices=READ,
            intermediate_states_buffer=states(size, SLOTS, T), **tree,
        )  # fmt: skip


def transformers_functions(size: Sizes) -> None:
    """Of its modules; a prompt behind another one has both states."""
    weight, cache = half(size.channels, W), half(N, size.channels, W)
    prompt = half(N, TOTAL, size.channels).swapaxes(1, 2)
    transformers._prepare_convolution(prompt, weight, None, "silu")()
    transformers._prepare_update(prompt, cache, weight, None, "silu")()
    transformers._prepare_update(half(N, size.channels, 1), cache, weight, None, "silu")()
    past = single(N, size.value_heads, size.key_dim, size.value_dim)
    for tokens, state, prepare in (
        (TOTAL, None, transformers._prepare_chunk),
        (TOTAL, past, transformers._prepare_chunk),
        (1, past, transformers._prepare_recurrent),
    ):
        x = qkv(size, N, tokens, repeated=True)
        prepare(
            x["q"], x["k"], x["v"], **gates(size, N, tokens, beta=np.float16),
            initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True,
        )()  # fmt: skip


def fla_functions(size: Sizes) -> None:
    weight, cache = half(size.channels, W), half(N, size.channels, W)
    past = single(N, size.value_heads, size.key_dim, size.value_dim)
    bounds = BOUNDS.astype(np.int64)
    for lead, packed in (((N, TOTAL), {}), ((1, TOTAL), {"cu_seqlens": bounds})):
        fla.causal_conv1d(
            half(*lead, size.channels), weight, activation="silu", output_final_state=True,
            **packed,
        )  # fmt: skip
        for state in (None, past):
            fla.chunk_gated_delta_rule(
                **qkv(size, *lead), **gates(size, *lead, beta=np.float16), initial_state=state,
                output_final_state=True, use_qk_l2norm_in_kernel=True, **packed,
            )  # fmt: skip
    fla.causal_conv1d_update(half(N, 1, size.channels), cache, weight=weight, activation="silu")
    fla.fused_recurrent_gated_delta_rule(
        **qkv(size, N, 1), **gates(size, N, 1, beta=np.float16), initial_state=past,
        output_final_state=True, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip


def flashinfer_functions(size: Sizes) -> None:
    flashinfer.chunk_gated_delta_rule(
        **qkv(size, TOTAL), **gates(size, TOTAL), initial_state=states(size, N, dtype="f32"),
        output_final_state=True, cu_seqlens=BOUNDS.astype(np.int64),
    )  # fmt: skip
    step = {**qkv(size, N, 1), **logits(size, N, 1)}
    pool = {"initial_state": states(size, SLOTS), "initial_state_indices": READ}
    flashinfer.gated_delta_rule_decode_pretranspose(**step, state=None, **pool)
    flashinfer.gated_delta_rule_decode_pretranspose(**step, state=states(size, N))
    flashinfer.gated_delta_rule_mtp(
        **qkv(size, N, T), **logits(size, N, T), **pool, disable_state_update=True,
        intermediate_states_buffer=states(size, N, T),
    )  # fmt: skip


def tensorrt_llm_functions(size: Sizes) -> None:
    pool, weight, kept = states(size, SLOTS), half(size.channels, W), windows(size, W - 1, False)
    x = half(TOTAL, size.channels).T
    tensorrt_llm.causal_conv1d_fn(
        x, weight, None, activation="silu", conv_states=kept, has_initial_state=FLAGS,
        cache_indices=READ, query_start_loc=BOUNDS,
    )  # fmt: skip
    prompt = {**qkv(size, 1, TOTAL), "cu_seqlens": BOUNDS.astype(np.int64), "head_first": False}
    tensorrt_llm.chunk_gated_delta_rule(
        **prompt, **gates(size, 1, TOTAL), initial_state=pool, initial_state_indices=READ,
        inplace_indexed_state_update=True, output_final_state=False,
        use_qk_l2norm_in_kernel=False, output=half(1, TOTAL, size.value_heads, size.value_dim),
    )  # fmt: skip
    tensorrt_llm.chunk_gated_delta_rule(
        **prompt, **gates(size, 1, TOTAL, beta=np.float16), initial_state=states(size, N),
        output_final_state=True, use_qk_l2norm_in_kernel=False,
    )  # fmt: skip
    tensorrt_llm.causal_conv1d_update(
        half(N, size.channels), kept, weight, None, "silu", conv_state_indices=READ
    )
    parts = {"A_log": single(size.value_heads), "dt_bias": single(size.value_heads)}
    tensorrt_llm.fused_sigmoid_gating_delta_rule_update(
        **qkv(size, 1, N), a=half(N, size.value_heads), b=half(N, size.value_heads), **parts,
        initial_state_source=pool, initial_state_indices=READ, softplus_beta=1.0,
        softplus_threshold=20.0, cu_seqlens=STEPS.astype(np.int64), use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    tensorrt_llm.causal_conv1d_update(
        half(N, T, size.channels).swapaxes(1, 2), kept, weight, None, "silu",
        conv_state_indices=READ, intermediate_conv_window=half(SLOTS, T, size.channels, W - 1),
        intermediate_state_indices=READ,
    )  # fmt: skip
    tensorrt_llm.fused_recurrent_gated_delta_rule_update(
        **qkv(size, N, T), **gates(size, N, T, beta=np.float16),
        initial_state_source=states(size, N), initial_state_indices=ints(*range(N)),
        use_qk_l2norm_in_kernel=True, disable_state_update=True, cache_steps=T,
        intermediate_states_buffer=states(size, SLOTS, T),
    )  # fmt: skip


def tokenspeed_functions(size: Sizes) -> None:
    pool, weight, kept = states(size, SLOTS), half(size.channels, W), windows(size, W - 1, False)
    tokenspeed.causal_conv1d_fn(
        half(TOTAL, size.channels).T, weight, None, activation="silu", conv_states=kept,
        has_initial_state=FLAGS, cache_indices=READ, query_start_loc=BOUNDS,
        prefill_metadata=object(),
    )  # fmt: skip
    tokenspeed.gdn_chunk_prefill(
        **qkv(size, 1, TOTAL), **gates(size, 1, TOTAL, beta=np.float16), scale=0.1,
        initial_state=states(size, N), cu_seqlens=BOUNDS, qk_l2norm=True,
    )  # fmt: skip
    tokenspeed.causal_conv1d_update(
        half(N, size.channels), kept, weight, None, "silu", conv_state_indices=READ,
        output_state_indices=READ[:, None], parent_indices=None,
    )  # fmt: skip
    parts = {"A_log": single(size.value_heads), "dt_bias": single(size.value_heads)}
    step = {"a": half(N, 1, size.value_heads), "b": half(N, 1, size.value_heads), **parts}
    tokenspeed.gdn_decode_step(
        **qkv(size, N, 1), **step, initial_state=pool, initial_state_indices=READ,
        output_state_indices=READ,
    )  # fmt: skip
    tokenspeed.causal_conv1d_update(
        half(N, T, size.channels).swapaxes(1, 2), kept, weight, None, "silu",
        conv_state_indices=READ, output_state_indices=TABLE[:N], parent_indices=None,
    )  # fmt: skip
    step = {"a": half(N, T, size.value_heads), "b": half(N, T, size.value_heads), **parts}
    tokenspeed.gdn_decode_mtp(
        **qkv(size, N, T), **step, initial_state=pool, initial_state_indices=READ,
        output_state_indices=TABLE[:N], disable_state_update=False, parent_indices=None,
    )  # fmt: skip
