"""Prefills of Kimi Delta Attention by the adapters on a GPU, with torch: against the recurrence in
float64, and against FLA and FlashKDA themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import recurrence
from test_compat_gpu import COMPUTED, DTYPES, indices, on_gpu, on_host

from cubinery import functional
from cubinery.compat import fla, flash_kda, sglang, vllm

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

H, HV, K, V = 2, 4, 128, 128
LENGTHS = (64, 0, 1, 197)
N, TOTAL = len(LENGTHS), sum(LENGTHS)
SPANS = np.cumsum((0, *LENGTHS))
BOUNDS = [None, -5.0]
# Of o and of states, relative to their root mean square: operands are rounded to the dtype.
LIMITS = {"bf16": 5e-3, "f16": 1e-3}


def off(actual: Any, exact: np.ndarray) -> float:
    """The relative root mean square of the error."""
    actual = np.float64(on_host(actual))
    assert actual.shape == exact.shape
    return float(np.sqrt(((actual - exact) ** 2).mean() / (exact**2).mean()))


@dataclass
class Prompts:
    """Packed sequences with raw gates, and the states that they start from."""

    x: dict[str, Any]  # q, k [1, T, heads, K], v [1, T, HV, V], a [1, T, HV, K], b [1, T, HV]
    A_log: Any  # [HV]
    dt_bias: Any  # flat, as in the models
    lower_bound: float | None
    h0: Any  # [N, HV, V, K], f32
    dtype: str

    @cached_property
    def expected(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each sequence o [T, HV, V] and the states in front of and after its tokens
        [T + 1, HV, V, K], in float64."""
        modes = {
            **COMPUTED, "A_log": on_host(self.A_log), "dt_bias": on_host(self.dt_bias),
            "gate_mode": "computed" if self.lower_bound is None else "lower_bound",
            "decay": "channel", "lower_bound": self.lower_bound,
        }  # fmt: skip
        host, starts, found = {name: on_host(x) for name, x in self.x.items()}, on_host(self.h0), []
        for n in range(N):
            arrays = [x[0, SPANS[n] : SPANS[n + 1]] for x in host.values()]
            start = np.float64(np.swapaxes(starts[n], 1, 2))
            operands = recurrence.sequence_operands(np.float64, *arrays, **modes)
            o, states = recurrence.tokens(*operands, start)
            found.append((o, np.swapaxes(np.concatenate([start[None], states]), 2, 3)))
        return found

    def check(self, o: Any, final: Any = None) -> None:
        """o [1, T, HV, V], final [N, HV, V, K]."""
        limit = LIMITS[self.dtype]
        assert off(o[0], np.concatenate([outputs for outputs, _ in self.expected])) <= limit
        if final is not None:
            assert off(final, np.stack([states[-1] for _, states in self.expected])) <= limit
            assert torch.equal(final[1], self.h0[1])  # of no tokens

    def named(self, **names: str) -> dict[str, Any]:
        return {names.get(name, name): tensor for name, tensor in self.x.items()}

    def bounds(self, dtype: Any = None) -> Any:
        return indices(*SPANS).to(dtype or torch.int32)

    def decays(self) -> tuple[Any, Any]:
        """g and beta as layers compute them, in f32."""
        raw, rate = self.x["a"].float() + self.dt_bias.view(HV, K), self.A_log.exp()[:, None]
        if self.lower_bound is None:
            g = -rate * torch.nn.functional.softplus(raw)
        else:
            g = self.lower_bound * torch.sigmoid(rate * raw)
        return g, self.x["b"].float().sigmoid()


def prompts(lower_bound: float | None, dtype: str = "bf16", heads: int = H) -> Prompts:
    random = np.random.default_rng(31)
    shapes = {"q": (heads, K), "k": (heads, K), "v": (HV, V), "a": (HV, K), "b": (HV,)}
    x = {
        name: on_gpu(random.standard_normal((1, TOTAL, *shape)), dtype)
        for name, shape in shapes.items()
    }
    return Prompts(
        x, on_gpu(np.log(random.uniform(1, 16, HV)), "f32"),
        on_gpu(random.standard_normal(HV * K) - 2, "f32"), lower_bound,
        on_gpu(random.standard_normal((N, HV, V, K)), "f32"), dtype,
    )  # fmt: skip


# --- FLA


