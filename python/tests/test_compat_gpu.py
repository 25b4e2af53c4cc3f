"""The adapters on a GPU, with torch: against the recurrence in float64, and against FLA itself.

Tolerance.  No number is guessed.  The same formula is computed on the same data in the precision of
the kernel (recurrence.chunks() for a prefill, recurrence.tokens() in float32 for a decode, results
rounded to the dtype they are stored in); its worst error, doubled, is what a result may be off by,
plus 1e-6 of the largest value.  A value that is not finite where the reference is fails.  FLA is
another such computation: with twice its worst error we have to be content as well.

Gates whose median forgets within a few tokens hide errors between chunks, so the distributions here
include heads that never decay, correlated keys and decays that underflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import recurrence

from cubinery import functional
from cubinery.compat import (
    causal_conv1d, fla, flashinfer, sglang, tensorrt_llm, tokenspeed, vllm,
)  # fmt: skip

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
H, HV, K, V = 2, 4, 128, 128
TOKENS = 197  # several chunks, the last one not whole
LENGTHS = (64, 0, 1, 132)
# name, correlation of the keys, dtype
DISTRIBUTIONS = [
    ("strong", 0.0, "f16"),
    ("qwen", 0.0, "bf16"),
    ("undecayed", 0.0, "bf16"),
    ("init", 0.0, "bf16"),
    ("init", 0.5, "bf16"),
    ("init", 0.9, "bf16"),
    ("init", 0.99, "bf16"),
    ("extreme", 0.0, "bf16"),
]
IDS = [f"{name}-{rho}" for name, rho, _ in DISTRIBUTIONS]


def on_gpu(array: np.ndarray, dtype: str) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).to("cuda", DTYPES[dtype])


def on_host(tensor: Any) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def log_decays(random: np.random.Generator, gates: str, shape: tuple[int, ...]) -> np.ndarray:
    """[.., heads], natural logarithms."""
    normal = random.standard_normal(shape)
    if gates == "strong":
        return -random.uniform(0, 1, shape)
    if gates == "qwen":  # a quarter of the heads keeps everything
        still = np.arange(shape[-1]) % 4 == 0
        return np.where(still, 0, -recurrence.softplus(-normal) / 16)
    if gates == "init":
        step = np.exp(random.uniform(np.log(1e-3), np.log(0.1), shape[-1]))
        bias = np.log(np.expm1(step))
        return -random.uniform(1, 16, shape[-1]) * recurrence.softplus(normal + bias)
    return np.zeros(shape) if gates == "undecayed" else -random.uniform(31, 69, shape)


@dataclass
class Case:
    """Tensors of FLA's prefill functions, and the host's copy of their exact values."""

    tensors: dict[str, Any]  # q, k, v, g, beta: [B, T, ..]
    h0: Any  # [N, HV, K, V] or None
    scale: float | None
    dtype: str
    cu_seqlens: Any  # or None

    def arguments(self) -> dict[str, Any]:
        return {
            **self.tensors,
            "scale": self.scale,
            "initial_state": self.h0,
            "output_final_state": True,
            "cu_seqlens": self.cu_seqlens,
        }

    def sequences(self) -> list[tuple[np.ndarray, ...]]:
        """q, k, v, g, beta of each, [T, ..]."""
        host = [on_host(tensor) for tensor in self.tensors.values()]
        if self.cu_seqlens is None:
            return [tuple(x[n] for x in host) for n in range(len(host[0]))]
        bounds = self.cu_seqlens.tolist()
        return [tuple(x[0, i:j] for x in host) for i, j in zip(bounds, bounds[1:])]


def make_case(
    gates: str, rho: float, dtype: str, packed: bool, seed: int = 1, raw: bool = False
) -> Case:
    """`raw`: q and k of length about sqrt(K), to be normalised by the kernel."""
    print(f"case {gates}, rho {rho}, {dtype}, packed {packed}, seed {seed}")
    random = np.random.default_rng(seed)
    batch, tokens = (1, sum(LENGTHS)) if packed else (2, TOKENS)
    common = random.standard_normal((H, K))
    q = random.standard_normal((batch, tokens, H, K))
    k = rho * common + np.sqrt(1 - rho**2) * random.standard_normal(q.shape)
    v = random.standard_normal((batch, tokens, HV, V))
    beta = recurrence.sigmoid(random.standard_normal((batch, tokens, HV)))
    if gates == "strong":
        q, k, beta = 0.1 * q, 0.1 * k, random.uniform(0, 0.5, beta.shape)
    elif not raw:
        q, k = recurrence.normalised(q), recurrence.normalised(k)
    arrays = {"q": q, "k": k, "v": v}
    tensors = {name: on_gpu(array, dtype) for name, array in arrays.items()}
    tensors["g"] = on_gpu(log_decays(random, gates, beta.shape), "f32")
    tensors["beta"] = on_gpu(beta, "f32")
    count = len(LENGTHS) if packed else batch
    h0 = None if gates == "strong" else on_gpu(random.standard_normal((count, HV, K, V)), "f32")
    bounds = torch.tensor(np.cumsum((0, *LENGTHS)), device="cuda") if packed else None
    return Case(tensors, h0, 1.0 if gates == "strong" else None, dtype, bounds)


MODES = {
    "A_log": None,
    "dt_bias": None,
    "gate_mode": "log",
    "beta_mode": "given",
    "use_qk_l2norm": False,
    "scale": None,
}
COMPUTED = {**MODES, "gate_mode": "computed", "beta_mode": "logit", "use_qk_l2norm": True}


@dataclass
class Reference:
    """Of each sequence o [T, HV, V] and final state [HV, K, V]: exact; as naive code gets them."""

    exact: list[tuple[np.ndarray, np.ndarray]]
    naive: list[tuple[np.ndarray, np.ndarray]]

    def stacked(self, which: int) -> tuple[np.ndarray, np.ndarray]:
        """(exact, naive) of all outputs (0) or final states (1), sequence after sequence."""
        join = np.concatenate if which == 0 else np.stack
        return tuple(join([pair[which] for pair in pairs]) for pairs in (self.exact, self.naive))


def reference(case: Case, chunked: bool, **modes: Any) -> Reference:
    result = Reference([], [])
    rounded = recurrence.rounding(case.dtype)
    modes = {**MODES, "scale": case.scale, **modes}
    for n, arrays in enumerate(case.sequences()):
        start = np.zeros((HV, K, V), np.float32) if case.h0 is None else on_host(case.h0[n])
        exact = recurrence.sequence_operands(np.float64, *arrays, **modes)
        naive = recurrence.sequence_operands(np.float32, *arrays, **modes)
        o, states = recurrence.tokens(*exact, np.float64(start))
        result.exact.append((o, states[-1] if len(states) else np.float64(start)))
        if chunked:
            o, state = recurrence.chunks(*naive, start, dtype=case.dtype)
        else:
            o, states = recurrence.tokens(*naive, start)
            state = states[-1] if len(states) else start
        result.naive.append((rounded(o), state))
    return result


def worst(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference; infinite where one side is not finite."""
    assert np.isfinite(expected).all()
    difference = np.abs(np.float64(actual) - expected)
    return float(np.where(np.isfinite(difference), difference, np.inf).max(initial=0))


