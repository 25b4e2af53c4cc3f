"""The adapters of Kimi Delta Attention on a GPU, with torch: against the recurrence in float64, with
the tolerance of test_compat_gpu.py, and against FLA itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import recurrence
from test_compat_gpu import (
    COMPUTED, DRAFT_LENGTHS, Drafts, Step, indices, nan_buffer, on_gpu, on_host, untouched,
    within, worst,
)  # fmt: skip

from cubinery.compat import _fla_kda, fla, sglang, vllm

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

H, HV, K, V = 2, 4, 128, 128
BOUNDS = [None, -5.0]
NAMES = ("q", "k", "v", "a", "b")


def parameters(random: np.random.Generator, heads: int = HV) -> dict[str, Any]:
    """dt_bias is flat, as in the models."""
    return {
        "A_log": on_gpu(np.log(random.uniform(1, 16, heads)), "f32"),
        "dt_bias": on_gpu(random.standard_normal(heads * K) - 2, "f32"),
    }


def modes_of(lower_bound: float | None) -> dict[str, Any]:
    gate_mode = "computed" if lower_bound is None else "lower_bound"
    return {"decay": "channel", "gate_mode": gate_mode, "lower_bound": lower_bound}


def rows(random: np.random.Generator, *lead: int, dtype: str = "bf16") -> dict[str, Any]:
    shapes = {"q": (H, K), "k": (H, K), "v": (HV, V), "a": (HV, K), "b": (HV,)}
    return {
        name: on_gpu(random.standard_normal((*lead, *shape)), dtype)
        for name, shape in shapes.items()
    }


def make_step(state_dtype: str, lower_bound: float | None, requests: int = 5) -> Step:
    random = np.random.default_rng(21)
    x, given = rows(random, requests), parameters(random)
    pool = on_gpu(random.standard_normal((8, HV, V, K)), state_dtype)
    return Step(x, given, pool, "bf16", state_dtype, modes_of(lower_bound))


def make_drafts(
    state_dtype: str, lower_bound: float | None, tokens: int = 4, slots: int = 32
) -> Drafts:
    random = np.random.default_rng(22)
    x, given = rows(random, 6, tokens), parameters(random)
    pool = on_gpu(random.standard_normal((slots, HV, V, K)), state_dtype)
    return Drafts(x, given, pool, "bf16", state_dtype, modes_of(lower_bound))


def raw(x: dict[str, Any]) -> dict[str, Any]:
    """Under vLLM's names."""
    renamed = {"a": "raw_g", "b": "raw_beta"}
    return {renamed.get(name, name): tensor for name, tensor in x.items()}


def log_decays(step: Any) -> Any:
    """g in f32, as layers that compute it do."""
    given = {name: on_host(tensor) for name, tensor in step.parameters.items()}
    a, dt_bias = on_host(step.x["a"]), given["dt_bias"].reshape(HV, K)
    mode, bound = step.modes["gate_mode"], step.modes["lower_bound"]
    return on_gpu(recurrence.log_decay(mode, a, given["A_log"][:, None], dt_bias, bound), "f32")


