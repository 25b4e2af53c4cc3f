"""compat.transformers without a GPU: what enable() replaces, what it hands on, and what it leaves.

With torch and Transformers installed also on real models, whose tensors then are on the CPU: there
the operators are those of recurrence.py and convolution.py.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import subprocess
import sys
import types

import convolution
import hf_models
import numpy as np
import pytest
import recurrence
from test_compat_launch import on_gpu

from cubinery import (
    Conv,
    Decode,
    InvalidArgumentError,
    Prefill,
    UnsupportedError,
    Verify,
    _arrays,
    functional,
)
from cubinery.compat import _arguments, transformers

B, T, H, HV, K, V, W = 2, 5, 2, 4, 16, 32, 4
D = 2 * H * K + HV * V
NAMES = (
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "torch_chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule",
)
# Of a module of Kimi Delta Attention.
KDA_NAMES = (
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "recurrent_kimi_delta_attention",
    "chunk_kimi_delta_attention",
)
LOG = "cubinery.compat.transformers"


class Calls(dict):
    """How often each operator was called."""

    def count(self, monkeypatch, name, function):
        self[name] = 0

        def counted(*args, **kwargs):
            self[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(functional, name, counted)


OPERATORS = {
    "gdn_prefill": recurrence.gdn_prefill,
    "gdn_decode": recurrence.gdn_decode,
    "gdn_verify": recurrence.gdn_verify,
    "gdn_conv": convolution.gdn_conv,
}


def counts(**calls):
    return {**dict.fromkeys(OPERATORS, 0), **calls}


@pytest.fixture(autouse=True)
def disabled():
    yield
    transformers.disable()


# --- a module that is laid out as theirs, on arrays of numpy


class Tensor:
    """What torch.Tensor is to numpy's arrays here: another class."""


class Layer:
    def modules(self):
        return [self]


