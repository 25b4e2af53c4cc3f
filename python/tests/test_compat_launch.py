"""What the adapters hand on for draft tokens and convolutions is what the operators take: which
problem is prepared, which shapes go where, how many launches there are, on a GPU that is not there.
"""

from __future__ import annotations

import engine_calls
import numpy as np
import pytest
from cubinery import Conv, Decode, Prefill, Verify, functional
from cubinery.compat import _engines as engines
from cubinery.compat import causal_conv1d, fla, flashinfer, sglang, tokenspeed, vllm
from fake_gpu import FakeArray

N, T, H, HV, D = 3, 2, 2, 4, 16
SLOTS = 8
_SHORT = {"float32": "f32", "float16": "f16", "int32": "i32", "int64": "i64", "bool": "bool"}


def on_gpu(value):
    """An array on the GPU that lies as one of numpy does."""
    if not isinstance(value, np.ndarray):
        return value
    strides = tuple(stride // value.itemsize for stride in value.strides)
    if value.size == 0:  # numpy's are all 0 then
        strides = None
    return FakeArray(*value.shape, dtype=_SHORT[value.dtype.name], strides=strides)


def note_launches(gpu, context, monkeypatch, function, operator_class):
    """The problem and the arrays of each launch of a function of functional."""
    found = []
    run, launch = getattr(functional, function), operator_class.__call__

    def call(*rows, **options):
        named = {name: on_gpu(value) for name, value in options.items()}
        if named.get("out") is None:
            named["out"] = on_gpu(np.empty_like(rows[2]))
        run(*map(on_gpu, rows), **named, context=context)
        return options.get("out")

    def noted(operator, *rows, **named):
        before = gpu.launches
        launch(operator, *rows, **named)
        assert gpu.launches == before + 1
        found.append((operator.problem, named))

    monkeypatch.setattr(functional, function, call)
    monkeypatch.setattr(operator_class, "__call__", noted)
    return found


@pytest.fixture
def launched(gpu, context, monkeypatch):
    """Of gdn_verify."""
    return note_launches(gpu, context, monkeypatch, "gdn_verify", Verify)


def inputs(*lead):
    shapes = {"q": (H, D), "k": (H, D), "v": (HV, D), "a": (HV,), "b": (HV,)}
    x = {name: np.zeros((*lead, *shape), np.float16) for name, shape in shapes.items()}
    return {**x, "A_log": np.zeros(HV, np.float32), "dt_bias": np.zeros(HV, np.float32)}


def pool(dtype=np.float32):
    return np.zeros((SLOTS, HV, D, D), dtype)


STATE_ARRAYS = ("state", "state_out", "state_indices", "state_out_indices")


NO_PADDING = {"pad_slot_id": None, "zero_padding": False, "scratch_slot": None}


def check_given(launch, given):
    """A launch's problem has these fields, and it these numbers of padding."""
    actual, named = launch
    found = {name: named[name] if name in NO_PADDING else getattr(actual, name) for name in given}
    assert found == given


def check(launch, problem, *shapes):
    """As check_given(), and the arrays of its states have these shapes."""
    check_given(launch, {**BASE, **problem})
    named = launch[1]
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
    padding = {"pad_slot_id": -1, "zero_padding": True, "index_dtype": "i32"}
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
    check(launched[0], {**NOTHING, "pad_slot_id": -1, "zero_padding": False}, POOL, None, ROWS)
    zeroed = {"pad_slot_id": -1, "zero_padding": True}
    check(launched[1], {**LAST, **zeroed}, POOL, None, ROWS)
    check(launched[2], {**EVERY, **zeroed}, POOL, POOL, ROWS, TABLE)


def pretranspose(states, **options):
    flashinfer.gated_delta_rule_decode_pretranspose(**inputs(N, T), **states, **options)


def test_flashinfer_pretranspose_on_a_16_bit_pool(launched):
    states = {"state": None, "initial_state": pool(np.float16), "initial_state_indices": READ}
    pretranspose(states)
    pretranspose(states, intermediate_states_buffer=buffer_of("larger", np.float16))
    slots = (SLOTS_OF["larger"], HV, D, D)
    scratched = {"pad_slot_id": -1, "scratch_slot": 0, "zero_padding": False, "state_dtype": "f16"}
    check(launched[0], {**LAST, **scratched}, POOL, None, ROWS)
    check(launched[1], {**EVERY, **NO_PADDING}, POOL, slots, ROWS, TABLE)
    check(launched[2], {**LAST, **NO_PADDING}, POOL, None, ROWS)
    assert len(launched) == 3


def test_flashinfer_pretranspose_on_dense_states(launched):
    pretranspose({"state": pool()[:N]}, intermediate_states_buffer=buffer_of("larger"))
    dense, steps = {"state_location": "dense", **NO_PADDING}, (N, T + 1, HV, D, D)
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
        "pad_slot_id": pad_slot_id,
        "zero_padding": True,
        "index_dtype": "i64",
        "draft_tokens": T,
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
        "pad_slot_id": -1,
        "zero_padding": True,
        "varlen": packed,
        "draft_tokens": T if packed else 16,
    }
    rows = N + 1 if form == "larger" else N
    slots = {"exact": N * T, "larger": rows * (T + 1), "apart": SLOTS_OF["apart"]}[form]
    bounds, table = (N + 1,) if packed else None, (N, T + 1 if form == "larger" else T)
    check(launched[0], {**EVERY, **problem}, POOL, (slots, HV, D, D), ROWS, table, bounds)
    if update:
        check(launched[1], {**LAST, **problem}, POOL, None, ROWS, None, bounds)
    assert len(launched) == 1 + update