# --- one token


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_vllm_decode(state_dtype, lower_bound):
    step = make_step(state_dtype, lower_bound)
    slots, meant = indices(3, 1, 0, 7, 2), [3, 1, None, 7, 2]
    common = {**step.parameters, "lower_bound": lower_bound}
    pool = step.pool.clone()
    out = torch.empty(1, 5, HV, V, device="cuda", dtype=torch.bfloat16)
    o, _ = vllm.fused_recurrent_kda(
        **raw(step.rows(0)), **common, initial_state=pool, ssm_state_indices=slots, out=out,
        cu_seqlens=torch.arange(6, device="cuda", dtype=torch.int32),
    )  # fmt: skip
    assert o is out
    step.check(o[0], pool, meant)
    wide = torch.cat([step.mixed(), step.mixed()], 1)  # rows of a wider projection
    for gap in (0, 17):  # behind a slot: kernels cannot read all in vectors
        memory = step.pool.new_zeros(len(step.pool), step.pool[0].numel() + gap)
        packed = memory[:, : step.pool[0].numel()].view(step.pool.shape)
        packed.copy_(step.pool)
        again, _ = vllm.fused_recurrent_kda_packed_decode(
            wide[:, : step.mixed().shape[1]], step.x["a"][None], step.x["b"][None], **common,
            initial_state=packed, state_indices=slots,
        )  # fmt: skip
        assert torch.equal(again, o) and torch.equal(packed, pool)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_vllm_decode_of_glm_and_bailing(state_dtype):
    step, slots, meant = make_step(state_dtype, -5.0), indices(3, 1, 0, 7, 2), [3, 1, None, 7, 2]
    x = step.rows(0)
    common = {
        **{name: x[name] for name in ("q", "k", "v")}, "ssm_state_indices": slots,
        "cu_seqlens": torch.arange(6, device="cuda", dtype=torch.int32),
    }  # fmt: skip
    pool = step.pool.clone()
    o, _ = vllm.glm5next_fused_recurrent_kda(
        **common, g=x["a"], beta=x["b"], initial_state=pool, sigmoid_beta=True, compute_gate=True,
        a_log=step.parameters["A_log"].reshape(1, 1, HV, 1), g_bias=step.parameters["dt_bias"],
    )  # fmt: skip
    step.check(o[0], pool, meant)
    pool = step.pool.clone()
    beta = x["b"].float().sigmoid()
    o, _ = vllm.glm5next_fused_recurrent_kda(
        **common, g=log_decays(step)[None], beta=beta, initial_state=pool, safe_gate=True
    )
    x["a"], x["b"] = log_decays(step)[None], beta
    given = Step(
        {name: tensor[0] for name, tensor in x.items()}, {}, step.pool, "bf16", state_dtype,
        {"decay": "channel", "gate_mode": "log", "beta_mode": "given"},
    )  # fmt: skip
    given.check(o[0], pool, meant)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_sglang_decode(state_dtype, lower_bound):
    step = make_step(state_dtype, lower_bound)
    slots, meant = indices(3, 1, -1, 7, 2), [3, 1, None, 7, 2]
    x, pool = step.rows(0), step.pool.clone()
    x["a"] = x["a"].flatten(-2)
    given = {**step.parameters, "A_log": step.parameters["A_log"].reshape(1, 1, HV, 1)}
    o = sglang.fused_sigmoid_gating_delta_rule_update(
        **x, **given, lower_bound=lower_bound, softplus_beta=1.0, softplus_threshold=20.0,
        initial_state_source=pool, initial_state_indices=slots, use_qk_l2norm_in_kernel=True,
        cu_seqlens=torch.arange(6, device="cuda", dtype=torch.int32), is_kda=True,
    )  # fmt: skip
    step.check(o[0], pool, meant)
    packed = step.pool.clone()
    out = torch.empty(5, 1, HV, V, device="cuda", dtype=torch.bfloat16)
    sglang.fused_recurrent_kda_packed_decode(
        step.mixed(), x["a"][0], step.x["b"], *step.parameters.values(), K**-0.5, packed, out,
        slots, True, lower_bound,
    )  # fmt: skip
    assert torch.equal(out[:, 0], o[0]) and torch.equal(packed, pool)


# --- vLLM's decode with the convolution in front and the norm behind, in one launch


def fused_reference(real: type, x: dict[str, Any], n: int, window: Any, state: Any) -> Any:
    """Of one request: o [H, K] and its state [H, K, V], in the precision `real`.  In float32 q, k and
    v are rounded to bf16, as a convolution of its own would write them."""
    heads = x["raw_beta"].shape[-1]
    weight = real(on_host(x["weight"])).transpose(0, 2, 1).reshape(3 * heads * K, -1)
    columns = np.concatenate([window, on_host(x["x"][n])[:, None]], 1).astype(real)
    y = (columns * weight).sum(1)
    y = y * recurrence.sigmoid(y)
    q, k, v = (recurrence.rounding("bf16")(y) if real is np.float32 else y).reshape(3, 1, heads, K)
    given = {name: on_host(x[name]) for name in ("A_log", "dt_bias")}
    modes = {**COMPUTED, **given, **modes_of(x["lower_bound"])}
    a, b = on_host(x["raw_g"][0, n])[None], on_host(x["raw_beta"][0, n])[None]
    operands = recurrence.sequence_operands(real, q, k, v, a, b, **modes)
    o, states = recurrence.tokens(*operands, real(np.swapaxes(state, 1, 2)))
    if x["output_gate"] is not None:
        gate, norm = on_host(x["output_gate"][n]), on_host(x["norm_weight"])
        o = recurrence.normed(o[0], gate, norm, x["norm_eps"], "sigmoid_gated_rms")[None]
    return o[0], states[0]