@pytest.fixture
def fake(monkeypatch):
    """torch and Transformers as far as the adapter asks for them; their functions return "theirs"."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.nn = Tensor, types.SimpleNamespace(Parameter=Tensor)
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: torch.compiling)
    torch.jit = types.SimpleNamespace(is_tracing=lambda: False)
    torch.compiling, torch.is_grad_enabled = False, lambda: True
    torch.version = types.SimpleNamespace(cuda="13.0")
    torch.cuda = types.SimpleNamespace(get_device_capability=lambda device: (9, 0))
    package = types.ModuleType("transformers")
    package.__version__ = "5.24.0"
    modeling = types.ModuleType("transformers.models.qwen3_5.modeling_qwen3_5")
    for name in NAMES:
        setattr(modeling, name, lambda *args, _name=name, **kwargs: f"their {_name}")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", package)
    for name in ("models", "models.qwen3_5"):
        monkeypatch.setitem(
            sys.modules, f"transformers.{name}", types.ModuleType(f"transformers.{name}")
        )
    monkeypatch.setitem(sys.modules, modeling.__name__, modeling)
    monkeypatch.setattr(_arrays, "device_of", lambda array, name: 0)
    modeling.torch = torch
    return modeling


@pytest.fixture
def calls(monkeypatch):
    found = Calls()
    for name, function in OPERATORS.items():
        found.count(monkeypatch, name, function)
    return found


def layer_of(modeling):
    return type("GatedDeltaNet", (Layer,), {"__module__": modeling.__name__})()


def functions_of(modeling):
    return {name: getattr(modeling, name) for name in NAMES}


random = np.random.default_rng(1)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def convolution_inputs(tokens=T):
    """hidden_states [B, D, T] whose memory is [B, T, D], and a weight."""
    return normal(B, tokens, D).swapaxes(1, 2), normal(D, W)


def rule_inputs(tokens=T, dim=K):
    x = {"query": normal(B, tokens, H, dim), "key": normal(B, tokens, H, dim)}
    gates = {"g": -np.abs(normal(B, tokens, HV)), "beta": np.abs(normal(B, tokens, HV)) / 4}
    return {**x, "value": normal(B, tokens, HV, V), **gates}


def test_needs_neither_torch_nor_transformers():
    program = (
        "import sys\n"
        "for name in ('torch', 'fla', 'transformers'): sys.modules[name] = None\n"
        "from cubinery.compat import transformers\n"
        "transformers.disable()\n"
        "try: transformers.enable()\n"
        "except ImportError: pass\n"
        "else: raise SystemExit('no ImportError')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("by_model", [False, True])
def test_enable_replaces_and_disable_restores(fake, by_model):
    before = functions_of(fake)
    transformers.disable()  # nothing to undo
    assert functions_of(fake) == before
    model = layer_of(fake) if by_model else None
    for _ in range(2):
        transformers.enable(model)
        ours = functions_of(fake)
        assert all(ours[name] is not before[name] for name in NAMES)
        assert [function.__name__ for function in ours.values()] == list(NAMES)
        transformers.enable(model)  # once is enough
        assert functions_of(fake) == ours
        transformers.disable()
        assert functions_of(fake) == before


def test_a_model_of_another_module_leaves_this_one_alone(fake, monkeypatch):
    other = types.ModuleType("transformers.models.other.modeling_other")
    for name in NAMES:
        setattr(other, name, len)
    monkeypatch.setitem(sys.modules, other.__name__, other)
    before = functions_of(fake)
    transformers.enable(layer_of(other))
    assert other.causal_conv1d_fn is not len and functions_of(fake) == before


def test_what_has_no_functions_is_refused(fake):
    with pytest.raises(InvalidArgumentError, match="model: int; accepted: a torch.nn.Module"):
        transformers.enable(3)
    with pytest.raises(InvalidArgumentError, match="Layer has no layers of Gated DeltaNet or Kimi"):
        transformers.enable(Layer())
    del fake.causal_conv1d_fn
    with pytest.raises(UnsupportedError, match=r"Transformers 5\.24\.0 has no .* 5\.15 and newer"):
        transformers.enable()


def test_layers_that_hold_their_functions(fake, calls):
    """Transformers before 5.15: the module's names are FLA's functions, or None."""
    fake.chunk_gated_delta_rule = None
    before = functions_of(fake)
    with pytest.raises(UnsupportedError, match=r"enable\(model\) for models of 5\.0 to 5\.14"):
        transformers.enable()
    layer = layer_of(fake)
    layer.causal_conv1d_fn = None
    held = ("causal_conv1d_update", "chunk_gated_delta_rule", "recurrent_gated_delta_rule")
    for name in held:
        setattr(layer, name, lambda *args, _name=name, **kwargs: f"their {_name}")
    originals = dict(vars(layer))
    transformers.enable(layer)
    transformers.enable(layer)
    assert functions_of(fake) == before and layer.causal_conv1d_fn is None
    o, state = layer.chunk_gated_delta_rule(**rule_inputs(), output_final_state=True)
    assert o.shape == (B, T, HV, V) and state.shape == (B, HV, K, V)
    assert calls["gdn_prefill"] == 1
    transformers.disable()
    assert vars(layer) == originals


def test_a_layer_that_is_gone_is_not_restored(fake):
    layer = layer_of(fake)
    layer.chunk_gated_delta_rule = layer.recurrent_gated_delta_rule = len
    fake.chunk_gated_delta_rule = None
    transformers.enable(layer)
    del layer
    transformers.disable()


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("biased", [False, True])
def test_convolution_from_zeros(fake, calls, activation, biased):
    transformers.enable()
    x, weight = convolution_inputs()
    bias = normal(D) if biased else None
    y = fake.causal_conv1d_fn(x, weight, bias, activation=activation, position_ids=None)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (W - 1, 0)))
    expected = sum(weight[:, i, None] * padded[:, :, i : i + T] for i in range(W))
    expected = expected if bias is None else expected + bias[:, None]
    expected = expected if activation is None else expected / (1 + np.exp(-expected))
    np.testing.assert_allclose(y, expected, atol=1e-5)
    assert y.swapaxes(1, 2).flags.c_contiguous
    assert calls == counts(gdn_conv=1)


def test_convolution_goes_on(fake, calls):
    transformers.enable()
    x, weight = convolution_inputs()
    whole = fake.causal_conv1d_fn(x, weight, None, "silu")
    state = np.pad(x, ((0, 0), (0, 0), (W, 0)))[:, :, :W].copy()
    for t in range(T):
        y = fake.causal_conv1d_update(x[:, :, t : t + 1], state, weight, None, "silu")
        np.testing.assert_array_equal(y, whole[:, :, t : t + 1])
    np.testing.assert_array_equal(state, x[:, :, T - W :])  # in place


def test_convolution_of_packed_sequences(fake, calls):
    transformers.enable()
    x, weight = convolution_inputs()
    x, bounds = x[:1], np.array([0, 2, T], np.int32)
    packed = {"seq_idx": np.array([[0, 0, 1, 1, 1]], np.int32), "cu_seq_lens_q": bounds}
    y = fake.causal_conv1d_fn(x, weight, None, activation="silu", **packed)
    for first, last in ((0, 2), (2, T)):
        alone = fake.causal_conv1d_fn(x[:, :, first:last], weight, None, activation="silu")
        np.testing.assert_array_equal(y[:, :, first:last], alone)


def test_rule_of_several_tokens_and_of_one(fake, calls):
    transformers.enable()
    x = rule_inputs()
    options = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    o, final = fake.torch_chunk_gated_delta_rule(
        **x, **options, initial_state=None, cu_seqlens=None, chunk_size=64, position_ids=None
    )
    assert calls == counts(gdn_prefill=1)
    state = np.zeros((B, HV, K, V), np.float32)
    for t in range(T):
        token = {name: array[:, t : t + 1] for name, array in x.items()}
        row, after = fake.torch_recurrent_gated_delta_rule(**token, **options, initial_state=state)
        assert after is state  # in place
        np.testing.assert_allclose(row, o[:, t : t + 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, final, rtol=1e-4, atol=1e-5)
    assert calls == counts(gdn_prefill=1, gdn_decode=T)
    before = state.copy()
    _, none = fake.torch_recurrent_gated_delta_rule(**token, initial_state=state)
    assert none is None
    np.testing.assert_array_equal(state, before)


class Trained(np.ndarray):
    requires_grad = True


def changed(inputs, **change):
    return {**inputs, **change}


LEFT = [
    ("causal_conv1d_fn", {"activation": "gelu"}, "activation is 'gelu'"),
    ("causal_conv1d_fn", {"weight": normal(D, 5)}, "the width of weight is 5; supported: 2 or 3"),
    ("causal_conv1d_fn", {"weight": np.zeros((D, W))}, "weight is float64"),
    ("causal_conv1d_fn", {"weight": normal(D, W).view(Trained)}, "weight requires grad"),
    ("causal_conv1d_fn", {"seq_idx": np.zeros((1, T), np.int32)}, r"seq_idx has shape \[1, 5\]"),
    ("causal_conv1d_update", {"conv_state": normal(B, D, W + 3)}, r"conv_state has shape"),
    ("causal_conv1d_update", {"conv_state": normal(B, D, W).view(Trained)}, "requires grad"),
    ("torch_chunk_gated_delta_rule", {"query": normal(B, T, H, 24)}, "k has shape"),
    ("torch_chunk_gated_delta_rule", {"value": normal(B, T, HV, 24)}, "V is 24; supported"),
    ("torch_chunk_gated_delta_rule", {"beta": np.zeros((B, T, HV))}, "beta is float64"),
    ("torch_recurrent_gated_delta_rule", {"value": normal(B, T, HV, 272)}, "V is 272; supported"),
    ("torch_recurrent_gated_delta_rule", {"g": normal(B, T, HV).view(Trained)}, "g requires grad"),
    *((name, {"made_up": 1}, "unknown argument made_up") for name in NAMES),
]


def inputs_of(name):
    if "conv1d" not in name:
        return rule_inputs()
    x, weight = convolution_inputs()
    inputs = {"hidden_states": x, "weight": weight, "activation": "silu"}
    return inputs if name.endswith("fn") else {**inputs, "conv_state": normal(B, D, W)}


@pytest.mark.parametrize("name", NAMES)
def test_keywords_of_the_model_are_not_for_the_functions(fake, calls, name):
    """Their layers hand all of them on."""
    transformers.enable()
    handed_on = {
        **{"use_cache": True, "output_attentions": False, "output_hidden_states": True},
        **{"output_router_logits": True, "num_items_in_batch": 3, "is_causal": True},
        **{"position_ids": np.arange(T)[None], "cu_seq_lens_k": np.array([0, T], np.int32)},
        **{"max_length_q": T, "max_length_k": T, "cache_position": np.arange(T), "made_up": None},
    }
    result = getattr(fake, name)(**inputs_of(name), **handed_on)
    assert not isinstance(result, str)
    assert sum(calls.values()) == 1


@pytest.mark.parametrize("name, change, reason", LEFT)
def test_what_is_left_to_transformers_is_said_once(fake, calls, caplog, name, change, reason):
    caplog.set_level(logging.INFO, logger=LOG)
    transformers.enable()
    for _ in range(2):
        assert getattr(fake, name)(**{**inputs_of(name), **change}) == f"their {name}"
    assert set(calls.values()) == {0}
    (record,) = caplog.records
    assert record.levelno == logging.INFO and record.name == LOG
    assert record.getMessage().endswith("Transformers' own function runs instead")
    caplog.clear()
    transformers.enable()  # says it again
    getattr(fake, name)(**{**inputs_of(name), **change})
    assert len(caplog.records) == 1
    assert re.search(reason, caplog.records[0].getMessage())


@pytest.mark.parametrize("name", NAMES)
def test_other_devices_and_traces_are_left_to_transformers(fake, calls, caplog, monkeypatch, name):
    caplog.set_level(logging.INFO, logger=LOG)
    transformers.enable()
    function, theirs = getattr(fake, name), f"their {name}"
    assert not isinstance(function(**inputs_of(name)), str)
    fake.torch.compiling = True
    assert function(**inputs_of(name)) == theirs and not caplog.records
    fake.torch.compiling = False
    fake.torch.cuda.get_device_capability = lambda device: (7, 5)
    assert function(**inputs_of(name)) == theirs and "sm_80" in caplog.text

    def on_the_host(array, name):
        raise InvalidArgumentError(f"{name}: is on device cpu")

    monkeypatch.setattr(_arrays, "device_of", on_the_host)
    assert function(**inputs_of(name)) == theirs and "is on device cpu" in caplog.text
    fake.torch.Tensor = np.ndarray
    fake.torch.nn.Parameter = fake.torch.Tensor
    fed = inputs_of(name)
    first = "hidden_states" if "conv1d" in name else "query"
    fed[first] = fed[first].view(type("DTensor", (np.ndarray,), {}))
    assert function(**fed) == theirs and f"{first} is a DTensor; supported: plain" in caplog.text


# --- Kimi Delta Attention


@pytest.fixture
def fake_kda(fake, monkeypatch):
    """A module of Kimi Delta Attention, in the place of the other."""
    modeling = types.ModuleType("transformers.models.kimi_linear.modeling_kimi_linear")
    for name in KDA_NAMES:
        setattr(modeling, name, lambda *args, _name=name, **kwargs: f"their {_name}")
    monkeypatch.setitem(
        sys.modules, "transformers.models.kimi_linear", types.ModuleType("kimi_linear")
    )
    monkeypatch.setitem(sys.modules, modeling.__name__, modeling)
    modeling.torch = fake.torch
    return modeling


def kda_inputs(tokens=1):
    x = {name: normal(B, tokens, H, K) for name in ("query", "key")}
    x |= {"value": normal(B, tokens, H, V), "g": -np.abs(normal(B, tokens, H, K))}
    return {**x, "beta": np.abs(normal(B, tokens, H)) / 4}


def torch_recurrent_kda(query, key, value, g, beta, state):
    """recurrent_kimi_delta_attention with use_qk_l2norm_in_kernel, in float64."""
    query, key, value, g, beta, state = map(np.float64, (query, key, value, g, beta, state))
    query, key = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (query, key))
    out = np.zeros(value.shape)
    for i in range(query.shape[1]):
        k_i = key[:, i][..., None]
        state = state * np.exp(g[:, i])[..., None]
        delta = (value[:, i] - (state * k_i).sum(-2)) * beta[:, i][..., None]
        state = state + k_i * delta[..., None, :]
        out[:, i] = (state * query[:, i][..., None] * K**-0.5).sum(-2)
    return out, state


@pytest.mark.parametrize("by_model", [False, True])
def test_enable_takes_kimi_delta_attention(fake_kda, fake, calls, by_model):
    before = {name: getattr(fake_kda, name) for name in KDA_NAMES}
    transformers.enable(layer_of(fake_kda) if by_model else None)
    assert all(getattr(fake_kda, name) is not before[name] for name in KDA_NAMES)
    is_theirs = isinstance(fake.torch_chunk_gated_delta_rule(**rule_inputs()), str)
    assert is_theirs == by_model  # of another module
    transformers.disable()
    assert all(getattr(fake_kda, name) is before[name] for name in KDA_NAMES)


@pytest.mark.parametrize("tokens", [1, 7, 70])
@pytest.mark.parametrize("initial", [False, True])
def test_prefill_of_kimi_delta_attention(fake_kda, calls, tokens, initial):
    transformers.enable()
    x, start = kda_inputs(tokens), normal(B, H, K, V) if initial else None
    before = None if start is None else start.copy()
    o, after = fake_kda.chunk_kimi_delta_attention(
        x["query"], x["key"], x["value"], g=x["g"], beta=x["beta"], initial_state=start,
        output_final_state=True, use_qk_l2norm_in_kernel=True, position_ids=None, use_cache=True,
    )  # fmt: skip
    expected, expected_state = torch_recurrent_kda(
        **x, state=np.zeros((B, H, K, V)) if start is None else start
    )
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after, expected_state, rtol=1e-5, atol=1e-5)
    assert start is None or (start == before).all()
    o, after = fake_kda.chunk_kimi_delta_attention(**x, initial_state=start)
    assert after is None and calls == counts(gdn_prefill=2)


def test_packed_prefill_of_kimi_delta_attention(fake_kda, calls):
    """The bounds are the model's keyword."""
    transformers.enable()
    x = {name: array[:1] for name, array in kda_inputs(9).items()}
    bounds = np.array([0, 4, 9], np.int32)
    o, _ = fake_kda.chunk_kimi_delta_attention(
        **x, use_qk_l2norm_in_kernel=True, cu_seq_lens_q=bounds, cu_seq_lens_k=bounds,
        max_length_q=5, seq_idx=np.zeros((1, 9), np.int32),
    )  # fmt: skip
    for part in (slice(0, 4), slice(4, 9)):
        alone = {name: array[:, part] for name, array in x.items()}
        expected = torch_recurrent_kda(**alone, state=np.zeros((1, H, K, V)))[0]
        np.testing.assert_allclose(o[:, part], expected, rtol=1e-5, atol=1e-5)
    assert calls == counts(gdn_prefill=1)