C, W = 2 * H * D + HV * D, 4  # of convolutions


@pytest.fixture
def prefilled(gpu, context, monkeypatch):
    """The problem and the arrays of each launch of gdn_prefill."""
    found = []
    prefill, launch = functional.gdn_prefill, Prefill.__call__

    def call(*rows, **options):
        named = {name: on_gpu(value) for name, value in options.items()}
        if named.get("out") is None:
            named["out"] = on_gpu(np.empty_like(rows[2]))
        workspace = FakeArray(1 << 24, dtype="f32")
        prefill(*map(on_gpu, rows), **named, workspace=workspace, context=context)
        return options.get("out")

    def noted(operator, *rows, **named):
        before = gpu.launches
        launch(operator, *rows, **named)
        assert gpu.launches > before
        found.append((operator.problem, named))

    monkeypatch.setattr(functional, "gdn_prefill", call)
    monkeypatch.setattr(Prefill, "__call__", noted)
    return found


def prefill_inputs(tokens):
    x = inputs(1, tokens)
    return {**{name: x[name] for name in ("q", "k", "v")}, "g": x["a"], "beta": x["b"]}


@pytest.mark.parametrize("initial, final", [(False, True), (True, True), (False, False)])
def test_tokenspeed_prefill_keeps_states_of_chunks(prefilled, initial, final):
    """In the dtype of the states, also where there are only last ones."""
    result = tokenspeed.gdn_chunk_prefill(
        **prefill_inputs(134), scale=None, cu_seqlens=np.array([0, 70, 134], np.int32),
        initial_state=np.zeros((2, HV, D, D), np.float32) if initial else None,
        output_final_state=final, output_h=True,
    )  # fmt: skip
    ((problem, _),) = prefilled
    assert problem.checkpoints == "before"
    assert problem.state_dtype == _SHORT[result.h.dtype.name] == ("f32" if final else "f16")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sglang_prefill_keeps_states_of_chunks(prefilled, dtype):
    bounds, slots = np.array([0, 70, 70, 134], np.int32), np.arange(3, dtype=np.int32)
    sglang.chunk_gated_delta_rule(
        **prefill_inputs(134), initial_state=pool(dtype), initial_state_indices=slots,
        cu_seqlens=bounds, use_qk_l2norm_in_kernel=True, output_h=True,
    )  # fmt: skip
    ((problem, named),) = prefilled
    assert problem.checkpoints == "before" and problem.checkpoint_every == 64
    assert named["zero_padding"] and problem.state_location == "pool" and problem.store_state
    assert tuple(named["checkpoints"].shape) == (5, HV, D, D)
    assert tuple(named["checkpoint_cu_starts"].shape) == (4,)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_checkpoints_begin_at_indices_of_either_dtype(prefilled, index):
    bounds, starts = np.array([0, 70, 70, 134], np.int32), np.array([0, 1, 1, 2], index)
    checkpoints = {
        **{"checkpoint_cu_starts": starts, "checkpoint_every_n_tokens": 64},
        "state_checkpoints": np.zeros((2, HV, D, D), np.float32),
    }
    x = prefill_inputs(134)
    state = np.zeros((3, HV, D, D), np.float16)
    vllm.fi_chunk_gated_delta_rule(
        **x, initial_state=state, output_final_state=False, cu_seqlens=bounds, **checkpoints
    )
    flashinfer.chunk_gated_delta_rule(
        **{name: array[0] for name, array in x.items()}, cu_seqlens=bounds, **checkpoints
    )
    for problem, named in prefilled:
        assert problem.checkpoints == "after" and problem.checkpoint_every == 64
        assert named["checkpoint_every"] == 64
        assert problem.state_dtype == "f32" and problem.cu_seqlens_dtype == "i32"
        assert tuple(named["checkpoint_cu_starts"].shape) == (4,)
    assert [problem.gate_mode for problem, _ in prefilled] == ["log", "alpha"]


