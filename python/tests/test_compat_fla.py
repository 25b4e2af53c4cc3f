"""compat.fla without a GPU: what it hands on, run by the recurrence, is what FLA documents."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import recurrence

from cubinery import InvalidArgumentError, UnsupportedError, _arrays
from cubinery.compat import fla

B, T, H, HV, K, V = 2, 5, 2, 4, 8, 6


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


def inputs(tokens: int = T, batch: int = B, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    return {
        "q": normal(batch, tokens, H, K),
        "k": normal(batch, tokens, H, K) / np.float32(K**0.5),
        "v": normal(batch, tokens, HV, V),
        "g": -np.abs(normal(batch, tokens, HV)),
        "beta": recurrence.sigmoid(normal(batch, tokens, HV)),
    }


def states(count: int = B, dtype: type = np.float32, v_first: bool = False) -> np.ndarray:
    shape = (count, HV, V, K) if v_first else (count, HV, K, V)
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def fla_reference(q, k, v, g, beta, scale=K**-0.5, initial=None):
    """FLA's naive_recurrent_gated_delta_rule as its documentation has it, in float64: per value
    head h with the q and k of head h // (HV // H), h = exp(g) h, then the delta rule."""
    q, k, v, g, beta = (np.asarray(x, np.float64) for x in (q, k, v, g, beta))
    batch, count = q.shape[:2]
    o = np.zeros((batch, count, HV, V))
    final = np.zeros((batch, HV, K, V))
    for n in range(batch):
        for head in range(HV):
            s = np.zeros((K, V)) if initial is None else np.asarray(initial[n, head], np.float64)
            for t in range(count):
                key, query = k[n, t, head // (HV // H)], q[n, t, head // (HV // H)]
                s = s * np.exp(g[n, t, head])
                s = s + np.outer(key, (v[n, t, head] - key @ s) * beta[n, t, head])
                o[n, t, head] = (query * scale) @ s
            final[n, head] = s
    return o, final


def assert_equal(actual: np.ndarray, expected: np.ndarray) -> None:
    """To the rounding of the f32 that results are stored in."""
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=2.0**-23, atol=1e-12)


def test_needs_neither_torch_nor_fla():
    program = (
        "import sys\n"
        "for name in ('torch', 'fla', 'flashinfer', 'vllm', 'sglang', 'causal_conv1d'):\n"
        "    sys.modules[name] = None\n"
        "from cubinery.compat import causal_conv1d, fla, flashinfer, sglang, vllm\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
@pytest.mark.parametrize("function", [fla.chunk_gated_delta_rule, fla.fused_recurrent_gdn])
def test_dense(function, initial, v_first):
    x = inputs()
    h0 = None if initial is None else states(dtype=initial, v_first=v_first)
    before = None if h0 is None else h0.copy()
    o, final = function(**x, initial_state=h0, output_final_state=True, state_v_first=v_first)
    start = np.swapaxes(h0, 2, 3) if v_first and h0 is not None else h0
    expected, expected_final = fla_reference(**x, initial=start)
    assert_equal(o, expected)
    assert_equal(np.swapaxes(final, 2, 3) if v_first else final, expected_final)
    if h0 is not None:
        np.testing.assert_array_equal(h0, before)  # never written


def test_no_final_state_unless_asked_for():
    x, h0 = inputs(), states()
    before = h0.copy()
    o, final = fla.chunk_gated_delta_rule(**x, initial_state=h0)
    assert final is None
    assert_equal(o, fla_reference(**x, initial=h0)[0])
    np.testing.assert_array_equal(h0, before)


@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0])
def test_scale(scale):
    x = inputs()
    o, _ = fla.chunk_gated_delta_rule(**x, scale=scale)
    assert_equal(o, fla_reference(**x, scale=scale)[0])


@pytest.mark.parametrize("function", [fla.chunk_gated_delta_rule, fla.fused_recurrent_gdn])
def test_packed_sequences(function):
    lengths = (3, 0, 1, 4)
    bounds = np.cumsum((0, *lengths))
    x = inputs(tokens=int(bounds[-1]), batch=1)
    h0 = states(len(lengths))
    o, final = function(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=bounds.astype(np.int64)
    )
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        part = {name: array[:, first:last] for name, array in x.items()}
        expected, expected_final = fla_reference(**part, initial=h0[n : n + 1])
        assert_equal(o[:, first:last], expected)
        assert_equal(final[n : n + 1], expected_final)