def within(name: str, actual: np.ndarray, expected: np.ndarray, error: float) -> float:
    """Checks against twice the `error` of another computation; returns actual's own error."""
    assert actual.shape == expected.shape, name
    budget = 2 * error + 1e-6 * np.abs(expected).max(initial=0)
    off = worst(actual, expected)
    at = np.unravel_index(np.argmax(np.abs(actual - expected)), actual.shape) if off else ()
    assert (
        np.isfinite(error) and off <= budget
    ), f"{name}: {off} at {at}, {100 * off / budget:.0f} % of the budget (naive error {error})"
    return off


def check(case: Case, o: Any, final: Any, expected: Reference) -> None:
    """o [B, T, HV, V] and final states [N, HV, K, V] of a prefill."""
    assert o.dtype == DTYPES[case.dtype] and final.dtype == torch.float32
    for which, tensor in enumerate((o.flatten(0, 1), final)):
        exact, naive = expected.stacked(which)
        within(("o", "state")[which], on_host(tensor), exact, worst(naive, exact))


# --- FLA


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("gates, rho, dtype", DISTRIBUTIONS, ids=IDS)
def test_fla_chunk(gates, rho, dtype, packed):
    case = make_case(gates, rho, dtype, packed)
    with torch.no_grad():
        o, final = fla.chunk_gated_delta_rule(**case.arguments())
    check(case, o, final, reference(case, chunked=True))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_fla_chunk_computes_norms_and_gates(dtype):
    case = make_case("qwen", 0.5, dtype, packed=True, raw=True)
    random = np.random.default_rng(2)
    raw = random.standard_normal(tuple(case.tensors["g"].shape))
    case.tensors.update(g=on_gpu(raw, "f32"), beta=on_gpu(raw[..., ::-1], "f32"))
    parameters = {
        "A_log": on_gpu(np.log(random.uniform(1, 16, HV)), "f32"),
        "dt_bias": on_gpu(random.standard_normal(HV), "f32"),
    }
    o, final = fla.chunk_gated_delta_rule(
        **case.arguments(), **parameters, use_gate_in_kernel=True, use_qk_l2norm_in_kernel=True,
        use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True,
    )  # fmt: skip
    modes = {name: on_host(tensor) for name, tensor in parameters.items()}
    expected = reference(
        case, chunked=True, gate_mode="computed", beta_mode="doubled_logit", use_qk_l2norm=True,
        **modes,
    )  # fmt: skip
    check(case, o, final, expected)


@pytest.mark.parametrize("initial", ["bf16", "f16"])
def test_fla_narrow_initial_states_end_in_f32(initial):
    case = make_case("qwen", 0.0, "bf16", packed=False)
    case.h0 = case.h0.to(DTYPES[initial])
    before = case.h0.clone()
    o, final = fla.chunk_gated_delta_rule(**case.arguments())
    check(case, o, final, reference(case, chunked=True))
    assert torch.equal(case.h0, before)


def test_fla_takes_tokens_innermost():
    """As Hugging Face's models hand over what their convolution returns."""
    case = make_case("qwen", 0.0, "bf16", packed=False)
    o, final = fla.chunk_gated_delta_rule(**case.arguments())
    for name in ("q", "k", "v"):
        turned = case.tensors[name].movedim(1, -1).contiguous().movedim(-1, 1)
        assert turned.stride(-1) == TOKENS
        case.tensors[name] = turned
    turned_o, turned_final = fla.chunk_gated_delta_rule(**case.arguments())
    assert torch.equal(o, turned_o) and torch.equal(final, turned_final)


@pytest.mark.parametrize("gates, rho, dtype", DISTRIBUTIONS, ids=IDS)
def test_fla_recurrent(gates, rho, dtype):
    """Each token a decode, on from the state that the one before it left; then all at once."""
    case = make_case(gates, rho, dtype, packed=False)
    steps, state = [], case.h0
    for t in range(8):
        token = {name: tensor[:, t : t + 1] for name, tensor in case.tensors.items()}
        o, state = fla.fused_recurrent_gated_delta_rule(
            **token, scale=case.scale, initial_state=state, output_final_state=True
        )
        steps.append(o)
    case.tensors = {name: tensor[:, :8] for name, tensor in case.tensors.items()}
    check(case, torch.cat(steps, 1), state, reference(case, chunked=False))
    o, final = fla.fused_recurrent_gated_delta_rule(**case.arguments())
    check(case, o, final, reference(case, chunked=True))


@pytest.mark.parametrize("gates, rho, dtype", DISTRIBUTIONS, ids=IDS)
def test_no_worse_than_fla(gates, rho, dtype):
    theirs = pytest.importorskip("fla.ops.gated_delta_rule")
    case = make_case(gates, rho, dtype, packed=False)
    expected = reference(case, chunked=True)
    with torch.no_grad():
        ours = fla.chunk_gated_delta_rule(**case.arguments())
        others = theirs.chunk_gated_delta_rule(**case.arguments())
    for which, name in enumerate(("o", "state")):
        exact, _ = expected.stacked(which)
        mine, other = (
            on_host(x[which].flatten(0, 1) if which == 0 else x[which]) for x in (ours, others)
        )
        assert ours[which].dtype == others[which].dtype
        theirs_off = worst(other, exact)
        off = within(name, mine, exact, theirs_off)
        print(f"{name}: worst error {off:.3g}, FLA's {theirs_off:.3g}")


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_registered_with_fla(monkeypatch, packed):
    theirs = pytest.importorskip("fla.ops.gated_delta_rule")
    calls = []
    prefill = functional.gdn_prefill

    def counted(*args, **kwargs):
        calls.append(1)
        return prefill(*args, **kwargs)

    monkeypatch.setattr(functional, "gdn_prefill", counted)
    case = make_case("qwen", 0.0, "bf16", packed)
    expected = reference(case, chunked=True)
    with torch.no_grad():
        theirs.chunk_gated_delta_rule(**case.arguments())
    assert not calls
    fla.register()
    try:
        for guard in (torch.no_grad, torch.inference_mode):
            with guard():
                o, final = theirs.chunk_gated_delta_rule(**case.arguments())
            check(case, o, final, expected)
        assert len(calls) == 2
        case.tensors["v"].requires_grad_()
        o, _ = theirs.chunk_gated_delta_rule(**case.arguments())
        assert o.requires_grad and len(calls) == 2  # training stays FLA's
    finally:
        fla.unregister()
    with torch.no_grad():
        theirs.chunk_gated_delta_rule(**case.arguments())
    assert len(calls) == 2


# --- FlashInfer's, vLLM's and SGLang's prefill