def test_tokens_of_kimi_delta_attention(fake_kda, calls):
    transformers.enable()
    state = normal(B, H, K, V)
    expected_state = state.copy()
    for t in range(3):
        x = kda_inputs()
        o, after = fake_kda.recurrent_kimi_delta_attention(
            x["query"], x["key"], x["value"], g=x["g"], beta=x["beta"], initial_state=state,
            output_final_state=True, use_qk_l2norm_in_kernel=True, position_ids=None,
            use_cache=True,
        )  # fmt: skip
        assert after is state  # in place
        expected, expected_state = torch_recurrent_kda(**x, state=expected_state)
        np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-6)
    assert calls == counts(gdn_decode=3)
    few = kda_inputs(tokens=4)
    o, _ = fake_kda.recurrent_kimi_delta_attention(
        **few, initial_state=state, output_final_state=False, use_qk_l2norm_in_kernel=True
    )
    np.testing.assert_allclose(o, torch_recurrent_kda(**few, state=state)[0], rtol=1e-5, atol=1e-6)
    assert calls == counts(gdn_decode=3, gdn_verify=1)


@pytest.mark.parametrize("name", ["recurrent_kimi_delta_attention", "chunk_kimi_delta_attention"])
@pytest.mark.parametrize(
    "change, reason",
    [
        ({"g": normal(B, 1, H)}, "g has shape"),
        ({"g": np.zeros((B, 1, H, K))}, "g is float64"),
        ({"beta": normal(B, 1, H).view(Trained)}, "beta requires grad"),
        ({"initial_state": normal(B, H, V, K)}, "initial_state has shape"),
        ({"cu_seqlens": np.arange(3)}, "unknown argument cu_seqlens"),
    ],
)
def test_what_is_left_of_kimi_delta_attention(fake_kda, calls, caplog, change, reason, name):
    caplog.set_level(logging.INFO, logger=LOG)
    transformers.enable()
    fed = {**kda_inputs(), "initial_state": None, "output_final_state": True, **change}
    assert getattr(fake_kda, name)(**fed) == f"their {name}"
    assert calls == counts() and reason in caplog.text


