"""What the adapters hand on for draft tokens is what the operator takes: which problem is prepared,
which shapes go where, how many launches there are, on a GPU that is not there."""

from __future__ import annotations

import numpy as np
import pytest
from cubinery import Verify, functional
from cubinery.compat import flashinfer, sglang, vllm
from fake_gpu import FakeArray

N, T, H, HV, D = 3, 2, 2, 4, 16
SLOTS = 8
_SHORT = {"float32": "f32", "float16": "f16", "int32": "i32", "int64": "i64"}


def on_gpu(value):
    """An array on the GPU that lies as one of numpy does."""
    if not isinstance(value, np.ndarray):
        return value
    strides = tuple(stride // value.itemsize for stride in value.strides)
    if value.size == 0:  # numpy's are all 0 then
        strides = None
    return FakeArray(*value.shape, dtype=_SHORT[value.dtype.name], strides=strides)


@pytest.fixture
def launched(gpu, context, monkeypatch):
    """The problem and the arrays of each launch of gdn_verify."""
    found = []
    verify, launch = functional.gdn_verify, Verify.__call__

    def call(*rows, **options):
        named = {name: on_gpu(value) for name, value in options.items()}
        if named.get("out") is None:
            named["out"] = on_gpu(np.empty_like(rows[2]))
        verify(*map(on_gpu, rows), **named, context=context)
        return options.get("out")

    def noted(operator, *rows, **named):
        before = gpu.launches
        launch(operator, *rows, **named)
        assert gpu.launches == before + 1
        found.append((operator.problem, named))

    monkeypatch.setattr(functional, "gdn_verify", call)
    monkeypatch.setattr(Verify, "__call__", noted)
    return found


def inputs(*lead):
    shapes = {"q": (H, D), "k": (H, D), "v": (HV, D), "a": (HV,), "b": (HV,)}
    x = {name: np.zeros((*lead, *shape), np.float16) for name, shape in shapes.items()}
    return {**x, "A_log": np.zeros(HV, np.float32), "dt_bias": np.zeros(HV, np.float32)}


def pool(dtype=np.float32):
    return np.zeros((SLOTS, HV, D, D), dtype)


STATE_ARRAYS = ("state", "state_out", "state_indices", "state_out_indices")


def check(launch, problem, *shapes):
    """A launch's problem has these fields, and the arrays of its states these shapes."""
    actual, named = launch
    given = {**BASE, **problem}
    assert {name: getattr(actual, name) for name in given} == given
    arrays = (*STATE_ARRAYS, "cu_seqlens", "accepted")
    found = [None if named[name] is None else tuple(named[name].shape) for name in arrays]
    assert found == [*shapes, *[None] * (len(arrays) - len(shapes))]


BASE = {
    "q_heads": H,
    "k_heads": H,
    "v_heads": HV,
    "key_dim": D,
    "value_dim": D,
    "dtype": "f16",
    "gate_mode": "computed",
    "beta_mode": "logit",
    "state_layout": "vk",
    "has_initial_state": True,
    "round_each_token": False,
}
EVERY = {"store_state": True, "stored_states": "every"}
LAST = {"store_state": True, "stored_states": "last"}
NOTHING = {"store_state": False}
POOL, ROWS, TABLE = (SLOTS, HV, D, D), (N,), (N, T)
READ = np.zeros(N, np.int32)


def buffer_of(form, dtype=np.float32):
    rows, steps = {"exact": (N, T), "larger": (N + 1, T + 1), "apart": (N, T + 2)}[form]
    whole = np.zeros((rows, steps, HV, D, D), dtype)
    return whole[:, :T] if form == "apart" else whole


SLOTS_OF = {"exact": N * T, "larger": N * (T + 1), "apart": (N - 1) * (T + 2) + T}


@pytest.mark.parametrize("form", SLOTS_OF)
@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("written", [None, READ.astype(np.int64)], ids=["in place", "elsewhere"])
def test_flashinfer_mtp(launched, form, update, written):
    flashinfer.gated_delta_rule_mtp(
        **inputs(N, T), initial_state=pool(), initial_state_indices=READ,
        intermediate_states_buffer=buffer_of(form), disable_state_update=not update,
        output_state_indices=written,
    )  # fmt: skip
    padding = {"padding": "zero", "pad_index": "negative", "index_dtype": "i32"}
    kept = (SLOTS_OF[form], HV, D, D)
    check(launched[0], {**EVERY, **padding}, POOL, kept, ROWS, TABLE)
    if update:
        check(launched[1], {**LAST, **padding}, POOL, None, ROWS, None if written is None else ROWS)
    assert len(launched) == 1 + update


def test_flashinfer_mtp_without_a_buffer(launched):
    x, output = inputs(N, T), np.zeros((N, T, HV, D), np.float16)
    common = {**x, "initial_state": pool(), "initial_state_indices": READ}
    flashinfer.gated_delta_rule_mtp(**common, output=output)
    flashinfer.gated_delta_rule_mtp(**common, disable_state_update=False)
    flashinfer.gated_delta_rule_mtp(
        **common, disable_state_update=False, ssm_state_indices=np.zeros(TABLE, np.int64)
    )
    check(launched[0], {**NOTHING, "padding": "skip"}, POOL, None, ROWS)
    check(launched[1], {**LAST, "padding": "zero"}, POOL, None, ROWS)
    check(launched[2], {**EVERY, "padding": "zero"}, POOL, POOL, ROWS, TABLE)


def pretranspose(states, **options):
    flashinfer.gated_delta_rule_decode_pretranspose(**inputs(N, T), **states, **options)


def test_flashinfer_pretranspose_on_a_16_bit_pool(launched):
    states = {"state": None, "initial_state": pool(np.float16), "initial_state_indices": READ}
    pretranspose(states)
    pretranspose(states, intermediate_states_buffer=buffer_of("larger", np.float16))
    slots = (SLOTS_OF["larger"], HV, D, D)
    check(launched[0], {**LAST, "padding": "scratch", "state_dtype": "f16"}, POOL, None, ROWS)
    check(launched[1], {**EVERY, "padding": "none"}, POOL, slots, ROWS, TABLE)
    check(launched[2], {**LAST, "padding": "none"}, POOL, None, ROWS)
    assert len(launched) == 3


def test_flashinfer_pretranspose_on_dense_states(launched):
    pretranspose({"state": pool()[:N]}, intermediate_states_buffer=buffer_of("larger"))
    dense, steps = {"state_location": "dense", "padding": "none"}, (N, T + 1, HV, D, D)
    check(launched[0], {**EVERY, **dense}, (N, HV, D, D), steps)
    check(launched[1], {**LAST, **dense}, (N, HV, D, D))
    assert len(launched) == 2


TOTAL = 5
SPANS = np.zeros(N + 1, np.int32)


@pytest.mark.parametrize("pad_slot_id, accepted, packed", [(0, np.int64, True), (-1, None, False)])
def test_vllm(launched, pad_slot_id, accepted, packed):
    table = np.zeros((N + 1, 7), np.int64)[:, :T]  # columns of a wider table
    vllm.fused_sigmoid_gating_delta_rule_update(
        **inputs(*((1, TOTAL) if packed else (N, T))), initial_state=pool(),
        cu_seqlens=SPANS if packed else None, ssm_state_indices=table, pad_slot_id=pad_slot_id,
        num_accepted_tokens=None if accepted is None else np.zeros(N + 1, accepted),
    )  # fmt: skip
    problem = {
        **EVERY,
        "padding": "zero",
        "pad_index": "negative" if accepted is None else "zero",
        "index_dtype": "i64",
        "max_tokens": T,
        "varlen": packed,
        "from_accepted": accepted is not None,
        "accepted_dtype": "i64" if accepted is np.int64 else "i32",
    }
    read = ROWS if accepted is None else TABLE
    bounds, counts = (N + 1,) if packed else None, None if accepted is None else ROWS
    check(launched[0], problem, POOL, POOL, read, TABLE, bounds, counts)
    assert len(launched) == 1


@pytest.mark.parametrize("form", SLOTS_OF)
@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("packed, total", [(False, None), (True, TOTAL), (True, 0)])
def test_sglang(launched, form, update, packed, total):
    sglang.fused_sigmoid_gating_delta_rule_update(
        **inputs(*((1, total) if packed else (N, T))), softplus_beta=1.0, softplus_threshold=20.0,
        initial_state_source=pool(), initial_state_indices=READ,
        cu_seqlens=SPANS if packed else None, disable_state_update=not update, cache_steps=T,
        intermediate_states_buffer=buffer_of(form), intermediate_state_indices=READ.astype(np.int64),
    )  # fmt: skip
    problem = {
        "padding": "zero",
        "pad_index": "negative",
        "varlen": packed,
        "max_tokens": T if packed else 16,
    }
    rows = N + 1 if form == "larger" else N
    slots = {"exact": N * T, "larger": rows * (T + 1), "apart": SLOTS_OF["apart"]}[form]
    bounds, table = (N + 1,) if packed else None, (N, T + 1 if form == "larger" else T)
    check(launched[0], {**EVERY, **problem}, POOL, (slots, HV, D, D), ROWS, table, bounds)
    if update:
        check(launched[1], {**LAST, **problem}, POOL, None, ROWS, None, bounds)
    assert len(launched) == 1 + update