@pytest.mark.parametrize("gates, rho, dtype", DISTRIBUTIONS, ids=IDS)
def test_prefill_of_the_others(gates, rho, dtype):
    case = make_case(gates, rho, dtype, packed=True)
    if case.h0 is None:
        case.h0 = torch.zeros(len(LENGTHS), HV, K, V, device="cuda")
    expected = reference(case, chunked=True)
    options = {"scale": case.scale, "cu_seqlens": case.cu_seqlens}
    turned = case.h0.mT.contiguous()  # [N, HV, V, K]
    slots = torch.tensor([5, 2, 0, 3], device="cuda")
    pool = torch.full((6, HV, V, K), float("nan"), device="cuda")
    pool[slots] = turned

    o, final = vllm.chunk_gated_delta_rule(
        **case.tensors, initial_state=turned, output_final_state=True, **options
    )
    check(case, o, final.mT, expected)

    sglang_pool = pool.clone()
    o, _, _ = sglang.chunk_gated_delta_rule(
        **case.tensors, initial_state=sglang_pool, initial_state_indices=slots, **options
    )
    check(case, o, sglang_pool[slots].mT, expected)

    packed = {name: tensor[0] for name, tensor in case.tensors.items()}
    alpha = packed.pop("g").exp()
    # What f32 keeps of alpha is what there is: its logarithm is the g to compare with.
    case.tensors["g"] = torch.log(alpha.double()).clamp(min=-128).float()[None]
    starts = torch.tensor([0, 1, 1, 1, 3], device="cuda")
    checkpoints = torch.full((3, HV, V, K), float("nan"), device="cuda")
    o, final = flashinfer.chunk_gated_delta_rule(
        **packed, g=alpha, initial_state=pool, output_final_state=True, output_state=pool,
        state_indices=slots, state_checkpoints=checkpoints, checkpoint_cu_starts=starts,
        checkpoint_every_n_tokens=64, **options,
    )  # fmt: skip
    assert final is pool
    check(case, o[None], pool[slots].mT, reference(case, chunked=True))
    assert torch.equal(checkpoints[0], pool[slots[0]])  # the first sequence ends at its checkpoint


def check_last_sequence_after(case: Case, tokens: int, state: Any) -> None:
    """A state [HV, V, K], of the last sequence of LENGTHS after so many tokens."""
    first = sum(LENGTHS[:-1])
    part = {name: x[:, first : first + tokens] for name, x in case.tensors.items()}
    start = None if case.h0 is None else case.h0[-1:]
    bounds = torch.tensor([0, tokens], device="cuda")
    exact, naive = reference(Case(part, start, None, case.dtype, bounds), chunked=True).stacked(1)
    within(f"state after {tokens}", on_host(state.mT)[None], exact, worst(naive, exact))


@pytest.mark.parametrize("gates, rho, dtype", DISTRIBUTIONS, ids=IDS)
def test_sglang_prefill_keeps_states_of_chunks(gates, rho, dtype):
    case = make_case(gates, rho, dtype, packed=True)
    case.scale = None
    if case.h0 is None:
        case.h0 = torch.zeros(len(LENGTHS), HV, K, V, device="cuda")
    turned, slots = case.h0.float().mT.contiguous(), torch.tensor([5, 2, 0, 3], device="cuda")
    expected, ends = reference(case, chunked=True), []
    for update in (True, False):
        pool = torch.full((6, HV, V, K), float("nan"), device="cuda")
        pool[slots] = turned
        o, _, h = sglang.chunk_gated_delta_rule(
            **case.tensors, initial_state=pool, initial_state_indices=slots,
            cu_seqlens=case.cu_seqlens, inplace_update=update, output_h=True,
        )  # fmt: skip
        ends.append(pool[slots])
        check(case, o, ends[0].mT, expected)
        for row, n in ((0, 0), (1, 2), (2, 3)):  # before the first token of each
            assert torch.equal(h[0, row], turned[n])
        for row, tokens in ((3, 64), (4, 128)):
            check_last_sequence_after(case, tokens, h[0, row])
    assert torch.equal(ends[1], turned)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("initial", ["f32", "bf16"])
@pytest.mark.parametrize("gates, rho, dtype", DISTRIBUTIONS, ids=IDS)
def test_vllm_prefill_of_flashinfer(gates, rho, dtype, initial, wanted):
    case = make_case(gates, rho, dtype, packed=True)
    if case.h0 is None:
        case.h0 = torch.zeros(len(LENGTHS), HV, K, V, device="cuda")
    case.scale, case.h0 = None, case.h0.to(DTYPES[initial])
    turned = case.h0.mT.contiguous()
    before, expected = turned.clone(), reference(case, chunked=True)
    starts = torch.tensor([0, 1, 1, 1, 3], device="cuda")
    checkpoints = torch.full((3, HV, V, K), float("nan"), device="cuda")
    given = {**case.tensors, "initial_state": turned, "use_qk_l2norm_in_kernel": False}
    bounds = case.cu_seqlens.int()
    o, final = vllm.fi_chunk_gated_delta_rule(
        **given, output_final_state=wanted, cu_seqlens=bounds, state_checkpoints=checkpoints,
        checkpoint_cu_starts=starts, checkpoint_every_n_tokens=64,
    )  # fmt: skip
    plain, end = vllm.fi_chunk_gated_delta_rule(**given, output_final_state=True, cu_seqlens=bounds)
    check(case, o, final.mT if wanted else end.mT, expected)
    check(case, plain, end.mT, expected)
    assert wanted or final is None
    assert torch.equal(turned, before)
    for row, tokens in ((1, 64), (2, 128)):
        check_last_sequence_after(case, tokens, checkpoints[row])
    if wanted:
        assert torch.equal(checkpoints[0], final[0])


# --- decode


@dataclass
class Step:
    """One token of N requests on a pool [slots, HV, V, K], with gates as logits."""

    x: dict[str, Any]  # q, k [N, H, K], v [N, HV, V], a, b [N, HV]
    parameters: dict[str, Any]  # A_log, dt_bias
    pool: Any
    dtype: str
    state_dtype: str
    modes: dict[str, Any] = field(default_factory=dict)  # that differ from COMPUTED

    def mixed(self) -> Any:
        return torch.cat([self.x[name].flatten(1) for name in ("q", "k", "v")], 1)

    def rows(self, axis: int) -> dict[str, Any]:
        return {name: tensor.unsqueeze(axis) for name, tensor in self.x.items()}

    def check(self, o: Any, pool: Any, slots: list[int | None]) -> None:
        """o [N, HV, V]; a slot of None is padding whose output is zero."""
        parameters = {name: on_host(tensor) for name, tensor in self.parameters.items()}
        modes = {**COMPUTED, **parameters, **self.modes}
        before, after, o = on_host(self.pool), on_host(pool), on_host(o)
        store = recurrence.rounding(self.state_dtype)
        for n, slot in enumerate(slots):
            if slot is None:
                assert not o[n].any()
                continue
            arrays = [on_host(self.x[name][n])[None] for name in ("q", "k", "v", "a", "b")]
            state = np.swapaxes(before[slot], 1, 2)
            exact_o, exact = recurrence.tokens(
                *recurrence.sequence_operands(np.float64, *arrays, **modes), np.float64(state)
            )
            naive_o, naive = recurrence.tokens(
                *recurrence.sequence_operands(np.float32, *arrays, **modes), state
            )
            naive_o = recurrence.rounding(self.dtype)(naive_o)
            within("o", o[n], exact_o[0], worst(naive_o, exact_o))
            new = np.swapaxes(after[slot], 1, 2)
            within("state", new, exact[0], worst(store(naive), exact))
        used = [slot for slot in slots if slot is not None]
        others = [slot for slot in range(len(before)) if slot not in used]
        np.testing.assert_array_equal(after[others], before[others])


def make_step(state_dtype: str, dtype: str = "bf16", requests: int = 5) -> Step:
    random = np.random.default_rng(11)
    shapes = {"q": (H, K), "k": (H, K), "v": (HV, V), "a": (HV,), "b": (HV,)}
    x = {
        name: on_gpu(random.standard_normal((requests, *shape)), dtype)
        for name, shape in shapes.items()
    }
    parameters = {
        "A_log": on_gpu(np.log(random.uniform(1, 16, HV)), "f32"),
        "dt_bias": on_gpu(random.standard_normal(HV), "f32"),
    }
    pool = on_gpu(random.standard_normal((8, HV, V, K)), state_dtype)
    return Step(x, parameters, pool, dtype, state_dtype)