# A packed row [q, k, v, z] as the projection leaves it: nothing is copied, rows are a whole row
# apart.
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("state_dtype", [np.float32, np.float16])
def test_vllm_fused_draft_tokens_take_rows_as_they_lie(launched, activation, state_dtype):
    width, qk, steps = 2 * H * D + 2 * HV * D, H * D, 3
    wide = np.zeros((N * T, width), np.float16)
    x = inputs(N * T)
    vllm.fused_gdn_decode_post_conv_mtp(
        wide[:, : 2 * qk + HV * D], x["a"], x["b"], x["A_log"], x["dt_bias"],
        np.zeros((N, steps), np.int32), np.arange(0, N * T + 1, T, dtype=np.int32),
        np.ones(N, np.int32), pool(state_dtype), wide[:, -HV * D :].reshape(-1, HV, D),
        np.zeros(D, np.float32), np.zeros((N * T, HV, D), np.float16), D**-0.5,
        output_gate_activation=activation,
    )  # fmt: skip
    ((problem, named),) = launched
    norm = "sigmoid_gated_rms" if activation == "sigmoid" else "gated_rms"
    expected = {**BASE, **EVERY, "varlen": True, "from_accepted": True, "draft_tokens": steps}
    expected |= {"output_norm": norm, "norm_weight_dtype": "f32"}
    assert {name: getattr(problem, name) for name in expected} == expected
    assert named["z"].shape == (N * T, HV, D) and named["state_out"] is None
    assert named["pad_slot_id"] == 0 and named["zero_padding"]
    assert named["accepted"] is not None and named["state_out_indices"] is None


def test_packed_rows_are_views():
    width = 2 * H * D + HV * D
    mixed = np.zeros((N, width + 16), np.float16)[:, :width]
    parts = engines.packed_rows("f", mixed, pool())
    assert [part.shape for part in parts] == [(N, H, D), (N, H, D), (N, HV, D)]
    for part in parts:
        assert np.shares_memory(part, mixed)
        assert part.strides == (mixed.strides[0], D * 2, 2)


def test_strides_of_checkpoints_share_an_operator(prefilled):
    bounds, starts = np.array([0, 70, 1350], np.int32), np.array([0, 1, 21], np.int32)
    x, state = prefill_inputs(1350), np.zeros((2, HV, D, D), np.float32)
    strides = (64, 128, 640, 1280)
    for every in strides:
        kept = {
            "checkpoint_cu_starts": starts,
            "checkpoint_every_n_tokens": every,
            "state_checkpoints": np.zeros((21, HV, D, D), np.float32),
        }
        vllm.fi_chunk_gated_delta_rule(
            **x, initial_state=state, output_final_state=True, cu_seqlens=bounds, **kept
        )
        flashinfer.chunk_gated_delta_rule(
            **{name: array[0] for name, array in x.items()}, cu_seqlens=bounds, **kept
        )
    assert {problem.checkpoint_every for problem, _ in prefilled} == {64}
    assert len({problem.to_json() for problem, _ in prefilled}) == 2  # of each engine one
    assert [named["checkpoint_every"] for _, named in prefilled[::2]] == list(strides)


@pytest.fixture
def convolved(gpu, context, monkeypatch):
    """The problem and the arrays of each launch of gdn_conv."""
    found = []
    conv, launch = functional.gdn_conv, Conv.__call__

    def call(*rows, **options):
        named = {name: on_gpu(value) for name, value in options.items()}
        lead = rows[0].shape[:-1]
        y = np.empty(rows[0].shape, rows[0].dtype) if options.get("y") is None else options["y"]
        if options.get("q_heads") is None:
            named["y"] = on_gpu(y)
        assert y.shape[:-1] == lead
        conv(*map(on_gpu, rows), **named, context=context)
        return y

    def noted(operator, *rows, **named):
        before = gpu.launches
        launch(operator, *rows, **named)
        assert gpu.launches == before + 1
        found.append((operator.problem, {"x": rows[0], **named}))

    monkeypatch.setattr(functional, "gdn_conv", call)
    monkeypatch.setattr(Conv, "__call__", noted)
    return found