def test_packed_sequences_behind_a_cache_are_theirs(fake_kda, calls):
    transformers.enable()
    x = {name: array[:1] for name, array in kda_inputs(9).items()}
    o = fake_kda.chunk_kimi_delta_attention(
        **x, initial_state=normal(1, H, K, V), cu_seq_lens_q=np.array([0, 4, 9])
    )
    assert o == "their chunk_kimi_delta_attention" and calls == counts()


# --- the launches, on a GPU that is not there


@pytest.fixture
def launched(gpu, context, monkeypatch):
    """The operators that are launched."""
    found = []

    def through(name):
        function = getattr(functional, name)

        def call(*arrays, **options):
            fed = [on_gpu(array) for array in arrays]
            named = {key: on_gpu(value) for key, value in options.items()}
            out = np.empty_like(arrays[0] if name == "gdn_conv" else arrays[2])
            named["y" if name == "gdn_conv" else "out"] = on_gpu(out)
            if name == "gdn_prefill":
                named["workspace"] = on_gpu(np.empty(1 << 24, np.float32))
            function(*fed, **named, context=context)
            return out

        return call

    def noted(cls):
        launch = cls.__call__

        def call(operator, *arrays, **named):
            before = gpu.launches
            launch(operator, *arrays, **named)
            assert gpu.launches > before
            found.append(operator.problem)

        return call

    for name in OPERATORS:
        monkeypatch.setattr(functional, name, through(name))
    for cls in (Conv, Prefill, Decode, Verify):
        monkeypatch.setattr(cls, "__call__", noted(cls))
    return found