def indices(*slots: int) -> Any:
    return torch.tensor(slots, device="cuda", dtype=torch.int32)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_flashinfer_decode(state_dtype):
    step = make_step(state_dtype)
    pool, x = step.pool.clone(), step.rows(1)
    o, returned = flashinfer.gated_delta_rule_decode_pretranspose(
        **x, **step.parameters, state=None, initial_state=pool,
        initial_state_indices=indices(3, 1, -1, 7, 2),
    )  # fmt: skip
    assert returned is pool
    step.check(o[:, 0], pool, [3, 1, None if state_dtype == "f32" else 0, 7, 2])
    dense = step.pool[:5].clone()
    o, _ = flashinfer.gated_delta_rule_decode_pretranspose(**x, **step.parameters, state=dense)
    step.check(o[:, 0], torch.cat([dense, step.pool[5:]]), [0, 1, 2, 3, 4])
    turned = step.pool[:5].mT.contiguous()
    o, _ = flashinfer.gated_delta_rule_decode(**x, **step.parameters, state=turned)
    step.check(o[:, 0], torch.cat([turned.mT, step.pool[5:]]), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("engine, pad", [("vllm", 0), ("vllm", -1), ("sglang", -1)])
def test_engines_decode(engine, pad, state_dtype):
    step = make_step(state_dtype)
    slots = indices(3, 1, pad, 7, 2)
    meant = [3, 1, None, 7, 2]
    cu_seqlens = torch.arange(6, device="cuda", dtype=torch.int32)
    module, option = (vllm, {"pad_slot_id": pad}) if engine == "vllm" else (sglang, {})
    common = {
        **step.rows(0),
        **step.parameters,
        "cu_seqlens": cu_seqlens,
        "use_qk_l2norm_in_kernel": True,
    }
    pool = step.pool.clone()
    if engine == "vllm":
        o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
            **common, initial_state=pool, ssm_state_indices=slots, **option
        )
    else:
        o = sglang.fused_sigmoid_gating_delta_rule_update(
            **common, softplus_beta=1.0, softplus_threshold=20.0, initial_state_source=pool,
            initial_state_indices=slots,
        )  # fmt: skip
    step.check(o[0], pool, meant)
    if engine == "vllm":
        written, beside = indices(4, 5, 4, 6, pad), step.pool.clone()
        again, _ = vllm.fused_sigmoid_gating_delta_rule_update(
            **common, initial_state=beside, ssm_state_indices=slots,
            ssm_state_indices_output=written, **option,
        )  # fmt: skip
        assert torch.equal(again, o)
        assert torch.equal(beside[[4, 5, 6]], pool[[3, 1, 7]])
        untouched(beside, step.pool, {4, 5, 6})

    pool, out = step.pool.clone(), torch.empty(5, 1, HV, V, device="cuda", dtype=torch.bfloat16)
    module.fused_recurrent_gated_delta_rule_packed_decode(
        step.mixed(), step.x["a"], step.x["b"], *step.parameters.values(), K**-0.5, pool, out,
        slots, True, **option,
    )  # fmt: skip
    step.check(out[:, 0], pool, meant)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_tensorrt_llm_has_the_bits_of_sglang(state_dtype):
    step = make_step(state_dtype)
    given = {
        **{**step.rows(0), **step.parameters, "softplus_beta": 1.0, "softplus_threshold": 20.0},
        **{"initial_state_indices": indices(3, 1, -1, 7, 2), "use_qk_l2norm_in_kernel": True},
        "cu_seqlens": torch.arange(6, device="cuda"),
    }
    pools = step.pool.clone(), step.pool.clone()
    expected = sglang.fused_sigmoid_gating_delta_rule_update(**given, initial_state_source=pools[0])
    out = torch.full_like(expected, float("nan"))
    o = tensorrt_llm.fused_sigmoid_gating_delta_rule_update(
        **given, initial_state_source=pools[1], output=out
    )
    assert o is out and torch.equal(o, expected) and torch.equal(*pools)

    case = make_case("init", 0.5, "bf16", packed=True)
    given = {**case.tensors, "cu_seqlens": case.cu_seqlens}
    given["initial_state_indices"] = torch.tensor([5, 2, 0, 3], device="cuda")
    expected, _, _ = sglang.chunk_gated_delta_rule(**given, initial_state=pools[0])
    o, final = tensorrt_llm.chunk_gated_delta_rule(
        **given, initial_state=pools[1], inplace_indexed_state_update=True
    )
    assert final is None and torch.equal(o, expected) and torch.equal(*pools)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_tokenspeed_decode(state_dtype):
    step = make_step(state_dtype)
    given = {**step.rows(1), **step.parameters, "initial_state_indices": indices(3, 1, -1, 7, 2)}
    pool, beside = step.pool.clone(), step.pool.clone()
    o = tokenspeed.gdn_decode_step(**given, initial_state=pool)
    step.check(o[:, 0], pool, [3, 1, None, 7, 2])
    again = tokenspeed.gdn_decode_step(
        **given, initial_state=beside, output_state_indices=indices(4, 5, 4, 6, -1)
    )
    assert torch.equal(again, o) and torch.equal(beside[[4, 5, 6]], pool[[3, 1, 7]])
    untouched(beside, step.pool, {4, 5, 6})


# --- several tokens per request


@dataclass
class Drafts:
    """T tokens of N requests on a pool [slots, HV, V, K], with gates as logits."""

    x: dict[str, Any]  # q, k [N, T, H, K], v [N, T, HV, V], a, b [N, T, HV]
    parameters: dict[str, Any]  # A_log, dt_bias
    pool: Any
    dtype: str
    state_dtype: str
    modes: dict[str, Any] = field(default_factory=dict)  # that differ from COMPUTED

    def packed(self, lengths: tuple[int, ...]) -> dict[str, Any]:
        """The first tokens of each request behind each other, with cu_seqlens."""
        x = {
            name: torch.cat([tensor[n, :length] for n, length in enumerate(lengths)])[None]
            for name, tensor in self.x.items()
        }
        return {**x, "cu_seqlens": indices(*np.cumsum((0, *lengths)))}

    def expected(
        self, n: int, length: int, start: Any, parents: list[int] | None = None
    ) -> dict[str, tuple[Any, Any]]:
        """Of request n on the state `start` [HV, V, K]: exact and naive outputs [T, HV, V] and
        states after each token [T, HV, V, K].  parents None: a chain."""
        parameters = {name: on_host(tensor) for name, tensor in self.parameters.items()}
        modes = {**COMPUTED, **parameters, **self.modes}
        arrays = [on_host(self.x[name][n, :length]) for name in ("q", "k", "v", "a", "b")]
        found = {}
        for real in (np.float64, np.float32):
            state = real(np.swapaxes(on_host(start), 1, 2))
            operands = recurrence.sequence_operands(real, *arrays, **modes)
            tree = range(-1, length - 1) if parents is None else parents
            o, states = recurrence.paths(*operands, state, list(tree))
            found[real] = (o, np.swapaxes(states, 2, 3))
        naive_o, naive = found[np.float32]
        return {
            "o": (found[np.float64][0], recurrence.rounding(self.dtype)(naive_o)),
            "states": (found[np.float64][1], recurrence.rounding(self.state_dtype)(naive)),
        }

    def check(
        self, n: int, start: Any, o: Any, kept: dict[int, Any], parents: list[int] | None = None
    ) -> None:
        """o [T, HV, V], and the states after tokens t: all of request n, started from `start`."""
        expected = self.expected(n, len(o), start, parents)
        exact, naive = expected["o"]
        within(f"o of {n}", on_host(o), exact, worst(naive, exact))
        exact, naive = expected["states"]
        for t, state in kept.items():
            error = worst(naive[t], exact[t])
            within(f"state of {n} after {t}", on_host(state), exact[t], error)