def fla_arguments(given: Prompts, v_first: bool) -> dict[str, Any]:
    return {
        **given.named(a="g", b="beta"), "A_log": given.A_log, "dt_bias": given.dt_bias,
        "lower_bound": given.lower_bound, "state_v_first": v_first, "output_final_state": True,
        "initial_state": given.h0.clone() if v_first else given.h0.mT.contiguous(),
        "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True, "cu_seqlens": given.bounds(torch.int64),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_fla(dtype, v_first, lower_bound):
    given = prompts(lower_bound, dtype)
    arguments = fla_arguments(given, v_first)
    before = arguments["initial_state"].clone()
    o, final = fla.chunk_kda(**arguments, safe_gate=lower_bound is not None)
    assert o.dtype == DTYPES[dtype] and final.dtype == torch.float32
    given.check(o, final if v_first else final.mT)
    assert torch.equal(arguments["initial_state"], before)
    again, end = fla.fused_recurrent_kda(**arguments)
    assert torch.equal(again, o) and torch.equal(end, final)


@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_fla_with_given_decays(lower_bound):
    given = prompts(lower_bound)
    arguments = fla_arguments(given, True)
    for name in ("A_log", "dt_bias", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel"):
        del arguments[name]
    arguments["g"], arguments["beta"] = given.decays()
    given.check(*fla.chunk_kda(**arguments))


@pytest.mark.parametrize("chunk_size", [32, 64])
@pytest.mark.parametrize("v_first", [False, True])
def test_fla_intermediate_states(chunk_size, v_first):
    given = prompts(-5.0)
    o, final, h = fla.chunk_kda(
        **fla_arguments(given, v_first), return_intermediate_states=True, chunk_size=chunk_size
    )
    given.check(o, final if v_first else final.mT)
    assert h.dtype == DTYPES["bf16"]
    h, row = h if v_first else h.mT, 0
    for length, (_, states) in zip(LENGTHS, given.expected):
        for at in range(0, length, chunk_size):
            assert off(h[0, row], states[at]) <= 2 * LIMITS["bf16"]  # rounded once more
            row += 1


@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_no_worse_than_fla(lower_bound):
    theirs = pytest.importorskip("fla.ops.kda")
    given = prompts(lower_bound)
    arguments = fla_arguments(given, True)
    safe = {"safe_gate": lower_bound is not None}
    with torch.no_grad():
        ours, others = (module.chunk_kda(**arguments, **safe) for module in (fla, theirs))
    exact = np.concatenate([outputs for outputs, _ in given.expected])
    assert off(ours[0][0], exact) <= 1.25 * off(others[0][0], exact)
    states = np.stack([states[-1] for _, states in given.expected])
    assert off(ours[1], states) <= 1.25 * off(others[1], states)
    assert [x.dtype for x in ours] == [x.dtype for x in others]


def test_registered_with_fla(monkeypatch):
    theirs = pytest.importorskip("fla.ops.kda")
    given, ran = prompts(-5.0), []
    arguments = {**fla_arguments(given, True), "safe_gate": True}
    run = functional.gdn_prefill

    def counted(*rows: Any, **options: Any) -> Any:
        ran.append(options["gate_mode"])
        return run(*rows, **options)

    monkeypatch.setattr(functional, "gdn_prefill", counted)
    fla.register()
    try:
        with torch.no_grad():
            given.check(*theirs.chunk_kda(**arguments))
        assert ran == ["lower_bound"]
        training = {**arguments, "v": arguments["v"].clone().requires_grad_()}
        assert theirs.chunk_kda(**training)[0].requires_grad  # stays FLA's
    finally:
        fla.unregister()
    with torch.no_grad():
        theirs.chunk_kda(**arguments)
    assert ran == ["lower_bound"]


# --- vLLM


@pytest.mark.parametrize("lower_bound", BOUNDS)
@pytest.mark.parametrize("dtype", LIMITS)
def test_vllm(lower_bound, dtype):
    given = prompts(lower_bound, dtype)
    common = {
        "initial_state": given.h0, "output_final_state": True, "use_qk_l2norm_in_kernel": True,
        "cu_seqlens": given.bounds(),
    }  # fmt: skip
    before = given.h0.clone()
    out = torch.empty_like(given.x["v"])
    o, final = vllm.chunk_kda_with_fused_gate(
        **given.named(a="raw_g", b="raw_beta"), A_log=given.A_log.view(1, 1, HV, 1),
        g_bias=given.dt_bias, lower_bound=lower_bound, out=out, **common,
    )  # fmt: skip
    assert o is out
    given.check(o, final)
    g, beta = given.decays()
    glm = {**given.named(a="raw_g", b="beta"), "beta": beta}
    given.check(
        *vllm.glm5next_chunk_kda_with_fused_gate(
            **glm, A_log=given.A_log, g_bias=given.dt_bias, safe_gate=lower_bound is not None,
            lower_bound=-5.0, **common,
        )
    )  # fmt: skip
    logs = {**given.named(a="g", b="beta"), "g": g, "beta": beta}
    given.check(*vllm.chunk_kda(**logs, safe_gate=True, lower_bound=lower_bound, **common))
    assert torch.equal(given.h0, before)


# --- FlashKDA


def flash_arguments(given: Prompts, state_dtype: str = "f32") -> list[Any]:
    h0 = given.h0.to(DTYPES[state_dtype])
    return [
        *given.x.values(), K**-0.5, torch.empty_like(given.x["v"]), given.A_log,
        given.dt_bias.view(HV, K), given.lower_bound, h0, torch.empty_like(h0),
        given.bounds(torch.int64),
    ]  # fmt: skip


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_flash_kda(state_dtype):
    given = prompts(-5.0, heads=HV)
    given.h0 = given.h0.to(DTYPES[state_dtype]).float()
    arguments = flash_arguments(given, state_dtype)
    out, final = arguments[6], arguments[11]
    flash_kda.fwd(*arguments)
    given.check(out, final.float())
    forked = flash_arguments(given, state_dtype)
    kept, offsets = torch.full_like(final, float("nan")), torch.tensor([48, 0, 0, 128]).cuda()
    vllm.flashkda_fwd(*forked[:7], None, *forked[7:], kept, offsets)
    given.check(forked[6], forked[11].float())
    for n, count in enumerate(offsets.tolist()):
        if count == 0:
            assert kept[n].isnan().all()
        else:
            assert off(kept[n], given.expected[n][1][count]) <= 2 * LIMITS["bf16"]


def test_no_worse_than_flash_kda():
    """That of vLLM."""
    pytest.importorskip("vllm._flashkda_C")
    op = torch.ops._flashkda_C
    given = prompts(-5.0, heads=HV)
    ours, theirs = flash_arguments(given), flash_arguments(given)
    vllm.flashkda_fwd(*ours[:7], None, *ours[7:])
    size = op.get_workspace_size(TOTAL, HV, N)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    op.fwd(*theirs[:7], workspace, *theirs[7:])
    exact = np.concatenate([outputs for outputs, _ in given.expected])
    assert off(ours[6][0], exact) <= off(theirs[6][0], exact)


# --- SGLang


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("lower_bound", BOUNDS)
def test_sglang(state_dtype, lower_bound):
    given = prompts(lower_bound)
    given.h0 = given.h0.to(DTYPES[state_dtype]).float()
    pool = torch.randn(8, HV, V, K, device="cuda").to(DTYPES[state_dtype])
    slots = [3, 6, 0, 5]
    pool[slots] = given.h0.to(pool.dtype)
    before = pool.clone()
    tracked = torch.full((N, HV, V, K), float("nan"), device="cuda")
    o, h = sglang.chunk_kda(
        **given.named(a="g", b="beta"), initial_state=pool, initial_state_indices=indices(*slots),
        use_qk_l2norm_in_kernel=True, cu_seqlens=given.bounds(), dt_bias=given.dt_bias,
        A_log=given.A_log.view(1, 1, HV, 1), lower_bound=lower_bound, beta_is_raw=True,
        output_intermediate_states=True, track_state=tracked, track_chunk_idx=indices(-1, -1, 0, 2),
    )  # fmt: skip
    given.check(o, pool[slots].float())
    assert torch.equal(pool[[1, 2, 4, 7]], before[[1, 2, 4, 7]])
    assert torch.equal(tracked[2], given.h0[2])
    assert off(tracked[3], given.expected[3][1][128]) <= 2 * LIMITS["bf16"]
    assert torch.equal(h[0, 2 + 2].float(), tracked[3])


def test_sglang_padding():
    given = prompts(-5.0)
    pool = given.h0.clone()
    o = sglang.chunk_kda(
        **given.named(a="g", b="beta"), initial_state=pool,
        initial_state_indices=indices(0, 1, 2, -1), use_qk_l2norm_in_kernel=True,
        cu_seqlens=given.bounds(), A_log=given.A_log, dt_bias=given.dt_bias, lower_bound=-5.0,
        beta_is_raw=True,
    )  # fmt: skip
    assert not o[0, SPANS[3] :].any() and torch.equal(pool[3], given.h0[3])
    assert off(o[0, : SPANS[1]], given.expected[0][0]) <= LIMITS["bf16"]