def test_one_token_is_a_decode(calls):
    x, h0 = inputs(tokens=1), states()
    o, final = fla.fused_recurrent_gated_delta_rule(**x, initial_state=h0, output_final_state=True)
    expected, expected_final = fla_reference(**x, initial=h0)
    assert_equal(o, expected)
    assert_equal(final, expected_final)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 1, "gdn_verify": 0}


def test_one_packed_token_is_a_prefill(calls):
    """Lengths are on the device: here one of two sequences has the token."""
    x = inputs(tokens=1, batch=1)
    cu_seqlens = np.array([0, 1, 1], np.int32)
    fla.fused_recurrent_gated_delta_rule(**x, cu_seqlens=cu_seqlens)
    assert calls == {"gdn_prefill": 1, "gdn_decode": 0, "gdn_verify": 0}


@pytest.mark.parametrize("tokens", [1, T])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("doubled", [False, True])
def test_gates_and_norms_in_the_kernel(tokens, biased, doubled):
    x = inputs(tokens)
    random = np.random.default_rng(3)
    raw = 30 * random.standard_normal(x["g"].shape).astype(np.float32)  # past softplus' threshold
    logit = random.standard_normal(x["beta"].shape).astype(np.float32)
    A_log = np.log(random.uniform(1, 16, HV)).astype(np.float32)
    dt_bias = random.standard_normal(HV).astype(np.float32) if biased else None
    options = {
        "use_qk_l2norm_in_kernel": True,
        "use_gate_in_kernel": True,
        "A_log": A_log,
        "dt_bias": dt_bias,
        "use_beta_sigmoid_in_kernel": True,
        "allow_neg_eigval": doubled,
    }
    with np.errstate(over="ignore"):  # log(1 + e^x) of float64: no threshold is needed
        a = np.float64(raw) + (0 if dt_bias is None else dt_bias)
        g = -np.exp(np.float64(A_log)) * np.logaddexp(0, a)
    q, k = (
        x[name] / np.sqrt((np.float64(x[name]) ** 2).sum(-1, keepdims=True) + 1e-6)
        for name in ("q", "k")
    )
    beta = (2 if doubled else 1) / (1 + np.exp(-np.float64(logit)))
    expected, _ = fla_reference(q, k, x["v"], np.maximum(g, -128), beta)
    for function in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule):
        o, _ = function(x["q"], x["k"], x["v"], raw, beta=logit, **options)
        np.testing.assert_allclose(o, expected, rtol=1e-6, atol=1e-9)


def test_parameters_of_a_gate_that_is_not_computed_are_not_read():
    x = inputs()
    o, _ = fla.chunk_gated_delta_rule(**x, A_log=np.full(HV, np.nan, np.float32))
    assert_equal(o, fla_reference(**x)[0])


def test_missing_gates_of_the_recurrent_form():
    x = inputs()
    ones = np.ones_like(x["beta"])
    o, _ = fla.fused_recurrent_gated_delta_rule(x["q"], x["k"], x["v"])
    assert_equal(o, fla_reference(x["q"], x["k"], x["v"], 0 * ones, ones)[0])


def test_strided_rows_are_taken():
    """Hugging Face's models hand over q, k and v with the tokens innermost."""
    x = inputs()
    turned = {
        name: np.moveaxis(np.ascontiguousarray(np.moveaxis(x[name], 1, -1)), -1, 1)
        for name in ("q", "k", "v")
    }
    assert turned["q"].strides[-1] != turned["q"].itemsize
    o, _ = fla.chunk_gated_delta_rule(**{**x, **turned})
    assert_equal(o, fla_reference(**x)[0])


def test_transposed_initial_state_is_taken():
    x, h0 = inputs(), np.swapaxes(states(v_first=True), 2, 3)
    o, _ = fla.chunk_gated_delta_rule(**x, initial_state=h0)
    assert_equal(o, fla_reference(**x, initial=h0)[0])


