"""The adapters' keywords.  Flags: their truth is as Python has it, and that of an array is not
asked for.  Unknown ones: None asks for nothing, anything else is refused by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import convolution
import numpy as np
import pytest
import recurrence

from cubinery import Error, InvalidArgumentError, functional
from cubinery.compat import (
    _vllm_kda, causal_conv1d, fla, flash_kda, flashinfer, sglang, tensorrt_llm, tokenspeed, vllm,
)  # fmt: skip

MODULES = (causal_conv1d, fla, flash_kda, flashinfer, sglang, tensorrt_llm, tokenspeed, vllm)
PARTS = {"_fla_gdn": "fla", "_fla_kda": "fla", "_vllm_kda": "vllm"}  # of modules in several files
N, T, H, HV, K, V = 2, 3, 2, 4, 16, 16
C, W, SLOTS = 8, 4, 4
SPANS = np.arange(0, N * T + 1, T, dtype=np.int32)
SLOT_OF = np.arange(1, N + 1, dtype=np.int32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def rows(*lead: int, **renamed: str) -> dict[str, np.ndarray]:
    shapes = {"q": (H, K), "k": (H, K), "v": (HV, V), "g": (HV,), "beta": (HV,)}
    return {renamed.get(name, name): zeros(*lead, *shape) for name, shape in shapes.items()}


def computed(*lead: int) -> dict[str, np.ndarray]:
    return {**rows(*lead, g="a", beta="b"), "A_log": zeros(HV), "dt_bias": zeros(HV)}


def pool() -> np.ndarray:
    return zeros(SLOTS, HV, V, K)


def packed_decode() -> dict[str, Any]:
    return {
        **{"mixed_qkv": zeros(N, 2 * H * K + HV * V), "a": zeros(N, HV), "b": zeros(N, HV)},
        **{"A_log": zeros(HV), "dt_bias": zeros(HV), "scale": None, "initial_state": pool()},
        **{"out": zeros(N, 1, HV, V), "ssm_state_indices": SLOT_OF},
    }


def fused_mtp() -> dict[str, Any]:
    packed = packed_decode()
    del packed["initial_state"], packed["ssm_state_indices"]
    return {
        **packed,
        **{"state_indices": SLOT_OF[:, None], "cu_seqlens": np.arange(N + 1, dtype=np.int32)},
        **{"num_accepted_tokens": np.ones(N, np.int32), "state": pool()},
        **{"output_gate": zeros(N, HV, V), "norm_weight": zeros(V), "out": zeros(N, HV, V)},
    }


def taps() -> dict[str, np.ndarray]:
    return {"weight": zeros(C, W), "bias": zeros(C)}


def of_sglang() -> dict[str, Any]:
    return {
        **{**computed(N, T), "softplus_beta": 1.0, "softplus_threshold": 20.0},
        **{"initial_state_source": pool(), "initial_state_indices": SLOT_OF},
    }


def of_vllm(tokens: dict[str, np.ndarray]) -> dict[str, Any]:
    return {**tokens, "initial_state": pool(), "ssm_state_indices": SLOT_OF}


def of_kda(**renamed: str) -> dict[str, Any]:
    """Rows of one token of each request, packed, with a decay for each channel."""
    x = {**rows(1, N), "g": zeros(1, N, HV, K)}
    return {renamed.get(name, name): array for name, array in x.items()}


def kda_pool() -> dict[str, Any]:
    return {
        **{"initial_state": pool(), "cu_seqlens": np.arange(N + 1, dtype=np.int32)},
        "ssm_state_indices": SLOT_OF,
    }


def kda_gates() -> dict[str, Any]:
    return {"A_log": zeros(HV), "dt_bias": zeros(HV * K), "lower_bound": None}


def kda_packed() -> dict[str, Any]:
    packed = packed_decode()
    del packed["a"], packed["b"], packed["out"], packed["ssm_state_indices"]
    gates = {"raw_g": zeros(1, N, HV, K), "raw_beta": zeros(1, N, HV)}
    return {**packed, **gates, **kda_gates(), "state_indices": SLOT_OF}


def kda_fused() -> dict[str, Any]:
    return {
        **{"x": zeros(N, 3 * HV * K), "weight": zeros(3, W, HV * K), "bias": None},
        **{"conv_state": zeros(SLOTS, 3 * HV * K, W - 1), "state": pool(), **kda_gates()},
        **{"raw_g": zeros(1, N, HV, K), "raw_beta": zeros(1, N, HV), "state_indices": SLOT_OF},
    }


def fla_kda() -> dict[str, Any]:
    return {**rows(N, 1), "g": zeros(N, 1, HV, K)}


def kda_chunks(**renamed: str) -> dict[str, Any]:
    x = {**rows(1, N * T), "g": zeros(1, N * T, HV, K), **PREFILL}
    return {renamed.get(name, name): array for name, array in x.items()}


def flash() -> dict[str, Any]:
    x = {name: zeros(1, N * T, HV, K) for name in ("q", "k", "v", "g", "out")}
    return {
        **{**x, "beta": zeros(1, N * T, HV), "scale": 1.0, "A_log": zeros(HV), **PREFILL},
        **{"dt_bias": zeros(HV, K), "lower_bound": -5.0},
    }


PREFILL = {"cu_seqlens": SPANS}
GATED = {"A_log": zeros(HV)}
# Of each function what it is called with, and its flags with what they need besides.
FUNCTIONS: dict[Any, tuple[Any, dict[str, dict[str, Any]]]] = {
    causal_conv1d.causal_conv1d_fn: (
        lambda: {"x": zeros(N, C, T), **taps()},
        {"return_final_states": {}},
    ),
    causal_conv1d.causal_conv1d_update: (
        lambda: {"x": zeros(N, C), "conv_state": zeros(N, C, W - 1), **taps()},
        {},
    ),
    causal_conv1d.causal_conv1d_split_qkv: (
        lambda: {
            **{"x": zeros(3 * C, N * T), "weight": zeros(3 * C, W), "bias": zeros(3 * C)},
            **{"conv_states": None, "query_start_loc": SPANS, "k_dim": C, "v_dim": C},
        },
        {"activation": {}},
    ),
    fla.chunk_gated_delta_rule: (
        lambda: rows(N, T),
        {
            "output_final_state": {},
            "use_qk_l2norm_in_kernel": {},
            "use_beta_sigmoid_in_kernel": {},
            "allow_neg_eigval": {"use_beta_sigmoid_in_kernel": True},
            "state_v_first": {},
            "transpose_state_layout": {},
            "use_gate_in_kernel": GATED,
        },
    ),
    fla.fused_recurrent_gated_delta_rule: (
        lambda: rows(N, 1),
        {
            "output_final_state": {},
            "use_qk_l2norm_in_kernel": {},
            "use_gate_in_kernel": GATED,
            "use_beta_sigmoid_in_kernel": {},
            "allow_neg_eigval": {"use_beta_sigmoid_in_kernel": True},
            "state_v_first": {},
            "transpose_state_layout": {},
        },
    ),
    fla.chunk_kda: (
        fla_kda,
        {
            "output_final_state": {},
            "use_qk_l2norm_in_kernel": {},
            "use_gate_in_kernel": GATED,
            "use_beta_sigmoid_in_kernel": {},
            "allow_neg_eigval": {"use_beta_sigmoid_in_kernel": True},
            "safe_gate": {**GATED, "use_gate_in_kernel": True},
            "return_intermediate_states": {},
            "state_v_first": {},
            "transpose_state_layout": {},
        },
    ),
    fla.fused_recurrent_kda: (
        fla_kda,
        {
            "output_final_state": {},
            "use_qk_l2norm_in_kernel": {},
            "use_gate_in_kernel": GATED,
            "use_beta_sigmoid_in_kernel": {},
            "allow_neg_eigval": {"use_beta_sigmoid_in_kernel": True},
            "state_v_first": {},
            "transpose_state_layout": {},
        },
    ),
    fla.fused_recurrent_kda_fwd: (
        lambda: {**fla_kda(), "initial_state": zeros(N, HV, K, V)},
        {
            "output_final_state": {"inplace_final_state": False},
            "inplace_final_state": {},
            "use_qk_l2norm_in_kernel": {},
            "use_gate_in_kernel": GATED,
            "use_beta_sigmoid_in_kernel": {},
            "allow_neg_eigval": {"use_beta_sigmoid_in_kernel": True},
            "state_v_first": {},
        },
    ),
    fla.causal_conv1d: (lambda: {"x": zeros(N, T, C), **taps()}, {"output_final_state": {}}),
    fla.causal_conv1d_update: (
        lambda: {"x": zeros(N, C), "cache": zeros(N, C, W), **taps()},
        {},
    ),
    flash_kda.fwd: (flash, {}),
    flashinfer.chunk_gated_delta_rule: (
        lambda: {**rows(N * T), **PREFILL},
        {"output_final_state": {}, "use_qk_l2norm_in_kernel": {}, "use_cp": {}},
    ),
    flashinfer.gated_delta_rule_decode_pretranspose: (
        lambda: {**computed(N, T), "state": zeros(N, HV, V, K)},
        {"use_qk_l2norm": {}, "disable_state_update": {}},
    ),
    flashinfer.gated_delta_rule_decode: (
        lambda: {**computed(N, 1), "state": zeros(N, HV, K, V)},
        {"use_qk_l2norm": {}},
    ),
    flashinfer.gated_delta_rule_mtp: (
        lambda: {**computed(N, T), "initial_state": pool(), "initial_state_indices": SLOT_OF},
        {"use_qk_l2norm": {}, "disable_state_update": {}, "cache_replayssm": {}},
    ),
    sglang.fused_sigmoid_gating_delta_rule_update: (
        of_sglang,
        {
            "use_qk_l2norm_in_kernel": {},
            "is_kda": {},
            "disable_state_update": {},
            "cache_ring": {},
            "match_cutedsl_decode": {},
        },
    ),
    sglang.fused_recurrent_gated_delta_rule_packed_decode: (
        packed_decode,
        {"use_qk_l2norm_in_kernel": {}},
    ),
    sglang.chunk_kda: (
        kda_chunks,
        {"use_qk_l2norm_in_kernel": {}, "output_intermediate_states": {}, "beta_is_raw": {}},
    ),
    sglang.fused_recurrent_kda_packed_decode: (
        lambda: {**packed_decode(), "a": zeros(N, HV * K), "dt_bias": zeros(HV * K)},
        {"use_qk_l2norm_in_kernel": {}},
    ),
    sglang.chunk_gated_delta_rule: (
        lambda: {**rows(1, N * T), **PREFILL},
        {
            "head_first": {},
            "use_qk_l2norm_in_kernel": {},
            "inplace_update": {"initial_state": pool(), "initial_state_indices": SLOT_OF},
            "output_h": {},
        },
    ),
    sglang.causal_conv1d_fn: (lambda: {"x": zeros(N, C, T), **taps()}, {"activation": {}}),
    sglang.causal_conv1d_update: (
        lambda: {"x": zeros(N, C), "conv_state": zeros(N, C, W - 1), **taps()},
        {"activation": {}},
    ),
    tensorrt_llm.chunk_gated_delta_rule: (
        lambda: {**rows(1, N * T), **PREFILL},
        {
            "inplace_indexed_state_update": {
                **{"initial_state": pool(), "initial_state_indices": SLOT_OF},
            },
            "output_final_state": {},
            "head_first": {},
            "use_qk_l2norm_in_kernel": {},
            "use_cp": {},
            "g_is_linear": {},
        },
    ),
    tensorrt_llm.fused_sigmoid_gating_delta_rule_update: (
        of_sglang,
        {"use_qk_l2norm_in_kernel": {}},
    ),
    tensorrt_llm.fused_recurrent_gated_delta_rule_update: (
        lambda: {
            **rows(N, T),
            **{"initial_state_source": pool(), "initial_state_indices": SLOT_OF},
        },
        {
            "use_qk_l2norm_in_kernel": {},
            "disable_state_update": {},
            "disable_output_calculation": {},
        },
    ),
    tensorrt_llm.causal_conv1d_fn: (lambda: {"x": zeros(N, C, T), **taps()}, {"activation": {}}),
    tensorrt_llm.causal_conv1d_update: (
        lambda: {"x": zeros(N, C), "conv_state": zeros(N, C, W - 1), **taps()},
        {"activation": {}},
    ),
    tokenspeed.gdn_chunk_prefill: (
        lambda: {
            **{**rows(1, N * T), **PREFILL, "scale": None},
            "initial_state": zeros(N, HV, V, K),
        },
        {"qk_l2norm": {}, "output_final_state": {}, "output_h": {}},
    ),
    tokenspeed.gdn_decode_step: (
        lambda: {**computed(N, 1), "initial_state": pool(), "initial_state_indices": SLOT_OF},
        {"use_qk_l2norm": {}},
    ),
    tokenspeed.gdn_decode_mtp: (
        lambda: {**computed(N, T), "initial_state": pool(), "initial_state_indices": SLOT_OF},
        {"use_qk_l2norm": {}, "disable_state_update": {}},
    ),
    tokenspeed.causal_conv1d_fn: (
        lambda: {
            **{"x": zeros(C, N * T), **taps(), "conv_states": None},
            "query_start_loc": SPANS,
        },
        {"activation": {}},
    ),
    tokenspeed.causal_conv1d_update: (
        lambda: {"x": zeros(N, C), "conv_state": zeros(N, C, W - 1), **taps()},
        {"activation": {}},
    ),
    vllm.fused_recurrent_gated_delta_rule: (
        lambda: of_vllm(rows(N, 1)),
        {"inplace_final_state": {}, "use_qk_l2norm_in_kernel": {}},
    ),
    vllm.fused_sigmoid_gating_delta_rule_update: (
        lambda: of_vllm(computed(N, 1)),
        {"inplace_final_state": {}, "use_qk_l2norm_in_kernel": {}, "is_kda": {}},
    ),
    vllm.fused_recurrent_gated_delta_rule_packed_decode: (
        packed_decode,
        {"use_qk_l2norm_in_kernel": {}},
    ),
    vllm.fused_gdn_decode_post_conv_mtp: (fused_mtp, {}),
    vllm.fused_recurrent_kda: (
        lambda: {**of_kda(g="raw_g", beta="raw_beta"), **kda_pool(), **kda_gates()},
        {},
    ),
    vllm.fused_recurrent_kda_packed_decode: (kda_packed, {}),
    vllm.fused_recurrent_kda_fwd: (
        lambda: {**of_kda(), "scale": None, **kda_pool()},
        {"inplace_final_state": {}, "use_qk_l2norm_in_kernel": {}},
    ),
    vllm.glm5next_fused_recurrent_kda: (
        lambda: {**of_kda(), **kda_pool()},
        {
            "inplace_final_state": {},
            "use_qk_l2norm_in_kernel": {},
            "sigmoid_beta": {},
            "compute_gate": {"a_log": zeros(HV), "g_bias": zeros(HV, K)},
        },
    ),
    vllm.fused_kda_decode: (kda_fused, {}),
    vllm.chunk_kda: (kda_chunks, {"output_final_state": {}, "use_qk_l2norm_in_kernel": {}}),
    vllm.chunk_kda_with_fused_gate: (
        lambda: {**kda_chunks(g="raw_g", beta="raw_beta"), "A_log": zeros(HV), "g_bias": None},
        {"output_final_state": {}, "use_qk_l2norm_in_kernel": {}},
    ),
    vllm.glm5next_chunk_kda_with_fused_gate: (
        lambda: {**kda_chunks(g="raw_g"), "A_log": zeros(HV), "g_bias": None},
        {"output_final_state": {}, "use_qk_l2norm_in_kernel": {}, "safe_gate": {}},
    ),
    vllm.flashkda_fwd: (lambda: {**flash(), "workspace": None}, {}),
    vllm.chunk_gated_delta_rule: (
        lambda: rows(N, T),
        {"output_final_state": {}, "head_first": {}, "use_qk_l2norm_in_kernel": {}},
    ),
    vllm.fi_chunk_gated_delta_rule: (
        lambda: {**rows(1, N * T), **PREFILL, "initial_state": None, "output_final_state": False},
        {"output_final_state": {}, "use_qk_l2norm_in_kernel": {}, "use_cp": {}},
    ),
    vllm.causal_conv1d_fn: (
        lambda: {
            **{"x": zeros(C, N * T), **taps(), "conv_states": None},
            "query_start_loc": SPANS,
        },
        {"activation": {}},
    ),
    vllm.causal_conv1d_update: (
        lambda: {"x": zeros(N, C), "conv_state": zeros(N, C, W - 1), **taps()},
        {"activation": {}},
    ),
}


def full_name(function: Any) -> str:
    module = function.__module__.removeprefix("cubinery.compat.")
    return f"{PARTS.get(module, module)}.{function.__name__}"


FLAGS = [
    pytest.param(function, flag, id=f"{full_name(function)}-{flag}")
    for function, (_, flags) in FUNCTIONS.items()
    for flag in flags
]
NOT_READ = {
    "validate_data", "launch_dependent_kernels", "fuse_gate", "disable_recompute", "use_graph",
}  # fmt: skip
NEVER_NONE = {"use_cp"}


class NotedContext(convolution.DecodeContext):
    """Its operators are noted too."""

    def __init__(self, found: list[Any]) -> None:
        super().__init__()
        self.found = found

    def _kept_operator(self, fields: tuple[str, ...], key: tuple[Any, ...]) -> Any:
        self.found.append((fields, key))
        return super()._kept_operator(fields, key)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions of cubinery.functional that are called, with their options."""
    found: list[Any] = []
    recurrence.install(monkeypatch)
    monkeypatch.setattr(functional, "gdn_conv", convolution.gdn_conv)
    context = NotedContext(found)
    monkeypatch.setattr(_vllm_kda, "context_for", lambda given, name, array: context)

    def noted(name: str, function: Any) -> Any:
        def call(*arrays: Any, **options: Any) -> Any:
            found.append((name, {key: plain(value) for key, value in options.items()}))
            return function(*arrays, **options)

        return call

    for name in ("gdn_prefill", "gdn_decode", "gdn_verify", "gdn_conv"):
        monkeypatch.setattr(functional, name, noted(name, getattr(functional, name)))
    return found


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return (value.shape, str(value.dtype)) if isinstance(value, np.ndarray) else value