@pytest.mark.parametrize("heads", [4, 12])
@pytest.mark.parametrize("layout", ["channels", "columns"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_vllm_fused_decode(heads, layout, normed, lower_bound):
    random = np.random.default_rng(23)

    def made(*shape: int, dtype: str = "bf16") -> Any:
        return on_gpu(random.standard_normal(shape), dtype)

    channels, slots, requests = 3 * heads * K, 8, 5
    windows = made(slots, 3, channels).mT
    if layout == "columns":
        windows = windows.contiguous()
    # q, k, v and the output's gate; alone they lie in no vectors, as in vLLM's test.
    wide = made(requests, channels + (heads * K if normed else 17))
    gate = wide[:, channels:].unflatten(1, (heads, K)) if normed else None
    x = {
        "x": wide[:, :channels], "weight": made(3, 4, heads * K, dtype="f32"), "bias": None,
        "conv_state": windows, "raw_g": made(1, requests, heads, K),
        "raw_beta": made(1, requests, heads), **parameters(random, heads),
        "state": made(slots, heads, K, K, dtype="f32"), "lower_bound": lower_bound,
        "output_gate": gate, "norm_eps": 1e-5,
        "norm_weight": made(K, dtype="f32") if normed else None,
        "state_indices": indices(3, 1, 0, 7, 2),
    }  # fmt: skip
    before = {name: x[name].clone() for name in ("conv_state", "state")}
    out = vllm.fused_kda_decode(**x)
    assert out.shape == (1, requests, heads, K) and out.dtype == torch.bfloat16
    for n, slot in enumerate(x["state_indices"].tolist()):
        if slot == 0:
            assert not out[0, n].any()
            continue
        window, state = on_host(before["conv_state"][slot]), on_host(before["state"][slot])
        exact_o, exact = fused_reference(np.float64, x, n, window, state)
        naive_o, naive = fused_reference(np.float32, x, n, window, state)
        naive_o = recurrence.rounding("bf16")(naive_o)
        within("o", on_host(out[0, n]), exact_o, worst(naive_o, exact_o))
        after = np.swapaxes(on_host(x["state"][slot]), 1, 2)
        within("state", after, exact, worst(naive, exact))
        shifted = torch.cat([before["conv_state"][slot][:, 1:], x["x"][n][:, None]], 1)
        assert torch.equal(x["conv_state"][slot], shifted)
    for name, tensor in before.items():
        untouched(x[name], tensor, {3, 1, 7, 2})


# --- several tokens


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("lower_bound", BOUNDS)
@pytest.mark.parametrize("given", [False, True])
def test_vllm_draft_tokens(state_dtype, lower_bound, given):
    """The fifth request is padding, the last one drops its second state."""
    drafts = make_drafts(state_dtype, lower_bound)
    if given:
        drafts.x["a"], drafts.x["b"] = log_decays(drafts), drafts.x["b"].float().sigmoid()
        drafts.parameters = {}
        drafts.modes = {"decay": "channel", "gate_mode": "log", "beta_mode": "given"}
    pool, x = drafts.pool.clone(), drafts.packed(DRAFT_LENGTHS)
    slots = np.arange(1, 25).reshape(6, 4)
    slots[4], slots[5, 1] = 0, 0
    accepted = (3, 2, 1, 0, 1, 4)
    common = {
        "initial_state": pool, "cu_seqlens": x["cu_seqlens"],
        "ssm_state_indices": torch.tensor(slots, device="cuda", dtype=torch.int32),
        "num_accepted_tokens": indices(*accepted),
    }  # fmt: skip
    tokens = {name: x[name] for name in NAMES}
    if given:
        o, final = vllm.fused_recurrent_kda_fwd(
            *tokens.values(), None, **common, use_qk_l2norm_in_kernel=True
        )
    else:
        o, final = vllm.fused_recurrent_kda(
            **raw(tokens), **drafts.parameters, lower_bound=lower_bound, **common
        )
    assert final is pool
    bounds, written = x["cu_seqlens"].tolist(), set()
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        if n == 4:
            assert not o[0, first:last].any()
            continue
        kept = {t: slots[n, t] for t in range(last - first) if slots[n, t] != 0}
        written |= set(kept.values())
        start = drafts.pool[slots[n, max(accepted[n], 1) - 1]]
        drafts.check(n, start, o[0, first:last], {t: pool[slot] for t, slot in kept.items()})
    untouched(pool, drafts.pool, written)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("lower_bound", BOUNDS)
@pytest.mark.parametrize("tree", [False, True])
def test_sglang_target_verify(state_dtype, lower_bound, tree):
    """The fifth request is padding, the last one has no row for its states."""
    drafts = make_drafts(state_dtype, lower_bound)
    pool, buffer = drafts.pool.clone(), nan_buffer(8, 4, state_dtype)
    read, kept_at = (3, 1, 8, 7, -1, 2), (2, 0, 1, 6, 3, -1)
    parents = [[-1, 0, 0, 1], [-1, 0, 1, 2], [-1, 0, 0, 0]] * 2
    options = {"retrieve_parent_token": torch.tensor(parents, device="cuda")} if tree else {}
    o = sglang.fused_sigmoid_gating_delta_rule_update(
        **drafts.x, **drafts.parameters, lower_bound=lower_bound, softplus_beta=1.0,
        softplus_threshold=20.0, initial_state_source=pool, initial_state_indices=indices(*read),
        use_qk_l2norm_in_kernel=True, is_kda=True, disable_state_update=True, cache_steps=4,
        intermediate_states_buffer=buffer, intermediate_state_indices=indices(*kept_at), **options,
    )  # fmt: skip
    assert torch.equal(pool, drafts.pool)
    for n, slot in enumerate(read):
        if slot < 0:
            assert not o[n].any()
            continue
        kept = dict(enumerate(buffer[kept_at[n]])) if kept_at[n] >= 0 else {}
        drafts.check(n, drafts.pool[slot], o[n], kept, parents[n] if tree else None)
    untouched(buffer[..., :1, :1, :1].nan_to_num(), torch.zeros_like(buffer)[..., :1, :1, :1],
              {row for row in kept_at if row >= 0})  # fmt: skip


def test_draft_tokens_in_a_graph():
    """What a replay reads are the indices and counts of then."""
    drafts = make_drafts("f32", -5.0)
    pool, accepted = drafts.pool.clone(), indices(1, 1, 1, 1, 1, 1)
    table = torch.arange(1, 25, device="cuda", dtype=torch.int32).reshape(6, 4)
    x = drafts.packed((4,) * 6)
    bounds = x.pop("cu_seqlens")

    def run():
        return vllm.fused_recurrent_kda(
            **raw(x), **drafts.parameters, lower_bound=-5.0, initial_state=pool,
            cu_seqlens=bounds, ssm_state_indices=table, num_accepted_tokens=accepted,
        )[0]  # fmt: skip

    run()  # kernels are loaded now
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = run()
    for counts in ((1, 2, 3, 4, 1, 2), (4, 3, 2, 1, 4, 3)):
        pool.copy_(drafts.pool)
        accepted.copy_(indices(*counts))
        graph.replay()
        torch.cuda.synchronize()
        for n, count in enumerate(counts):
            slots = table[n].tolist()
            start = drafts.pool[slots[count - 1]]
            kept = {t: pool[slot] for t, slot in enumerate(slots)}
            drafts.check(n, start, o[0, 4 * n : 4 * n + 4], kept)


# --- FLA


def fla_arguments(drafts: Drafts, tokens: int, v_first: bool) -> dict[str, Any]:
    x = {name: drafts.x[name][:, :tokens] for name in NAMES}
    x["g"], x["beta"] = x.pop("a"), x.pop("b")
    h0 = drafts.pool[:6].float()
    return {
        **x, **drafts.parameters, "lower_bound": drafts.modes["lower_bound"],
        "initial_state": h0.clone() if v_first else h0.mT.contiguous(), "state_v_first": v_first,
        "output_final_state": True, "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
    }  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 4, 16])