def check(problem, **fields):
    assert {name: getattr(problem, name) for name in fields} == fields


def test_launches(fake, launched):
    transformers.enable()
    x, weight = (array.astype(np.float16) for array in convolution_inputs())
    fake.causal_conv1d_fn(x, weight, None, activation="silu")
    fake.causal_conv1d_update(x[:, :, :1], normal(B, D, W).astype(np.float16), weight, None, "silu")
    common = {"dtype": "f16", "weight_dtype": "f16", "width": W, "split_qkv": False}
    check(launched[0], **common, has_initial_state=False, store_state=False, varlen=False)
    check(launched[1], **common, has_initial_state=True, store_state=True, whole_window=True)
    rules = {name: array.astype(np.float16) for name, array in rule_inputs(tokens=1).items()}
    rules["g"] = rules["g"].astype(np.float32)  # as the layers compute it
    options = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    _, state = fake.torch_chunk_gated_delta_rule(**rules, **options)
    fake.torch_recurrent_gated_delta_rule(**rules, **options, initial_state=state)
    common = {
        "q_heads": H, "v_heads": HV, "key_dim": K, "value_dim": V, "dtype": "f16",
        "gate_mode": "log", "gate_dtype": "f32", "beta_mode": "given", "beta_dtype": "f16",
        "use_qk_l2norm": True, "state_layout": "kv", "state_dtype": "f32", "store_state": True,
    }  # fmt: skip
    check(launched[2], **common, has_initial_state=False)
    check(launched[3], **common, has_initial_state=True)
    assert len(launched) == 4