def test_hints_change_nothing():
    x = inputs(tokens=4, batch=1)
    bounds = np.array([0, 1, 4])
    plain, _ = fla.chunk_gated_delta_rule(**x, cu_seqlens=bounds)
    for chunk_size in (16, 32, 64):
        hinted, _ = fla.chunk_gated_delta_rule(
            **x, cu_seqlens=bounds, cu_seqlens_cpu=bounds, chunk_indices=np.array([[0, 0], [1, 0]]),
            chunk_size=chunk_size,
        )  # fmt: skip
        np.testing.assert_array_equal(hinted, plain)


@pytest.mark.parametrize(
    "bounds, longest",
    [(None, None), ([0, 1, 4], 3), ([0, 1, 9], None), ([4, 1, 0], None), ([0], None)],
)
def test_bounds_on_the_host_are_a_hint(monkeypatch, bounds, longest):
    asked = recurrence.noted_option(monkeypatch, "max_seqlen")
    on_host = None if bounds is None else np.array(bounds)
    x = inputs(tokens=4, batch=1)
    fla.chunk_gated_delta_rule(**x, cu_seqlens=np.array([0, 1, 4]), cu_seqlens_cpu=on_host)
    assert asked == [longest]


def test_old_name_of_state_v_first():
    x, h0 = inputs(), states(v_first=True)
    for function in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule):
        with pytest.warns(DeprecationWarning, match="state_v_first"):
            o, _ = function(**x, initial_state=h0, transpose_state_layout=True)
        assert_equal(o, fla_reference(**x, initial=np.swapaxes(h0, 2, 3))[0])
        with pytest.raises(InvalidArgumentError, match="transpose_state_layout"):
            function(**x, state_v_first=True, transpose_state_layout=True)


REFUSED = [
    ({"cp_context": object()}, InvalidArgumentError, "cp_context is of type object, without group"),
    ({"chunk_size": 128}, InvalidArgumentError, "chunk_size is 128; supported: 16 or 32 or 64"),
    ({"head_first": False}, InvalidArgumentError, "head_first"),
    ({"return_intermediate": 1}, InvalidArgumentError, "unknown argument return_intermediate"),
]
REFUSED_BY_BOTH = [
    ({"allow_neg_eigval": True}, InvalidArgumentError, "allow_neg_eigval needs use_beta_sigmoid"),
    ({"use_gate_in_kernel": True}, InvalidArgumentError, "use_gate_in_kernel needs A_log"),
    ({"initial_state": states(3)}, InvalidArgumentError, r"initial_state has shape \[3, 4, 8, 6\]"),
    ({"initial_state": states(dtype=np.float64)}, UnsupportedError, "initial_state is float64"),
    ({"cu_seqlens": np.array([0, 5])}, InvalidArgumentError, "q has a batch of 2"),
    ({"v": np.zeros((B, T, 3, V), np.float32)}, InvalidArgumentError, "v has 3 heads"),
    ({"k": np.zeros((B, T, 1, K), np.float32)}, InvalidArgumentError, "k has shape"),
    ({"beta": np.zeros((B, T, HV, V), np.float32)}, InvalidArgumentError, r"expected \[B, T, HV\]"),
]
REFUSED_BY_RECURRENT = [
    ({"gk": np.zeros((B, T, HV, K))}, UnsupportedError, "gk is not supported"),
    ({"gv": np.zeros((B, T, HV, V))}, UnsupportedError, "gv is not supported"),
    ({"head_first": True}, InvalidArgumentError, "head_first"),
    ({"chunk_size": 64}, InvalidArgumentError, "unknown argument chunk_size"),
    (
        {"beta": None, "use_beta_sigmoid_in_kernel": True},
        InvalidArgumentError,
        "use_beta_sigmoid_in_kernel needs beta",
    ),
]


@pytest.mark.parametrize("change, error, message", REFUSED + REFUSED_BY_BOTH)
def test_chunk_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        fla.chunk_gated_delta_rule(**{**inputs(), **change})
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


@pytest.mark.parametrize("change, error, message", REFUSED_BY_BOTH + REFUSED_BY_RECURRENT)
def test_recurrent_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        fla.fused_recurrent_gated_delta_rule(**{**inputs(), **change})
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


class Trained(np.ndarray):
    requires_grad = True


