"""What the adapters of Kimi Delta Attention hand on is what the operators take, with the shapes,
dtypes and strides of the engines' layers, on a GPU that is not there.  f16 is a model's dtype.
"""

from __future__ import annotations

import numpy as np
import pytest
from cubinery import Decode, Verify
from cubinery.compat import _vllm_kda, fla, flash_kda, sglang, vllm
from test_compat_launch import note_launches, on_gpu, prefilled

__all__ = ["prefilled"]  # a fixture

N, T, H, D, W = 3, 4, 4, 128, 4
SLOTS, CHANNELS = 8, 3 * 4 * 128


@pytest.fixture
def launched(gpu, context, monkeypatch):
    """The problem and the arrays of each launch."""
    found = note_launches(gpu, context, monkeypatch, "gdn_decode", Decode)
    others = note_launches(gpu, context, monkeypatch, "gdn_verify", Verify)
    return lambda: [*found, *others]


def half(*shape):
    return np.zeros(shape, np.float16)


def single(*shape):
    return np.zeros(shape, np.float32)


def ints(*values):
    return np.array(values, np.int32)


def qkv(tokens):
    """Views of a projection's rows: q, k and v [1, tokens, H, D]."""
    wide = half(tokens, CHANNELS + H * D)
    parts = (wide[:, i * H * D : (i + 1) * H * D].reshape(1, tokens, H, D) for i in range(3))
    return dict(zip(("q", "k", "v"), parts))


def pool(dtype=np.float32):
    return np.zeros((SLOTS, H, D, D), dtype)


READ, STEPS = ints(1, 2, 3), ints(0, 1, 2, 3)
SPANS, TABLE = ints(*range(0, N * T + 1, T)), np.zeros((N + 1, T + 2), np.int32)[:, :T]
BASE = {
    "q_heads": H, "k_heads": H, "v_heads": H, "key_dim": D, "value_dim": D, "dtype": "f16",
    "decay": "channel", "use_qk_l2norm": True,
}  # fmt: skip
BOUND = {"gate_mode": "lower_bound", "beta_mode": "logit", "gate_dtype": "f16", "beta_dtype": "f16"}
SOFTPLUS = {**BOUND, "gate_mode": "computed"}
GIVEN = {"gate_mode": "log", "beta_mode": "given", "gate_dtype": "f32", "beta_dtype": "f32"}
POOL = {"state_location": "pool", "state_layout": "vk", "store_state": True}
EVERY = {"stored_states": "every", "from_accepted": True, "varlen": True, "draft_tokens": T}


def check(launch, kind, padding, **fields):
    problem, named = launch
    fields = {**BASE, **fields}
    assert type(problem).__name__ == kind
    assert {name: getattr(problem, name) for name in fields} == fields
    assert (named["pad_slot_id"], named["zero_padding"]) == (padding, padding is not None)


@pytest.mark.parametrize("lower_bound, gates", [(-5.0, BOUND), (None, SOFTPLUS)])
@pytest.mark.parametrize("state", [np.float32, np.float16])
def test_vllm(launched, lower_bound, gates, state):
    parts = {"A_log": single(H), "dt_bias": single(H * D), "lower_bound": lower_bound}

    def rows(tokens):
        wide = half(tokens, H + 16)
        return {**qkv(tokens), "raw_g": half(1, tokens, H, D), "raw_beta": wide[None, :, :H]}

    common = {**parts, "initial_state": pool(state)}
    out = half(1, N + 2, H, D)[:, :N]  # of a captured graph's
    vllm.fused_recurrent_kda(**rows(N), **common, cu_seqlens=STEPS, ssm_state_indices=READ, out=out)
    vllm.fused_recurrent_kda_packed_decode(
        half(N, CHANNELS + 64)[:, :CHANNELS], half(1, N, H, D), half(1, N, H), **common,
        state_indices=READ, out=None,
    )  # fmt: skip
    vllm.fused_recurrent_kda(
        **rows(N * T), **common, cu_seqlens=SPANS, ssm_state_indices=TABLE,
        num_accepted_tokens=ints(1, 2, 0),
    )  # fmt: skip
    first, second, drafts = launched()
    for launch in (first, second):
        check(launch, "DecodeProblem", 0, **POOL, **gates)
    check(drafts, "VerifyProblem", 0, **POOL, **gates, **EVERY)
    assert all(named["lower_bound"] == lower_bound for _, named in launched())