@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_fla(tokens, v_first, lower_bound):
    drafts = make_drafts("f32", lower_bound, tokens=16)
    arguments = fla_arguments(drafts, tokens, v_first)
    before = arguments["initial_state"].clone()
    o, final = fla.fused_recurrent_kda(**arguments)
    assert torch.equal(arguments["initial_state"], before) and final.dtype == torch.float32
    final = final if v_first else final.mT
    for n in range(6):
        drafts.check(n, drafts.pool[n], o[n], {tokens - 1: final[n]})


def test_fla_packed_sequences():
    drafts = make_drafts("f32", -5.0)
    lengths = (4, 0, 1, 3, 2, 4)
    x = drafts.packed(lengths)
    arguments = fla_arguments(drafts, 4, True)
    arguments |= {name: x[name] for name in ("q", "k", "v")}
    arguments |= {"g": x["a"], "beta": x["b"], "cu_seqlens": x["cu_seqlens"].long()}
    o, final = fla.fused_recurrent_kda(**arguments)
    bounds = x["cu_seqlens"].tolist()
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        if first == last:
            assert torch.equal(final[n], arguments["initial_state"][n])
            continue
        drafts.check(n, drafts.pool[n], o[0, first:last], {last - first - 1: final[n]})


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_fla_fwd_on_a_pool(tokens, state_dtype):
    drafts = make_drafts(state_dtype, -5.0)
    arguments = fla_arguments(drafts, tokens, True)
    del arguments["output_final_state"]
    slots = np.arange(6, 30).reshape(6, 4)[:, :tokens]
    pool = drafts.pool.clone()
    arguments["initial_state"] = pool
    o, final = fla.fused_recurrent_kda_fwd(
        **arguments,
        ssm_state_indices=torch.tensor(slots.squeeze(1) if tokens == 1 else slots).cuda(),
    )
    assert final is pool
    for n in range(6):
        kept = {t: pool[slot] for t, slot in enumerate(slots[n])}
        drafts.check(n, drafts.pool[slots[n, 0]], o[n], kept)
    untouched(pool, drafts.pool, set(slots.flatten().tolist()))