def fake_torch(monkeypatch: pytest.MonkeyPatch, grad_enabled: bool) -> None:
    torch = types.ModuleType("torch")
    torch.is_grad_enabled = lambda: grad_enabled
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta", "initial_state"])
def test_autograd_is_refused(monkeypatch, name):
    fake_torch(monkeypatch, grad_enabled=True)
    x = {**inputs(), "initial_state": states()}
    x[name] = x[name].view(Trained)
    for function in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule):
        with pytest.raises(UnsupportedError, match=f"{name} requires grad"):
            function(**x)


def test_parameters_that_are_not_read_may_require_grad(monkeypatch):
    fake_torch(monkeypatch, grad_enabled=True)
    x = inputs()
    A_log = np.zeros(HV, np.float32).view(Trained)
    o, _ = fla.fused_recurrent_gated_delta_rule(**x, A_log=A_log)
    assert_equal(o, fla_reference(**x)[0])
    with pytest.raises(UnsupportedError, match="A_log requires grad"):
        fla.fused_recurrent_gated_delta_rule(**x, A_log=A_log, use_gate_in_kernel=True)


def test_without_grad_trained_inputs_are_taken(monkeypatch):
    fake_torch(monkeypatch, grad_enabled=False)
    x = inputs()
    o, _ = fla.chunk_gated_delta_rule(**{name: array.view(Trained) for name, array in x.items()})
    np.testing.assert_allclose(o, fla_reference(**x)[0], rtol=2.0**-23, atol=1e-12)


# --- registration, in a dispatch that asks as FLA's does


class Registry:
    """FLA's dispatch: the first backend, by priority, that is enabled and verifies the call."""

    def __init__(self, function="chunk_gated_delta_rule"):
        self.backends, self.function = [], function
        self.default = lambda *args, **kwargs: "FLA"

    def register(self, backend):
        self.backends.append(backend)

    def __call__(self, *args, **kwargs):
        for backend in sorted(self.backends, key=lambda backend: backend.priority):
            if not (backend.is_available() and backend.is_enabled()):
                continue
            verified, _ = getattr(backend, f"{self.function}_verifier")(*args, **kwargs)
            if verified:
                return getattr(backend, self.function)(*args, **kwargs)
        return self.default(*args, **kwargs)


class BaseBackend:
    priority = 5

    @classmethod
    def is_available(cls):
        return True


def fake_fla(monkeypatch: pytest.MonkeyPatch, release: str) -> Registry:
    """Modules laid out as FLA 0.5 and 0.6 lay theirs out, and a CUDA device for numpy's arrays."""
    registry = Registry()
    modules = {name: types.ModuleType(name) for name in ("fla", "fla.ops")}
    if release == "0.6":
        backends = modules["fla.backends"] = types.ModuleType("fla.backends")
        modules["fla"].backends = backends

        registry.kda = Registry("fused_recurrent_kda_fwd")
        kda = modules["fla.ops.kda"] = types.ModuleType("fla.ops.kda")
        kda.chunk_kda = registry.kda_chunks = Registry("chunk_kda")
        places = {"gated_delta_rule": registry, "kda": registry.kda}

        def register(entry):
            place = places[entry] if isinstance(entry, str) else entry
            return lambda backend: place.register(backend())

        backends.register = register
    else:
        backends = modules["fla.ops.backends"] = types.ModuleType("fla.ops.backends")
        modules["fla.ops"].backends = backends
        ours = "fla.ops.gated_delta_rule"
        for name in (ours, f"{ours}.backends"):
            modules[name] = types.ModuleType(name)
        modules[f"{ours}.backends"].gdr_registry = registry
    backends.BaseBackend = BaseBackend
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    torch = types.ModuleType("torch")
    torch.version = types.SimpleNamespace(cuda="13.0")
    torch.cuda = types.SimpleNamespace(get_device_capability=lambda device: (9, 0))
    torch.is_grad_enabled = lambda: True
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(_arrays, "device_of", lambda array, name: 0)
    monkeypatch.setattr(fla, "_backend", None)
    monkeypatch.setattr(fla, "_enabled", False)
    monkeypatch.delenv("FLA_DISABLE_BACKEND_DISPATCH", raising=False)
    monkeypatch.delenv("FLA_CUBINERY", raising=False)
    return registry