def make_drafts(state_dtype: str, requests: int = 5, tokens: int = 4, slots: int = 32) -> Drafts:
    random = np.random.default_rng(12)
    shapes = {"q": (H, K), "k": (H, K), "v": (HV, V), "a": (HV,), "b": (HV,)}
    x = {
        name: on_gpu(random.standard_normal((requests, tokens, *shape)), "bf16")
        for name, shape in shapes.items()
    }
    parameters = {
        "A_log": on_gpu(np.log(random.uniform(1, 16, HV)), "f32"),
        "dt_bias": on_gpu(random.standard_normal(HV), "f32"),
    }
    pool = on_gpu(random.standard_normal((slots, HV, V, K)), state_dtype)
    return Drafts(x, parameters, pool, "bf16", state_dtype)


def nan_buffer(rows: int, steps: int, state_dtype: str, wider: int = 0) -> Any:
    """[rows, steps, HV, V, K], rows further apart by `wider` steps."""
    shape = (rows, steps + wider, HV, V, K)
    return torch.full(shape, float("nan"), device="cuda", dtype=DTYPES[state_dtype])[:, :steps]


def untouched(after: Any, before: Any, but: set[int]) -> None:
    others = [slot for slot in range(len(before)) if slot not in but]
    assert torch.equal(after[others], before[others])


@pytest.mark.parametrize("tokens", [2, 4, 16])
@pytest.mark.parametrize("wider", [0, 2])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_flashinfer_several_tokens(state_dtype, update, wider, tokens):
    drafts = make_drafts(state_dtype, tokens=tokens)
    pool, read, write = drafts.pool.clone(), (3, 1, -1, 7, 2), (4, 1, 9, -1, 5)
    buffer = nan_buffer(6, tokens, state_dtype, wider)
    run, state = flashinfer.gated_delta_rule_mtp, {}
    if state_dtype == "bf16":
        run, state = flashinfer.gated_delta_rule_decode_pretranspose, {"state": None}
    o, returned = run(
        **drafts.x, **drafts.parameters, **state, initial_state=pool,
        initial_state_indices=indices(*read), output_state_indices=indices(*write).long(),
        intermediate_states_buffer=buffer, disable_state_update=not update,
    )  # fmt: skip
    assert returned is pool
    written = set()
    for n, slot in enumerate(read):
        if slot < 0 and state_dtype == "f32":
            assert not o[n].any() and buffer[n].isnan().all()
            continue
        start = drafts.pool[max(slot, 0)]
        drafts.check(n, start, o[n], {t: buffer[n, t] for t in range(tokens)})
        target = write[n] if state_dtype == "f32" else max(write[n], 0)
        if update and target >= 0:
            written.add(target)
            drafts.check(n, start, o[n], {tokens - 1: pool[target]})
    assert buffer[5].isnan().all()
    untouched(pool, drafts.pool, written)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_flashinfer_several_tokens_on_dense_states(state_dtype):
    drafts = make_drafts(state_dtype)
    state, buffer = drafts.pool[:5].clone(), nan_buffer(5, 4, state_dtype, 1)
    o, _ = flashinfer.gated_delta_rule_decode_pretranspose(
        **drafts.x, **drafts.parameters, state=state, intermediate_states_buffer=buffer
    )
    for n in range(5):
        drafts.check(n, drafts.pool[n], o[n], {t: buffer[n, t] for t in range(4)})
        drafts.check(n, drafts.pool[n], o[n], {3: state[n]})


def test_flashinfer_step_slots():
    drafts = make_drafts("f32")
    pool, read = drafts.pool.clone(), (3, 1, -1, 7, 2)
    slots = np.arange(8, 28).reshape(5, 4)
    slots[0, 0], slots[3, 1] = 3, -1  # where it started from; dropped
    o, _ = flashinfer.gated_delta_rule_mtp(
        **drafts.x, **drafts.parameters, initial_state=pool, initial_state_indices=indices(*read),
        ssm_state_indices=torch.tensor(slots, device="cuda", dtype=torch.int32),
        disable_state_update=False,
    )  # fmt: skip
    assert not o[2].any()
    written = set()
    for n in (0, 1, 3, 4):
        kept = {t: pool[slot] for t, slot in enumerate(slots[n].tolist()) if slot >= 0}
        written |= {slot for slot in slots[n].tolist() if slot >= 0}
        drafts.check(n, drafts.pool[read[n]], o[n], kept)
    untouched(pool, drafts.pool, written)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_several_tokens_no_worse_than_flashinfer(state_dtype):
    theirs = pytest.importorskip("flashinfer.gdn_decode")
    pytest.importorskip("cutlass.cute")  # what its kernels of several tokens are made of
    drafts = make_drafts(state_dtype)
    read = (3, 1, 4, 7, 2)
    found = []
    for module in (flashinfer, theirs):
        pool, buffer = drafts.pool.clone(), nan_buffer(5, 4, state_dtype)
        o, _ = module.gated_delta_rule_decode_pretranspose(
            **drafts.x, **drafts.parameters, state=None, initial_state=pool,
            initial_state_indices=indices(*read), intermediate_states_buffer=buffer,
            disable_state_update=False,
        )  # fmt: skip
        found.append((o, buffer, pool[list(read)]))
    for n, slot in enumerate(read):
        expected = drafts.expected(n, 4, drafts.pool[slot])
        exact = (expected["o"][0], expected["states"][0], expected["states"][0][-1])
        for name, ours, other, of in zip(("o", "buffer", "pool"), *found, exact):
            within(name, on_host(ours[n]), of, worst(on_host(other[n]), of))