def outcome(calls: list[Any], function: Any, flag: str, value: Any) -> Any:
    """What is called, and the result's form; or the error."""
    make, flags = FUNCTIONS[function]
    calls.clear()
    try:
        result = function(**{**make(), **flags[flag], flag: value})
    except Error as error:
        return type(error), str(error)
    return list(calls), plain(result)


@pytest.mark.filterwarnings("ignore:`transpose_state_layout` is deprecated")
@pytest.mark.parametrize("function, flag", FLAGS)
def test_truth_is_as_python_has_it(calls, function, flag):
    on, off = (outcome(calls, function, flag, value) for value in (True, False))
    assert on != off
    assert outcome(calls, function, flag, 1) == outcome(calls, function, flag, np.True_) == on
    assert outcome(calls, function, flag, 0) == outcome(calls, function, flag, np.False_) == off
    if flag not in NEVER_NONE:
        by_default = {flashinfer.gated_delta_rule_mtp: {"disable_state_update": on}}
        expected = by_default.get(function, {}).get(flag, off)
        assert outcome(calls, function, flag, None) == expected


@pytest.mark.filterwarnings("ignore:`transpose_state_layout` is deprecated")
@pytest.mark.parametrize("function, flag", FLAGS)
@pytest.mark.parametrize("array", [np.array(True), np.zeros(1, np.int32), np.ones(2, bool)])
def test_arrays_are_refused(calls, function, flag, array):
    make, flags = FUNCTIONS[function]
    with pytest.raises(InvalidArgumentError, match=f": {flag} is an array"):
        function(**{**make(), **flags[flag], flag: array})
    assert calls == []


@pytest.mark.parametrize("function", FUNCTIONS, ids=full_name)
def test_unknown_keywords(calls, function):
    make, _ = FUNCTIONS[function]
    function(**make())
    expected = list(calls)
    calls.clear()
    function(**make(), made_up=None, also_made_up=None)
    assert calls == expected
    calls.clear()
    for value in (1, False, zeros(2)):
        with pytest.raises(
            InvalidArgumentError, match=f"^{full_name(function)}: unknown argument made_up$"
        ):
            function(**make(), made_up=value, also_made_up=None)
    assert calls == []


def adapters() -> Iterator[Any]:
    for module in MODULES:
        for function in vars(module).values():
            if not inspect.isfunction(function) or function.__name__.startswith("_"):
                continue
            if full_name(function).split(".")[0] != module.__name__.split(".")[-1]:
                continue
            if function not in (fla.checked, fla.register, fla.unregister):
                yield function


def test_every_function_is_tested():
    assert set(adapters()) == FUNCTIONS.keys()


def test_every_flag_is_tested():
    for function in adapters():
        found = {
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if "bool" in str(parameter.annotation)
        }
        tested = FUNCTIONS[function][1]
        assert found - NOT_READ <= tested.keys(), function