CONV_BASE = {
    "dtype": "f16",
    "weight_dtype": "f32",
    "width": W,
    "activation": "silu",
    "has_bias": True,
    "split_qkv": False,
    "from_accepted": False,
    "varlen": False,
    "whole_window": False,
    "state_dtype": "f16",
    "state_location": "pool",
    "pad_slot_id": -1,
    "zero_padding": True,
    "has_initial_state": True,
    "store_state": True,
}
WEIGHT, BIAS = np.zeros((C, W), np.float32), np.zeros(C, np.float32)
CONV_ARRAYS = ("x", *STATE_ARRAYS, "has_initial_state", "cu_seqlens", "accepted")


def check_conv(launch, problem, **shapes):
    """As check(); arrays that are not named are absent."""
    check_given(launch, {**CONV_BASE, **problem})
    named = launch[1]
    found = {name: named[name] for name in CONV_ARRAYS if named[name] is not None}
    assert {name: tuple(array.shape) for name, array in found.items()} == shapes


def zeros(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def windows(rows=SLOTS, columns=W - 1, dtype=np.float16):
    return zeros(rows, C, columns, dtype=dtype)


def test_causal_conv1d(convolved):
    dense = {"state_location": "dense", **NO_PADDING}
    fn, update = causal_conv1d.causal_conv1d_fn, causal_conv1d.causal_conv1d_update
    x, shape = zeros(N, C, 5), (N, C, W - 1)
    turned = zeros(N, 5, C).swapaxes(1, 2)  # [B, T, channels] in memory
    fn(x, WEIGHT, BIAS)
    fn(turned, WEIGHT, BIAS, initial_states=windows(N), return_final_states=True, activation="silu")
    update(zeros(N, C), windows(N, W), WEIGHT, None, "silu")
    update(zeros(N, C, 2), windows(), WEIGHT, BIAS, "silu", conv_state_indices=READ)
    nothing = {"has_initial_state": False, "store_state": False, "state_dtype": "bf16"}
    check_conv(convolved[0], {**dense, **nothing, "activation": "none"}, x=(N, 5, C))
    check_conv(convolved[1], dense, x=(N, 5, C), state=shape, state_out=shape)
    whole = {**dense, "whole_window": True, "has_bias": False}
    check_conv(convolved[2], whole, x=(N, 1, C), state=(N, C, W))
    check_conv(convolved[3], {}, x=(N, 2, C), state=(SLOTS, C, W - 1), state_indices=ROWS)
    assert len(convolved) == 4


@pytest.mark.parametrize("engine, pad", [(vllm, 0), (sglang, -1)])
def test_engines_convolve_prompts(convolved, engine, pad):
    given = {"cache_indices": READ, "query_start_loc": SPANS}
    rows = zeros(TOTAL, C).swapaxes(0, 1)
    flags = zeros(N + 1, dtype=bool)
    engine.causal_conv1d_fn(
        rows, WEIGHT, BIAS, conv_states=windows(columns=W + 2), has_initial_state=flags, **given
    )
    engine.causal_conv1d_fn(rows, WEIGHT, BIAS, conv_states=windows(), **given)
    packed = {"varlen": True, "pad_slot_id": pad}
    shapes = {"x": (TOTAL, C), "state_indices": ROWS, "cu_seqlens": (N + 1,)}
    kept = (SLOTS, C, W - 1)
    check_conv(convolved[0], packed, state=kept, has_initial_state=ROWS, **shapes)
    check_conv(convolved[1], {**packed, "has_initial_state": False}, state_out=kept, **shapes)


@pytest.mark.parametrize("engine, pad", [(vllm, 0), (sglang, -1)])
def test_engines_convolve_tokens(convolved, engine, pad):
    update = engine.causal_conv1d_update
    counts = {vllm: "num_accepted_tokens", sglang: "num_accept_tokens"}[engine]
    drafts = {"conv_state_indices": READ, counts: zeros(N, dtype=np.int64)}
    update(zeros(N, C), windows(columns=W), WEIGHT, BIAS, True, conv_state_indices=READ)
    update(zeros(N, C, T), windows(columns=W), WEIGHT, BIAS, "silu", **drafts)
    pool, spec = {"pad_slot_id": pad}, {"from_accepted": True, "accepted_dtype": "i64"}
    shapes, whole = {"state_indices": ROWS}, engine is sglang
    check_conv(
        convolved[0], {**pool, "whole_window": whole}, x=(N, 1, C),
        state=(SLOTS, C, W if whole else W - 1), **shapes,
    )  # fmt: skip
    shapes |= {"state": (SLOTS, C, W), "accepted": ROWS}
    check_conv(convolved[1], {**pool, **spec}, x=(N, T, C), **shapes)
    if engine is vllm:
        rows, states = zeros(TOTAL, C), windows(columns=W)
        drafts["query_start_loc"] = SPANS
        update(rows, states, WEIGHT, BIAS, "silu", **drafts)
        drafts["conv_state_indices"] = np.stack([READ, READ], axis=1)
        update(rows, states, WEIGHT, BIAS, "silu", out=zeros(TOTAL, C), **drafts)
        spec["varlen"] = True
        for launch in convolved[2:]:
            check_conv(launch, {**pool, **spec}, x=(TOTAL, C), cu_seqlens=(N + 1,), **shapes)


def test_convolutions_that_split(convolved):
    rows = zeros(TOTAL, C).swapaxes(0, 1)
    causal_conv1d.causal_conv1d_split_qkv(
        rows, WEIGHT, BIAS, windows(), SPANS, H * D, HV * D, READ, zeros(N, dtype=bool)
    )
    split = {
        "split_qkv": True,
        "q_heads": 1,
        "k_heads": 1,
        "v_heads": 1,
        "key_dim": H * D,
        "value_dim": HV * D,
        "varlen": True,
    }
    check_conv(
        convolved[0], split, x=(TOTAL, C), state=(SLOTS, C, W - 1), state_indices=ROWS,
        has_initial_state=ROWS, cu_seqlens=(N + 1,),
    )  # fmt: skip
    for name, dim in {"q": H * D, "k": H * D, "v": HV * D}.items():
        assert tuple(convolved[0][1][name].shape) == (TOTAL, 1, dim)


def test_fla_convolutions(convolved):
    dense = {"state_location": "dense", **NO_PADDING, "whole_window": True}
    kept = (N, C, W)
    packed, spans = zeros(1, TOTAL, C), SPANS.astype(np.int64)
    fla.causal_conv1d(
        packed, WEIGHT, BIAS, None, windows(N, W), True, "silu", cu_seqlens=spans
    )  # fmt: skip
    fla.causal_conv1d(zeros(N, T, C), WEIGHT, BIAS, initial_state=windows(N, W, np.float32))
    fla.causal_conv1d_update(zeros(1, N, C), windows(N, W), None, WEIGHT, BIAS, "silu")
    bounds = {"varlen": True, "cu_seqlens_dtype": "i64"}
    check_conv(
        convolved[0], {**dense, **bounds}, x=(1, TOTAL, C), state=kept, state_out=kept,
        cu_seqlens=(N + 1,),
    )  # fmt: skip
    read = {**dense, "activation": "none", "state_dtype": "f32", "store_state": False}
    check_conv(convolved[1], read, x=(N, T, C), state=kept)
    check_conv(convolved[2], dense, x=(N, 1, C), state=kept)


@pytest.fixture
def decoded(gpu, context, monkeypatch):
    """Of gdn_decode."""
    return note_launches(gpu, context, monkeypatch, "gdn_decode", Decode)


@pytest.mark.parametrize("state", ["f32", "f16"])
@pytest.mark.parametrize(
    "engine, counts",  # of prefills, decodes, verifications, convolutions
    [
        ("vllm", (3, 2, 1, 3)),
        ("sglang", (2, 2, 2, 4)),
        ("flashinfer", (1, 2, 1, 0)),
        ("tensorrt_llm", (2, 1, 1, 4)),
        ("tokenspeed", (1, 1, 1, 3)),
    ],
)
def test_calls_of_engines_are_launched(
    prefilled, decoded, launched, convolved, engine, counts, state
):
    size = engine_calls.Sizes(H, HV, D, D, state)
    getattr(engine_calls, f"{engine}_functions")(size)
    assert tuple(map(len, (prefilled, decoded, launched, convolved))) == counts