DRAFT_LENGTHS = (4, 0, 2, 1, 4, 3)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("pad", [0, -1])
def test_vllm_draft_tokens(pad, state_dtype):
    """The fifth request is padding, the last one drops its second state."""
    drafts = make_drafts(state_dtype, requests=6)
    pool, x = drafts.pool.clone(), drafts.packed(DRAFT_LENGTHS)
    slots = np.arange(1, 25).reshape(6, 4)
    slots[4], slots[5, 1] = pad, pad
    accepted = (3, 2, 1, 0, 1, 4)
    o, final = vllm.fused_sigmoid_gating_delta_rule_update(
        **x, **drafts.parameters, initial_state=pool, pad_slot_id=pad,
        ssm_state_indices=torch.tensor(slots, device="cuda", dtype=torch.int32),
        num_accepted_tokens=indices(*accepted), use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    assert final is pool
    bounds, written = x["cu_seqlens"].tolist(), set()
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        if n == 4:
            assert not o[0, first:last].any()
            continue
        kept = {t: slots[n, t] for t in range(last - first) if slots[n, t] != pad}
        written |= set(kept.values())
        start = drafts.pool[slots[n, max(accepted[n], 1) - 1]]
        drafts.check(n, start, o[0, first:last], {t: pool[slot] for t, slot in kept.items()})
    untouched(pool, drafts.pool, written)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_vllm_draft_tokens_to_other_slots(state_dtype):
    drafts = make_drafts(state_dtype, requests=6, slots=64)
    x, slots = drafts.packed(DRAFT_LENGTHS), np.arange(1, 25).reshape(6, 4)
    options = {
        **{**x, **drafts.parameters, "use_qk_l2norm_in_kernel": True},
        "ssm_state_indices": torch.tensor(slots, device="cuda", dtype=torch.int32),
        "num_accepted_tokens": indices(3, 2, 1, 0, 1, 4),
    }
    pool, beside = drafts.pool.clone(), drafts.pool.clone()
    o, _ = vllm.fused_sigmoid_gating_delta_rule_update(**options, initial_state=pool)
    again, _ = vllm.fused_sigmoid_gating_delta_rule_update(
        **options, initial_state=beside,
        ssm_state_indices_output=torch.tensor(slots + 30, device="cuda"),
    )  # fmt: skip
    assert torch.equal(again, o)
    written = [
        int(slot) for row, length in zip(slots, DRAFT_LENGTHS, strict=True) for slot in row[:length]
    ]
    assert torch.equal(beside[[slot + 30 for slot in written]], pool[written])
    untouched(beside, drafts.pool, {slot + 30 for slot in written})


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("wider", [0, 2])
@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
def test_sglang_target_verify(state_dtype, wider, update):
    """The fifth request is padding, the last one has no row for its states."""
    drafts = make_drafts(state_dtype, requests=6)
    pool, x = drafts.pool.clone(), drafts.packed(DRAFT_LENGTHS)
    read, rows, buffer = (
        (3, 1, 8, 7, -1, 2),
        (2, 0, 1, 6, 3, -1),
        nan_buffer(8, 4, state_dtype, wider),
    )
    o = sglang.fused_sigmoid_gating_delta_rule_update(
        **x, **drafts.parameters, softplus_beta=1.0, softplus_threshold=20.0,
        initial_state_source=pool, initial_state_indices=indices(*read),
        use_qk_l2norm_in_kernel=True, disable_state_update=not update, cache_steps=4,
        intermediate_states_buffer=buffer, intermediate_state_indices=indices(*rows).long(),
    )  # fmt: skip
    bounds, written, last_rows = x["cu_seqlens"].tolist(), set(), {}
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        if read[n] < 0:
            assert not o[0, first:last].any()
            continue
        kept = {}
        if rows[n] >= 0:
            last_rows[rows[n]] = last - first
            kept = {t: buffer[rows[n], t] for t in range(last - first)}
        drafts.check(n, drafts.pool[read[n]], o[0, first:last], kept)
        if update and last > first:
            written.add(read[n])
            drafts.check(
                n, drafts.pool[read[n]], o[0, first:last], {last - first - 1: pool[read[n]]}
            )
    for row in range(len(buffer)):
        assert buffer[row, last_rows.get(row, 0) :].isnan().all()
    untouched(pool, drafts.pool, written)


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("packed", [False, True])
def test_sglang_trees_in_a_graph(packed, state_dtype):
    """A replay reads the trees of then.  The third request is padding."""
    drafts = make_drafts(state_dtype, tokens=6)
    pool, buffer, read = drafts.pool.clone(), nan_buffer(5, 6, state_dtype), (3, 1, -1, 7, 2)
    table = torch.zeros(7, 6, device="cuda", dtype=torch.int64)  # more rows than requests
    x = drafts.packed((6,) * 5) if packed else drafts.x

    def run():
        return sglang.fused_sigmoid_gating_delta_rule_update(
            **x, **drafts.parameters, softplus_beta=1.0, softplus_threshold=20.0,
            initial_state_source=pool, initial_state_indices=indices_of_read,
            use_qk_l2norm_in_kernel=True, disable_state_update=True, cache_steps=6,
            intermediate_states_buffer=buffer, intermediate_state_indices=rows,
            retrieve_parent_token=table,
        )  # fmt: skip

    indices_of_read, rows = indices(*read), torch.arange(5, device="cuda", dtype=torch.int32)
    run()  # kernels are loaded now
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = run()
    for tree in ([0, 0, 0, 1, 1, 3], [9, 0, 1, 2, 3, 4], [-7, 0, 1, 0, -1, 4]):
        table.copy_(torch.tensor([tree] * 7))
        graph.replay()
        torch.cuda.synchronize()
        assert table[0].tolist() == tree
        for n, outputs in enumerate(o.reshape(5, 6, HV, V)):
            if read[n] < 0:
                assert not outputs.any() and buffer[n].isnan().all()
                continue
            kept = {t: buffer[n, t] for t in range(6)}
            drafts.check(n, drafts.pool[read[n]], outputs, kept, [-1, *tree[1:]])
    assert torch.equal(pool, drafts.pool)


@pytest.mark.parametrize("engine", ["flashinfer", "vllm", "sglang", "tokenspeed"])
def test_draft_tokens_in_a_graph(engine):
    """What a replay reads are the indices and counts of then."""
    drafts = make_drafts("f32")
    pool, buffer = drafts.pool.clone(), nan_buffer(5, 4, "f32")
    read, accepted = indices(3, 1, 4, 7, 2), indices(1, 1, 1, 1, 1)
    table = torch.arange(1, 21, device="cuda", dtype=torch.int32).reshape(5, 4)

    def run():
        common = {**drafts.x, **drafts.parameters}
        if engine == "flashinfer":
            return flashinfer.gated_delta_rule_mtp(
                **common, initial_state=pool, initial_state_indices=read,
                intermediate_states_buffer=buffer, disable_state_update=True,
            )[0]  # fmt: skip
        if engine == "tokenspeed":
            return tokenspeed.gdn_decode_mtp(
                **common, initial_state=pool, initial_state_indices=read,
                intermediate_states_buffer=buffer,
            )  # fmt: skip
        if engine == "vllm":
            return vllm.fused_sigmoid_gating_delta_rule_update(
                **common, initial_state=pool, ssm_state_indices=table,
                num_accepted_tokens=accepted, use_qk_l2norm_in_kernel=True,
            )[0]  # fmt: skip
        return sglang.fused_sigmoid_gating_delta_rule_update(
            **common, softplus_beta=1.0, softplus_threshold=20.0, initial_state_source=pool,
            initial_state_indices=read, use_qk_l2norm_in_kernel=True, disable_state_update=True,
            intermediate_states_buffer=buffer,
            intermediate_state_indices=torch.arange(5, device="cuda", dtype=torch.int32),
        )  # fmt: skip

    run()  # kernels are loaded now
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = run()
    for starts in ((3, 1, 4, 7, 2), (9, 10, 11, 12, 13)):
        pool.copy_(drafts.pool)
        read.copy_(indices(*starts))
        accepted.copy_(indices(*(start % 4 + 1 for start in starts)))
        graph.replay()
        torch.cuda.synchronize()
        for n, start in enumerate(starts):
            if engine == "vllm":
                slots = table[n].tolist()
                start, kept = slots[start % 4], [pool[slot] for slot in slots]
            else:
                kept = list(buffer[n])
            drafts.check(n, drafts.pool[start], o[n], dict(enumerate(kept)))


# Causal convolutions, against torch's in f32.

CONV_DIM, W = 256, 4
PAGES = 9


def rounded(*shape: int, seed: int, dtype: str = "bf16") -> Any:
    return on_gpu(np.random.default_rng(seed).standard_normal(shape), dtype)


def channels_last(tensor: Any) -> Any:
    """The same values with the last but one dimension innermost in memory."""
    return tensor.mT.contiguous().mT


def taps(dtype: str = "bf16") -> tuple[Any, Any]:
    return rounded(CONV_DIM, W, seed=1, dtype=dtype), rounded(CONV_DIM, seed=2, dtype=dtype)


def torch_conv(x: Any, history: Any, weight: Any, bias: Any, activated: bool = True) -> Any:
    """One sequence x [dim, T] behind history [dim, W - 1] (None: zeros), in f32."""
    start = x.new_zeros(len(x), W - 1) if history is None else history
    inputs = torch.cat([start.float(), x.float()], dim=1)[None]
    with torch.backends.cudnn.flags(allow_tf32=False):
        y = torch.nn.functional.conv1d(
            inputs, weight.float()[:, None], None if bias is None else bias.float(), groups=len(x)
        )[0]
    return torch.nn.functional.silu(y) if activated else y


def assert_rounded(y: Any, expected: Any) -> None:
    """y is `expected` but for one rounding, and the order of four sums in f32."""
    unit = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-20}[y.dtype]
    torch.testing.assert_close(y.float(), expected, rtol=unit, atol=1e-5)