@pytest.mark.parametrize("gate_dtype", [np.float32, np.float16])
def test_launches_of_kimi_delta_attention(fake_kda, launched, gate_dtype):
    """Bailing's layers round g to the dtype of the activations."""
    transformers.enable()
    for tokens in (1, 4):
        x = {name: array.astype(np.float16) for name, array in kda_inputs(tokens).items()}
        x["g"] = x["g"].astype(gate_dtype)
        fake_kda.recurrent_kimi_delta_attention(
            **x, initial_state=normal(B, H, K, V), output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )  # fmt: skip
    fake_kda.chunk_kimi_delta_attention(
        **x, initial_state=normal(B, H, K, V), output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    for problem in launched:
        check(
            problem, q_heads=H, v_heads=H, key_dim=K, value_dim=V, dtype="f16", decay="channel",
            gate_mode="log", gate_dtype="f32" if gate_dtype is np.float32 else "f16",
            beta_mode="given", use_qk_l2norm=True, state_layout="kv", state_dtype="f32",
            has_initial_state=True, store_state=True,
        )  # fmt: skip
    kinds = [type(problem).__name__ for problem in launched]
    assert kinds == ["DecodeProblem", "VerifyProblem", "PrefillProblem"]


# --- real models


needs_transformers = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
    reason="no PyTorch or no Transformers",
)