@pytest.mark.parametrize("state, gap", [(np.float32, 17), (np.float16, 4), (np.float16, 8)])
def test_vllm_packed_decode_of_any_pool(launched, state, gap):
    """Of slots that do not begin at multiples of 16 bytes copies are launched on."""
    memory = np.zeros((SLOTS, H * D * D + gap), state)
    states = np.lib.stride_tricks.as_strided(
        memory, (SLOTS, H, D, D), (memory.strides[0], *pool(state).strides[1:])
    )
    vllm.fused_recurrent_kda_packed_decode(
        half(N, CHANNELS), half(1, N, H, D), half(1, N, H), single(H), single(H * D), -5.0, states,
        READ,
    )  # fmt: skip
    ((problem, named),) = launched()
    assert problem.index_dtype == "i32" and named["pad_slot_id"] == 0
    assert named["state"].shape[0] == (SLOTS if gap == 8 else N + 1)


def test_vllm_of_glm_and_bailing(launched):
    given = {"g": single(1, N, H, D), "beta": single(1, N, H)}
    index = {"cu_seqlens": STEPS, "ssm_state_indices": READ}
    vllm.glm5next_fused_recurrent_kda(
        **qkv(N), g=half(1, N, H, D), beta=half(1, N, H), initial_state=pool(), **index,
        sigmoid_beta=True, compute_gate=True, a_log=single(1, 1, H, 1), g_bias=single(H * D),
    )  # fmt: skip
    vllm.glm5next_fused_recurrent_kda(
        **qkv(N), **given, initial_state=pool(), **index, safe_gate=True, lower_bound=-5.0
    )
    vllm.fused_recurrent_kda_fwd(
        **qkv(N * T), g=single(1, N * T, H, D), beta=single(1, N * T, H), scale=D**-0.5,
        initial_state=pool(), cu_seqlens=SPANS, ssm_state_indices=TABLE,
        num_accepted_tokens=ints(1, 2, 0), use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    computed, logs, drafts = launched()
    check(computed, "DecodeProblem", 0, **POOL, **BOUND)
    check(logs, "DecodeProblem", 0, **POOL, **GIVEN)
    check(drafts, "VerifyProblem", 0, **POOL, **GIVEN, **EVERY)


@pytest.mark.parametrize("layout", ["channels", "columns"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("heads", [H, 12])
@pytest.mark.parametrize("gap", [16, 17])
def test_vllm_fused_decode(gpu, context, monkeypatch, layout, normed, heads, gap):
    """Rows of x that the kernel cannot read in vectors are copied."""
    monkeypatch.setattr(_vllm_kda, "context_for", lambda given, name, array: context)
    found, launch = [], Decode.__call__

    def call(operator, **named):
        launch(operator, **{name: on_gpu(value) for name, value in named.items()})
        found.append((operator.problem, named))

    monkeypatch.setattr(Decode, "__call__", call)
    channels, before = 3 * heads * D, gpu.launches
    windows = half(SLOTS, channels, W - 1)
    if layout == "channels":
        windows = half(SLOTS, W - 1, channels).swapaxes(1, 2)
    norm = {"output_gate": half(N, 2, heads, D)[:, 0], "norm_weight": single(D)}
    x = half(N, channels + gap)[:, :channels]
    out = vllm.fused_kda_decode(
        x, single(3, W, heads * D), None, windows,
        half(1, N, heads, D), half(1, N, heads), single(heads), single(heads * D), READ,
        np.zeros((SLOTS, heads, D, D), np.float32), lower_bound=-5.0, **(norm if normed else {}),
    )  # fmt: skip
    assert out.shape == (1, N, heads, D) and gpu.launches == before + 1
    ((problem, named),) = found
    expected = {
        **BOUND, "v_heads": heads, "conv_width": W, "conv_weight_dtype": "f32",
        "conv_state_dtype": "f16", "conv_state_layout": layout, "conv_has_bias": False,
        "output_norm": "sigmoid_gated_rms" if normed else "none", "state_dtype": "f32",
    }  # fmt: skip
    assert {name: getattr(problem, name) for name in expected} == expected
    assert named["conv_weight"].shape == (channels, W) and named["pad_slot_id"] == 0
    assert np.shares_memory(named["x"], x) == (gap % 4 == 0)


def test_weights_that_lie_as_the_kernel_reads_them_are_not_copied(gpu, context, monkeypatch):
    monkeypatch.setattr(_vllm_kda, "context_for", lambda given, name, array: context)
    noted = []
    monkeypatch.setattr(Decode, "__call__", lambda operator, **named: noted.append(named))
    memory = single(3, H * D, W)
    vllm.fused_kda_decode(
        half(N, CHANNELS), memory.swapaxes(1, 2), None, half(SLOTS, CHANNELS, W - 1),
        half(1, N, H, D), half(1, N, H), single(H), single(H * D), READ, pool(),
    )  # fmt: skip
    assert np.shares_memory(noted[0]["conv_weight"], memory)


@pytest.mark.parametrize("lower_bound, gates", [(-5.0, BOUND), (None, SOFTPLUS)])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_sglang(launched, lower_bound, gates, rank):
    parts = {"A_log": single(1, 1, H, 1), "dt_bias": single(H * D), "lower_bound": lower_bound}
    common = {
        **parts, "softplus_beta": 1.0, "softplus_threshold": 20.0, "initial_state_source": pool(),
        "initial_state_indices": READ, "use_qk_l2norm_in_kernel": True, "is_kda": True,
    }  # fmt: skip

    def gates_of(tokens):
        lead = (tokens,) if rank == 2 else (1, tokens)
        return {"a": half(*lead, *((H, D) if rank == 4 else (H * D,))), "b": half(*lead, H)}

    sglang.fused_sigmoid_gating_delta_rule_update(
        **qkv(N), **gates_of(N), **common, cu_seqlens=STEPS
    )
    sglang.fused_recurrent_kda_packed_decode(
        half(N, CHANNELS), half(N, H * D), half(N, H), single(H), single(H * D), D**-0.5, pool(),
        half(N, 1, H, D), READ, use_qk_l2norm_in_kernel=True, lower_bound=lower_bound,
    )  # fmt: skip
    sglang.fused_sigmoid_gating_delta_rule_update(
        **qkv(N * T), **gates_of(N * T), **common, cu_seqlens=SPANS, disable_state_update=True,
        intermediate_states_buffer=single(N, T, H, D, D), intermediate_state_indices=ints(0, 1, 2),
        cache_steps=T,
    )  # fmt: skip
    first, second, drafts = launched()
    for launch in (first, second):
        check(launch, "DecodeProblem", -1, **POOL, **gates)
    every = {**EVERY, "from_accepted": False}
    check(drafts, "VerifyProblem", -1, **POOL, **gates, **every)


@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_fla(launched, v_first, packed):
    """As FLA's layer of Kimi Delta Attention calls it."""
    tokens = 1 if not packed else N * T
    lead = (1, tokens) if packed else (N, tokens)
    x = {name: half(*lead, H, D) for name in ("q", "k", "v", "g")}
    parts = {"A_log": single(H), "dt_bias": single(H * D), "lower_bound": -5.0}
    flags = {
        "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "state_v_first": v_first,
        "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True,
    }  # fmt: skip
    _, final = fla.fused_recurrent_kda(
        **x, beta=half(*lead, H), **parts, **flags, initial_state=single(N, H, D, D),
        output_final_state=True, cu_seqlens=SPANS.astype(np.int64) if packed else None,
    )  # fmt: skip
    fla.fused_recurrent_kda_fwd(
        **x, beta=half(*lead, H), **parts, **flags, initial_state=pool(np.float16),
        ssm_state_indices=np.zeros((N, T), np.int64) if packed else np.arange(N),
        cu_seqlens=SPANS.astype(np.int64) if packed else None,
    )  # fmt: skip
    assert final.shape == (N, H, D, D) and final.dtype == np.float32
    kind = "VerifyProblem" if packed else "DecodeProblem"
    layout = {"state_layout": "vk" if v_first else "kv"}
    gates = {**BOUND, "beta_mode": "doubled_logit", **layout}
    dense, pooled = launched()
    check(dense, kind, None, **gates, state_location="dense", state_dtype="f32")
    check(pooled, kind, None, **gates, state_location="pool", state_dtype="f16", index_dtype="i64")


# --- prefills

TOTAL, BOUNDS = 134, ints(0, 70, 70, 134)
DENSE = {"state_location": "dense", "varlen": True, "state_dtype": "f32"}


def check_prefill(launch, **fields):
    problem, named = launch
    fields = {**BASE, **fields}
    assert {name: getattr(problem, name) for name in fields} == fields
    return problem, named


def rows(tokens=TOTAL, logits="beta", raw="g"):
    wide = half(tokens, H + 16)
    return {**qkv(tokens), raw: half(1, tokens, H, D), logits: wide[None, :, :H]}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # of states that nobody wrote
@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_fla_prefill(prefilled, v_first, kept):
    """As FLA's layer calls it, at first and behind a cache."""
    flags = {
        "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "state_v_first": v_first,
        "use_beta_sigmoid_in_kernel": True, "safe_gate": True, "lower_bound": -5.0,
    }  # fmt: skip
    common = {**rows(), **flags, "A_log": single(H), "dt_bias": single(H * D)}
    for start in (None, single(3, H, D, D)):
        fla.chunk_kda(
            **common, initial_state=start, output_final_state=True,
            cu_seqlens=BOUNDS.astype(np.int64), return_intermediate_states=kept,
        )  # fmt: skip
        fla.fused_recurrent_kda(
            **{name: value for name, value in common.items() if name != "safe_gate"},
            initial_state=start, output_final_state=True, cu_seqlens=BOUNDS,
        )  # fmt: skip
    layout = {"state_layout": "vk" if v_first else "kv", "store_state": True}
    for i, launch in enumerate(prefilled):
        of_chunks = i % 2 == 0
        check_prefill(
            launch, **DENSE, **BOUND, **layout, has_initial_state=i >= 2,
            cu_seqlens_dtype="i64" if of_chunks else "i32",
            checkpoints="before" if kept and of_chunks else "none",
        )  # fmt: skip
    assert len(prefilled) == 4


@pytest.mark.parametrize("state", [np.float32, np.float16])
def test_vllm_prefill(prefilled, state):
    h0 = np.zeros((3, H, D, D), state)
    common = {
        "initial_state": h0, "output_final_state": True, "use_qk_l2norm_in_kernel": True,
        "cu_seqlens": BOUNDS,
    }  # fmt: skip
    vllm.chunk_kda(
        **{**rows(), "g": single(1, TOTAL, H, D), "beta": single(1, TOTAL, H)}, **common,
        safe_gate=True, lower_bound=-5.0,
    )  # fmt: skip
    for lower_bound in (-5.0, None):
        vllm.chunk_kda_with_fused_gate(
            **rows(logits="raw_beta", raw="raw_g"), A_log=single(H), g_bias=single(H * D),
            lower_bound=lower_bound, **common, out=half(1, TOTAL + 2, H, D)[:, :TOTAL],
        )  # fmt: skip
    for safe_gate in (True, False):
        vllm.glm5next_chunk_kda_with_fused_gate(
            **{**rows(raw="raw_g"), "beta": single(1, TOTAL, H)}, A_log=single(H),
            g_bias=single(H * D), safe_gate=safe_gate, lower_bound=-5.0, **common,
        )  # fmt: skip
    mixed = {"beta_mode": "given", "beta_dtype": "f32"}
    gates = (GIVEN, BOUND, SOFTPLUS, {**BOUND, **mixed}, {**SOFTPLUS, **mixed})
    for launch, of_gates in zip(prefilled, gates, strict=True):
        check_prefill(launch, **DENSE, **of_gates, state_layout="vk", has_initial_state=True)


@pytest.mark.parametrize("state", [np.float32, np.float16])
@pytest.mark.parametrize("bounds", [np.int32, np.int64])
def test_flash_kda_prefill(prefilled, state, bounds):
    """Both ends are the caller's, of either dtype; vLLM's fork keeps a state of each sequence."""
    ends = [np.zeros((3, H, D, D), state) for _ in range(3)]
    fed = [*rows().values(), D**-0.5, half(1, TOTAL, H, D)]
    parts = [single(H), single(H, D), -5.0, ends[0], ends[1], BOUNDS.astype(bounds)]
    flash_kda.fwd(*fed, *parts)
    vllm.flashkda_fwd(*fed, np.zeros(8, np.uint8), *parts, ends[2], np.array([64, 0, 16], bounds))
    dtypes = {
        "state_dtype": "f32" if state is np.float32 else "f16",
        "cu_seqlens_dtype": "i32" if bounds is np.int32 else "i64",
    }  # fmt: skip
    ours = {**DENSE, **BOUND, **dtypes, "state_layout": "vk", "has_initial_state": True}
    public, fork = prefilled
    check_prefill(public, **ours, store_state=True, checkpoints="none")
    _, named = check_prefill(
        fork, **ours, store_state=True, checkpoints="at", checkpoint_every=16, index_dtype="i32"
    )
    assert named["checkpoint_offsets"].shape == named["checkpoint_slots"].shape == (3, 1)


@pytest.mark.parametrize("lower_bound, gates", [(-5.0, BOUND), (None, SOFTPLUS)])
def test_sglang_prefill(prefilled, lower_bound, gates):
    common = {
        "initial_state": pool(), "initial_state_indices": READ, "use_qk_l2norm_in_kernel": True,
        "cu_seqlens": BOUNDS,
    }  # fmt: skip
    raw = {"A_log": single(1, 1, H, 1), "dt_bias": single(H * D), "lower_bound": lower_bound}
    track = {"track_state": single(3, H, D, D), "track_chunk_idx": ints(1, -1, 0)}
    for kept in ({}, track):
        sglang.chunk_kda(
            **rows(), **common, **raw, beta_is_raw=True, output_intermediate_states=bool(kept),
            **kept,
        )  # fmt: skip
    sglang.chunk_kda(**{**rows(), "g": single(1, TOTAL, H, D)}, **common)
    first, kept, given = prefilled
    ours = {**POOL, "varlen": True, "has_initial_state": True}
    check_prefill(first, **ours, **gates, checkpoints="none")
    check_prefill(kept, **ours, **gates, checkpoints="before", checkpoint_every=64)
    _, named = check_prefill(given, **ours, **{**GIVEN, "beta_dtype": "f16"})
    assert (named["pad_slot_id"], named["zero_padding"]) == (-1, True)