def newest(history: Any, x: Any) -> Any:
    """As many inputs as history has, the newest ones."""
    return torch.cat([history, x.to(history.dtype)], dim=1)[:, x.shape[1] :]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tokens", [2, 515])
def test_causal_conv1d_fn(dtype, turned, tokens):
    weight, bias = taps(dtype)
    x = rounded(3, CONV_DIM, tokens, seed=3, dtype=dtype)
    x = channels_last(x) if turned else x
    start = rounded(3, CONV_DIM, W - 1, seed=4, dtype=dtype)
    plain = causal_conv1d.causal_conv1d_fn(x, weight)
    y, final = causal_conv1d.causal_conv1d_fn(
        x, weight, bias, initial_states=start, return_final_states=True, activation="silu"
    )
    assert y.stride() == x.stride() and final.stride(1) == 1
    for n in range(3):
        assert_rounded(plain[n], torch_conv(x[n], None, weight, None, activated=False))
        assert_rounded(y[n], torch_conv(x[n], start[n], weight, bias))
        assert torch.equal(final[n], newest(start[n], x[n]))


@pytest.mark.parametrize("columns", [W - 1, W])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tokens", [None, 1, 3])
def test_causal_conv1d_update(columns, turned, tokens):
    weight, bias = taps()
    x = rounded(5, CONV_DIM, tokens or 1, seed=3)
    pool = rounded(PAGES, CONV_DIM, columns, seed=4)
    pool = channels_last(pool) if turned else pool
    before, slots = pool.clone(), [3, 1, -1, 7, 2]
    given = x[:, :, 0] if tokens is None else x
    y = causal_conv1d.causal_conv1d_update(
        given, pool, weight, bias, "silu", conv_state_indices=indices(*slots)
    )
    assert y.shape == given.shape
    for n, slot in enumerate(slots):
        if slot < 0:
            assert not y[n].any()
            continue
        expected = torch_conv(x[n], before[slot, :, 1 - W :], weight, bias)
        assert_rounded(y.reshape(x.shape)[n], expected)
        before[slot] = newest(before[slot], x[n])
    assert torch.equal(pool, before)


@pytest.mark.parametrize("columns", [W - 1, W, 9])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tokens", [None, 1, 3, 20])
def test_causal_conv1d_update_of_a_circular_state(columns, turned, tokens):
    weight, bias = taps()
    x = rounded(5, CONV_DIM, tokens or 1, seed=3)
    pool = rounded(PAGES, CONV_DIM, columns, seed=4)
    pool = channels_last(pool) if turned else pool
    before, slots, counts = pool.clone(), [3, 1, -1, 7, 2], [0, 2, 5, columns, 100]
    given = x[:, :, 0] if tokens is None else x
    y = causal_conv1d.causal_conv1d_update(
        given, pool, weight, bias, "silu", cache_seqlens=indices(*counts),
        conv_state_indices=indices(*slots),
    )  # fmt: skip
    assert y.shape == given.shape
    for n, (slot, count) in enumerate(zip(slots, counts)):
        if slot < 0:
            assert not y[n].any()
            continue
        window = [i % columns for i in range(count - W + 1, count)]
        expected = torch_conv(x[n], before[slot][:, window], weight, bias)
        assert_rounded(y.reshape(x.shape)[n], expected)
        for i in range(x.shape[2]):
            before[slot, :, (count + i) % columns] = x[n, :, i]
    assert torch.equal(pool, before)