def wide_inputs() -> dict[str, np.ndarray]:
    """Of dims that cubinery has kernels for."""
    x = inputs()
    return {**x, **{name: np.repeat(x[name], 8, axis=-1)[..., :16] for name in ("q", "k", "v")}}


@pytest.mark.parametrize("release", ["0.5", "0.6"])
def test_registered_functions_run_cubinery(monkeypatch, calls, release):
    dispatched = fake_fla(monkeypatch, release)
    x = wide_inputs()
    assert dispatched(**x) == "FLA"
    fla.register()
    fla.register()  # once is enough
    assert len(dispatched.backends) == 1
    o, final = dispatched(**x, output_final_state=True)
    direct, direct_final = fla.chunk_gated_delta_rule(**x, output_final_state=True)
    np.testing.assert_array_equal(o, direct)
    np.testing.assert_array_equal(final, direct_final)
    assert calls["gdn_prefill"] == 2
    fla.unregister()
    assert dispatched(**x) == "FLA"
    fla.register()
    assert len(dispatched.backends) == 1 and dispatched(**x) != "FLA"
    monkeypatch.setenv("FLA_CUBINERY", "0")
    assert dispatched(**x) == "FLA"


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"cp_context": object()}, "cp_context is of type object, without group"),
        ({"made_up": 1}, "unknown argument made_up"),
        ({"initial_state": np.zeros((B, HV, 16, 16))}, "initial_state is float64"),
        ({"g": np.zeros((B, T, HV))}, "g is float64"),
        ({"v": np.zeros((B, T, HV, 16), np.float16)}, "different dtypes"),
        ({"v": np.zeros((B, T, HV, 24), np.float32)}, "V is 24"),
        ({"v": np.zeros((B, T, HV, 272), np.float32)}, "V is 272"),
        ({"beta": np.zeros((B, T, HV), np.float32).view(Trained)}, "beta requires grad"),
    ],
)
def test_registered_backend_leaves_to_fla_what_it_cannot_honour(monkeypatch, calls, change, reason):
    dispatched = fake_fla(monkeypatch, "0.6")
    fla.register()
    x = {**wide_inputs(), **change}
    assert dispatched(**x) == "FLA"
    verified, said = dispatched.backends[0].chunk_gated_delta_rule_verifier(**x)
    assert not verified and reason in said
    assert calls["gdn_prefill"] == 0


def kda_inputs(tokens: int = T) -> dict[str, object]:
    """As FLA's fused_recurrent_kda calls what its dispatch offers."""
    x = {name: np.repeat(array, 4, axis=1)[:, :tokens] for name, array in wide_inputs().items()}
    x["g"] = np.repeat(x["g"][..., None], 16, axis=-1)
    return {
        **x,
        **{"A_log": None, "dt_bias": None, "scale": 16**-0.5, "initial_state": None},
        **{"inplace_final_state": False, "output_final_state": True, "lower_bound": None},
        **{"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": False, "cu_seqlens": None},
        **{"use_beta_sigmoid_in_kernel": False, "allow_neg_eigval": False, "state_v_first": True},
    }


@pytest.mark.parametrize("tokens", [1, T, 17])
def test_registered_kimi_delta_attention_runs_cubinery(monkeypatch, calls, tokens):
    dispatched, x = fake_fla(monkeypatch, "0.6").kda, kda_inputs(tokens)
    fla.register()
    o, final = dispatched(**x)
    assert o.shape == (B, tokens, HV, 16) and final.shape == (B, HV, 16, 16)
    ran = {1: "gdn_decode", T: "gdn_verify", 17: "gdn_prefill"}[tokens]
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0, ran: 1}
    fla.unregister()
    assert dispatched(**x) == "FLA"


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"g": np.zeros((B, T, HV, 16))}, "g is float64"),
        ({"use_gate_in_kernel": True}, "A_log is required without lower_bound"),
        ({"initial_state": np.zeros((B, HV, 16, 16))}, "initial_state is float64"),
        (
            {
                **{"initial_state": np.zeros((9, HV, 16, 16), np.float32)},
                **{"ssm_state_indices": np.arange(B), "inplace_final_state": True},
            },
            "ssm_state_indices: call it directly",
        ),
    ],
)
def test_registered_kimi_delta_attention_is_left_to_fla(monkeypatch, calls, change, reason):
    dispatched, x = fake_fla(monkeypatch, "0.6").kda, {**kda_inputs(), **change}
    fla.register()
    assert dispatched(**x) == "FLA"
    verified, said = dispatched.backends[0].fused_recurrent_kda_fwd_verifier(**x)
    assert not verified and re.search(reason, said)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