def on_tensors(function):
    """An operator of numpy's arrays for tensors on the CPU, whose memory they share."""
    import torch

    def array(value):
        return value.detach().numpy() if isinstance(value, torch.Tensor) else value

    def call(*args, **kwargs):
        named = {key: array(value) for key, value in kwargs.items()}
        return torch.from_numpy(function(*map(array, args), **named))

    return call


@pytest.fixture
def emulated(monkeypatch):
    """The operators for tensors on the CPU, and how often each is called."""
    found = Calls()
    for name, function in OPERATORS.items():
        found.count(monkeypatch, name, on_tensors(function))
    monkeypatch.setattr(_arguments, "require_gpu", lambda function, name, array: None)
    return found


@pytest.fixture
def models(monkeypatch):
    """Models by name, built once; nothing of this makes a gradient."""
    import torch

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with torch.no_grad():
        yield hf_models.build


def assert_alike(ours, theirs):
    assert ours.isfinite().all()
    difference = (ours - theirs).abs().max()
    assert difference <= 1e-4 * theirs.abs().max(), difference


def assert_parts_alike(model):
    """A short prefill, one that goes on from the cache, and one token, against one prefill of
    Transformers'."""
    ids = hf_models.prompt(2, 14)
    theirs = model(ids).logits
    transformers.enable(model)
    cache, parts = None, []
    for first, last in ((0, 2), (2, 13), (13, 14)):
        out = model(ids[:, first:last], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        parts.append(out.logits)
    for first, part in zip((0, 2, 13), parts):
        assert_alike(part, theirs[:, first : first + part.shape[1]])


LINEAR_LAYERS = 3


@needs_transformers
@pytest.mark.parametrize("name", hf_models.MODELS)
class TestModels:
    def test_on_the_cpu_nothing_changes(self, models, caplog, name):
        caplog.set_level(logging.INFO, logger=LOG)
        model, ids = models(name), hf_models.prompt(2, 9)
        modeling = hf_models.modeling(name)
        before = functions_of(modeling)
        theirs = model(ids).logits
        transformers.enable()
        assert all(getattr(modeling, key) is not before[key] for key in NAMES)
        ours = model(ids).logits
        assert (ours == theirs).all() and "is on device cpu" in caplog.text
        transformers.disable()
        assert functions_of(modeling) == before

    def test_logits_and_calls(self, models, emulated, name):
        model, ids = models(name), hf_models.prompt(2, 70)
        theirs = model(ids).logits
        transformers.enable(model)
        ours = model(ids).logits
        assert_alike(ours, theirs)
        assert emulated == counts(gdn_prefill=LINEAR_LAYERS, gdn_conv=LINEAR_LAYERS)

    def test_padding(self, models, emulated, name):
        model, ids = models(name), hf_models.prompt(2, 12)
        mask = ids.new_ones(2, 12)
        mask[0, :5] = 0
        theirs = model(ids, attention_mask=mask).logits[mask.bool()]
        transformers.enable(model)
        assert_alike(model(ids, attention_mask=mask).logits[mask.bool()], theirs)
        assert emulated["gdn_prefill"] == LINEAR_LAYERS

    def test_parts(self, models, emulated, name):
        """A short prefill, one that goes on from the cache, and one token."""
        assert_parts_alike(models(name))
        calls = {"gdn_prefill": 2, "gdn_decode": 1, "gdn_conv": 3}
        assert emulated == counts(**{key: LINEAR_LAYERS * value for key, value in calls.items()})

    def test_generation(self, models, emulated, name):
        model, ids = models(name), hf_models.prompt(2, 5)
        options = {"max_new_tokens": 12, "do_sample": False}
        theirs = model.generate(ids, **options)
        beams = model.generate(ids, num_beams=2, **options)
        transformers.enable(model)
        assert (model.generate(ids, **options) == theirs).all()
        assert emulated["gdn_decode"] == 11 * LINEAR_LAYERS
        assert (model.generate(ids, num_beams=2, **options) == beams).all()

    def test_training_is_theirs(self, models, emulated, name):
        import torch

        model, ids = models(name), hf_models.prompt(1, 6)
        transformers.enable(model)
        with torch.enable_grad():
            model(ids, labels=ids).loss.backward()
        assert all(p.grad is not None for key, p in model.named_parameters() if "conv1d" in key)
        assert set(emulated.values()) == {0}


@needs_transformers
@pytest.mark.parametrize("name", hf_models.KDA_MODELS)
class TestModelsOfKimiDeltaAttention:
    def test_parts(self, models, emulated, name):
        """A short prefill, one that goes on from the cache, and one token."""
        assert_parts_alike(models(name))
        assert emulated == counts(
            gdn_prefill=2 * LINEAR_LAYERS, gdn_decode=LINEAR_LAYERS, gdn_conv=3 * LINEAR_LAYERS
        )

    def test_generation(self, models, emulated, name):
        model, ids = models(name), hf_models.prompt(2, 5)
        options = {"max_new_tokens": 12, "do_sample": False}
        theirs = model.generate(ids, **options)
        transformers.enable(model)
        assert (model.generate(ids, **options) == theirs).all()
        assert emulated["gdn_decode"] == 11 * LINEAR_LAYERS
        transformers.disable()
        assert (model.generate(ids, **options) == theirs).all()
        assert emulated["gdn_decode"] == 11 * LINEAR_LAYERS


@needs_transformers
def test_layers_of_glm(models, emulated):
    """Its lower bound is in g, which the layers compute."""
    model, ids = models("glm5_next"), hf_models.prompt(2, 14)
    theirs = model(ids).last_hidden_state
    transformers.enable(model)
    out = model(ids[:, :13], use_cache=True)
    assert_alike(out.last_hidden_state, theirs[:, :13])
    assert emulated == counts(gdn_prefill=LINEAR_LAYERS, gdn_conv=LINEAR_LAYERS)
    out = model(ids[:, 13:], cache=out.cache, use_cache=True)
    assert_alike(out.last_hidden_state, theirs[:, 13:])
    assert emulated == counts(
        gdn_prefill=LINEAR_LAYERS, gdn_decode=LINEAR_LAYERS, gdn_conv=2 * LINEAR_LAYERS
    )


@needs_transformers
def test_a_compiled_layer_is_theirs(models, emulated):
    import torch

    model = models("qwen3_5")
    layer = model.model.layers[0].linear_attn
    x = torch.randn(1, 7, hf_models.HIDDEN)
    theirs = layer(x)
    transformers.enable(model)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert_alike(compiled(x), theirs)
    assert set(emulated.values()) == {0}


@needs_transformers
def test_packed_sequences(models, emulated):
    """Transformers' own functions refuse them without other packages."""
    import torch

    model = models("qwen3_5")
    layer = model.model.layers[0].linear_attn
    x = torch.randn(1, 9, hf_models.HIDDEN)
    alone = torch.cat([layer(x[:, :4]), layer(x[:, 4:])], dim=1)
    transformers.enable(model)
    bounds = torch.tensor([0, 4, 9], dtype=torch.int32)
    index = torch.tensor([[0] * 4 + [1] * 5], dtype=torch.int32)
    assert_alike(layer(x, cu_seq_lens_q=bounds, seq_idx=index), alone)
    assert emulated == counts(gdn_prefill=1, gdn_conv=1)