CONV_LENGTHS = (70, 1, 0, 19, 2, 200)
ENGINES = {
    "vllm": (vllm, 0), "sglang": (sglang, -1), "tensorrt_llm": (tensorrt_llm, -1),
    "tokenspeed": (tokenspeed, -1),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("columns", [W - 1, W + 2])
@pytest.mark.parametrize("flags", [True, False])
def test_causal_conv1d_of_packed_prompts(engine, turned, columns, flags):
    module, pad = ENGINES[engine]
    weight, bias = taps()
    bounds = np.cumsum((0, *CONV_LENGTHS))
    x = rounded(CONV_DIM, int(bounds[-1]), seed=3)
    pool = rounded(PAGES, CONV_DIM, columns, seed=4)
    x, pool = (channels_last(tensor) if turned else tensor for tensor in (x, pool))
    before, slots, starts = (
        pool.clone(),
        [3, 8, 1, pad, 4, 2],
        [True, False, True, True, True, False],
    )
    y = module.causal_conv1d_fn(
        x, weight, bias, conv_states=pool, query_start_loc=indices(*bounds),
        cache_indices=indices(*slots),
        has_initial_state=torch.tensor(starts, device="cuda") if flags else None,
    )  # fmt: skip
    assert y.shape == x.shape
    for n, slot in enumerate(slots):
        span = slice(int(bounds[n]), int(bounds[n + 1]))
        if slot == pad:
            assert not y[:, span].any()
            continue
        window = before[slot, :, : W - 1].clone()
        history = window if flags and starts[n] else torch.zeros_like(window)
        if span.stop > span.start:
            assert_rounded(y[:, span], torch_conv(x[:, span], history, weight, bias))
        before[slot, :, : W - 1] = newest(history, x[:, span])
    assert torch.equal(pool, before)


# Of a wider pool vLLM's newest input is in column W - 2, SGLang's in the last one.
@pytest.mark.parametrize(
    "engine, columns, moved",
    [
        ("vllm", W - 1, W - 1),
        ("vllm", W + 2, W - 1),
        ("sglang", W - 1, W - 1),
        ("sglang", W, W),
        ("tensorrt_llm", W, W),
        ("tokenspeed", W - 1, W - 1),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_causal_conv1d_steps_of_the_engines(engine, turned, columns, moved):
    module, pad = ENGINES[engine]
    weight, bias = taps()
    x, pool = rounded(5, CONV_DIM, seed=3), rounded(PAGES, CONV_DIM, columns, seed=4)
    pool = channels_last(pool) if turned else pool
    before, slots = pool.clone(), [3, 1, pad, 7, 2]
    y = module.causal_conv1d_update(
        x, pool, weight, bias, "silu", conv_state_indices=indices(*slots)
    )
    for n, slot in enumerate(slots):
        if slot == pad:
            assert not y[n].any()
            continue
        window = before[slot, :, :moved].clone()
        history = window[:, 1 - W :]
        assert_rounded(y[n, :, None], torch_conv(x[n, :, None], history, weight, bias))
        before[slot, :, :moved] = newest(window, x[n, :, None])
    assert torch.equal(pool, before)


@pytest.mark.parametrize("turned", [False, True])
def test_causal_conv1d_step_into_an_output_by_a_table_of_slots(turned):
    weight, bias = taps()
    x, pool = rounded(5, CONV_DIM, 2, seed=3), rounded(PAGES, CONV_DIM, W - 1, seed=4)
    x = channels_last(x) if turned else x
    again, slots = pool.clone(), indices(3, 1, 0, 7, 2)
    y = vllm.causal_conv1d_update(x, pool, weight, bias, "silu", slots)
    out = torch.full_like(x, float("nan"))
    table = torch.stack([slots, slots + 100], dim=1)
    assert vllm.causal_conv1d_update(x, again, weight, bias, "silu", table, out=out) is out
    assert torch.equal(out, y) and torch.equal(again, pool)


@pytest.mark.parametrize("engine", ["vllm", "vllm packed", "sglang"])
@pytest.mark.parametrize("turned", [False, True])
def test_causal_conv1d_drafts_in_a_graph(engine, turned):
    """Rounds of four drafts: each goes on behind the tokens that the one before it may keep.  The
    third request is padding."""
    packed = engine.endswith("packed")
    module, pad = ENGINES[engine.split()[0]]
    counts = "num_accepted_tokens" if module is vllm else "num_accept_tokens"
    weight, bias = taps()
    lengths = (4, 2, 3, 4) if packed else (4, 4, 4, 4)
    slots, bounds = [3, 1, pad, 7], np.cumsum((0, *lengths))
    pool = rounded(PAGES, CONV_DIM, W + 2, seed=4)  # W - 2 + 4
    pool = channels_last(pool) if turned else pool
    start, accepted = pool.clone(), indices(1, 1, 1, 1)
    x = rounded(int(bounds[-1]), CONV_DIM, seed=5)
    options = {counts: accepted, "conv_state_indices": indices(*slots)}
    if packed:
        options |= {"query_start_loc": indices(*bounds), "max_query_len": 4}
    given = x if packed else x.view(4, 4, CONV_DIM).mT

    def launch() -> Any:
        return module.causal_conv1d_update(given, pool, weight, bias, "silu", **options)

    launch()  # prepares the operator
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = launch()
    pool.copy_(start)
    histories = [start[slot, :, : W - 1].clone() for slot in slots]
    for seed, kept in (
        (10, (2, 2, 1, 4)),
        (20, (4 if not packed else 1, 1, 1, 3)),
        (30, (1, 2, 1, 1)),
    ):
        x.copy_(rounded(*x.shape, seed=seed))
        graph.replay()
        rows = y if packed else y.mT.reshape(x.shape)
        for n, slot in enumerate(slots):
            span = slice(int(bounds[n]), int(bounds[n + 1]))
            if slot == pad:
                assert not rows[span].any()
                continue
            assert_rounded(rows[span].T, torch_conv(x[span].T, histories[n], weight, bias))
            histories[n] = newest(histories[n], x[span][: kept[n]].T)
        accepted.copy_(indices(*kept))
    others = [slot for slot in range(PAGES) if slot not in slots or slot == pad]
    assert torch.equal(pool[others], start[others])


@pytest.mark.parametrize("k_dim, v_dim", [(64, 128), (512, 1024)])
@pytest.mark.parametrize("turned", [False, True])
def test_causal_conv1d_split_qkv(k_dim, v_dim, turned):
    dim, bounds = 2 * k_dim + v_dim, np.cumsum((0, *CONV_LENGTHS))
    weight, x = rounded(dim, W, seed=1), rounded(dim, int(bounds[-1]), seed=3)
    pool, slots = rounded(PAGES, dim, W - 1, seed=4), [3, 8, 1, 0, 4, 2]
    x, pool = (channels_last(tensor) if turned else tensor for tensor in (x, pool))
    before = pool.clone()
    parts = causal_conv1d.causal_conv1d_split_qkv(
        x, weight, None, pool, indices(*bounds), k_dim, v_dim, indices(*slots),
        torch.ones(len(slots), dtype=torch.bool, device="cuda"),
    )  # fmt: skip
    assert [part.shape[1] for part in parts] == [k_dim, k_dim, v_dim]
    y = torch.cat(parts, dim=1).T
    for n, slot in enumerate(slots):
        span = slice(int(bounds[n]), int(bounds[n + 1]))
        if span.stop > span.start:
            assert_rounded(y[:, span], torch_conv(x[:, span], before[slot], weight, None))
        assert torch.equal(pool[slot], newest(before[slot], x[:, span]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("initial", [None, "f32", "bf16"])
def test_causal_conv1d_of_fla(dtype, packed, initial):
    weight, bias = taps(dtype)
    bounds = np.cumsum((0, *CONV_LENGTHS)) if packed else np.arange(4) * 65
    lead, count = (1, int(bounds[-1])) if packed else (3, 65), len(bounds) - 1
    x = rounded(*lead, CONV_DIM, seed=3, dtype=dtype)
    start = None if initial is None else rounded(count, CONV_DIM, W, seed=4, dtype=initial)
    y, final = fla.causal_conv1d(
        x, weight, bias, initial_state=start, output_final_state=True, activation="swish",
        cu_seqlens=torch.tensor(bounds, device="cuda") if packed else None,
    )  # fmt: skip
    assert y.shape == x.shape and final.dtype == x.dtype
    for n in range(count):
        rows = x.view(-1, CONV_DIM)[int(bounds[n]) : int(bounds[n + 1])].T
        mine = y.view(-1, CONV_DIM)[int(bounds[n]) : int(bounds[n + 1])].T
        history = rows.new_zeros(CONV_DIM, W).float() if start is None else start[n].float()
        if rows.shape[1] > 0:
            assert_rounded(mine, torch_conv(rows, history[:, 1:], weight, bias))
        assert torch.equal(final[n], newest(history, rows).to(x.dtype))


@pytest.mark.parametrize("residual", [False, True])
def test_causal_conv1d_update_of_fla(residual):
    weight, bias = taps()
    x, cache = rounded(1, 5, CONV_DIM, seed=3), rounded(5, CONV_DIM, W, seed=4)
    added, before = rounded(1, 5, CONV_DIM, seed=5), cache.clone()
    y, returned = fla.causal_conv1d_update(
        x, cache, added if residual else None, weight, bias, activation="silu"
    )
    assert returned is cache
    for n in range(5):
        expected = torch_conv(x[0, n, :, None], before[n, :, 1:], weight, bias)[:, 0]
        assert torch.equal(cache[n], newest(before[n], x[0, n, :, None]))
        if residual:  # rounded twice
            torch.testing.assert_close(
                y[0, n].float(), expected + added[0, n].float(), rtol=2.0**-7, atol=2.0**-7
            )
        else:
            assert_rounded(y[0, n], expected)