@pytest.mark.parametrize("tokens", [1, 4, 16])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_no_worse_than_fla(tokens, lower_bound):
    theirs = pytest.importorskip("fla.ops.kda")
    drafts = make_drafts("f32", lower_bound, tokens=16)
    arguments = fla_arguments(drafts, tokens, True)
    ours = fla.fused_recurrent_kda(**arguments)
    with torch.no_grad():
        others = theirs.fused_recurrent_kda(**arguments)
    for n in range(6):
        expected = drafts.expected(n, tokens, drafts.pool[n])
        for name, which, at in (("o", 0, slice(None)), ("states", 1, -1)):
            exact = expected[name][0][at]
            mine, other = (on_host(x[which][n]) for x in (ours, others))
            assert ours[which].dtype == others[which].dtype
            within(name, mine, exact, worst(other, exact))


def test_registered_with_fla(monkeypatch):
    theirs = pytest.importorskip("fla.ops.kda")
    drafts = make_drafts("f32", -5.0, tokens=17)
    ran = []
    run = _fla_kda._KdaCall.run

    def counted(call, *args):
        ran.append(call.q.shape[1])
        return run(call, *args)

    monkeypatch.setattr(_fla_kda._KdaCall, "run", counted)
    fla.register()
    try:
        with torch.no_grad():
            for tokens in (1, 4):
                o, final = theirs.fused_recurrent_kda(**fla_arguments(drafts, tokens, True))
                drafts.check(0, drafts.pool[0], o[0], {tokens - 1: final[0]})
            theirs.fused_recurrent_kda(**fla_arguments(drafts, 17, True))  # a prefill
    finally:
        fla.unregister()
    assert ran == [1, 4, 17]