def kda_chunk_inputs() -> dict[str, object]:
    """As FLA's layer calls chunk_kda."""
    x = {name: kda_inputs()[name] for name in ("q", "k", "v", "g", "beta")}
    flags = ("qk_l2norm", "gate", "beta_sigmoid")
    return {
        **{**x, "A_log": np.zeros(HV, np.float32), "dt_bias": np.zeros(HV * 16, np.float32)},
        **{"initial_state": None, "output_final_state": True, "cu_seqlens": None},
        **{f"use_{flag}_in_kernel": True for flag in flags},
        **{"allow_neg_eigval": False, "safe_gate": True, "lower_bound": -5.0},
        "state_v_first": True,
    }


def test_registered_chunks_of_kimi_delta_attention_run_cubinery(monkeypatch, calls):
    dispatched, x = fake_fla(monkeypatch, "0.6").kda_chunks, kda_chunk_inputs()
    assert dispatched(**x) == "FLA"
    fla.register()
    o, final = dispatched(**x)
    assert o.shape == (B, T, HV, 16) and final.shape == (B, HV, 16, 16)
    *_, h = dispatched(**x, return_intermediate_states=True)
    assert h.shape == (B, 1, HV, 16, 16)
    assert calls == {"gdn_prefill": 2, "gdn_decode": 0, "gdn_verify": 0}
    fla.unregister()
    assert dispatched(**x) == "FLA"


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"cp_context": object()}, "cp_context is of type object, without group"),
        ({"lower_bound": -6.0, "safe_gate": False}, "lower_bound is -6.0; supported"),
        ({"v": np.zeros((B, T, HV, 24), np.float32)}, "V is 24"),
        ({"g": np.zeros((B, T, HV, 16))}, "g is float64"),
        ({"beta": np.zeros((B, T, HV), np.float32).view(Trained)}, "beta requires grad"),
    ],
)
def test_registered_chunks_of_kimi_delta_attention_left_to_fla(monkeypatch, calls, change, reason):
    dispatched, x = fake_fla(monkeypatch, "0.6").kda_chunks, {**kda_chunk_inputs(), **change}
    fla.register()
    assert dispatched(**x) == "FLA"
    verified, said = dispatched.backends[0].chunk_kda_verifier(**x)
    assert not verified and reason in said
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


def test_registered_backend_needs_a_device(monkeypatch):
    dispatched = fake_fla(monkeypatch, "0.6")
    fla.register()

    def on_the_host(array, name):
        raise InvalidArgumentError("array: is on device cpu")

    monkeypatch.setattr(_arrays, "device_of", on_the_host)
    assert dispatched(**wide_inputs()) == "FLA"
    monkeypatch.setattr(_arrays, "device_of", lambda array, name: 0)
    sys.modules["torch"].cuda.get_device_capability = lambda device: (7, 5)
    assert dispatched(**wide_inputs()) == "FLA"


def test_register_says_when_the_dispatch_is_off(monkeypatch):
    fake_fla(monkeypatch, "0.6")
    monkeypatch.setenv("FLA_DISABLE_BACKEND_DISPATCH", "1")
    with pytest.raises(UnsupportedError, match="FLA_DISABLE_BACKEND_DISPATCH"):
        fla.register()


@pytest.mark.parametrize(
    "module, name",
    [
        ("gated_delta_rule", "chunk_gated_delta_rule"),
        ("gated_delta_rule", "fused_recurrent_gated_delta_rule"),
        ("kda", "chunk_kda"),
        ("kda", "fused_recurrent_kda"),
        ("kda.fused_recurrent", "fused_recurrent_kda_fwd"),
    ],
)
def test_signatures_are_those_of_the_installed_fla(module, name):
    theirs = pytest.importorskip(f"fla.ops.{module}")
    wanted = inspect.signature(inspect.unwrap(getattr(theirs, name))).parameters
    ours = inspect.signature(getattr(fla, name)).parameters
    for argument, parameter in wanted.items():
        assert argument in ours
        assert ours[argument].default == parameter.default
