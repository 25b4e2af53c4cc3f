"""The functions: which problem they infer, what they allocate, what they refuse."""

import re
import threading

import cubinery
import pytest
from cubinery import _arrays, _context, functional
from cubinery import _rules
from fake_gpu import CPU, FakeArray

B, T, HK, HV, D = 2, 32, 2, 4, 16
DRAFTS = 4
C, W = (2 * HK + HV) * D, 4  # of a convolution


@pytest.fixture
def prepared(context, monkeypatch):
    """The problems that operators are made for."""
    problems = []
    prepare = context.prepare

    def record(problem):
        problems.append(problem)
        return prepare(problem)

    monkeypatch.setattr(context, "prepare", record)
    return problems


def tokens(*lead, dtype="bf16", kind=FakeArray):
    """q, k, v and out of lead + [heads, D]."""
    return [kind(*lead, heads, D, dtype=dtype) for heads in (HK, HK, HV, HV)]


def decode(context, *, lead=(B,), dtype="bf16", **named):
    q, k, v, out = tokens(*lead, dtype=dtype)
    return functional.gdn_decode(q, k, v, context=context, **{"out": out, **named})


def prefill(context, *, lead=(B, T), **named):
    q, k, v, out = tokens(*lead)
    named = {"out": out, "workspace": FakeArray(1 << 20), **named}
    return functional.gdn_prefill(q, k, v, context=context, **named)


def verify(context, *, lead=(B, DRAFTS), **named):
    q, k, v, out = tokens(*lead)
    return functional.gdn_verify(q, k, v, context=context, **{"out": out, **named})


def conv(context, *, lead=(B, T), channels=C, **named):
    x, weight = FakeArray(*lead, channels, dtype="bf16"), FakeArray(channels, W, dtype="f16")
    if "q_heads" not in named:
        named = {"y": FakeArray(*lead, channels, dtype="bf16"), **named}
    return functional.gdn_conv(x, weight, context=context, **named)


def window(rows=B, columns=W - 1, dtype="bf16", turned=False):
    """States of a convolution."""
    strides = (C * columns, 1, C) if turned else None
    return FakeArray(rows, C, columns, dtype=dtype, strides=strides)


def state(rows=B, *steps, dtype="f32"):
    return FakeArray(rows, *steps, HV, D, D, dtype=dtype)


GATES = FakeArray(B, HV)
BASE = {"q_heads": HK, "k_heads": HK, "v_heads": HV, "key_dim": D, "value_dim": D}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, {"gate_mode": "none", "beta_mode": "one"}),
        ({"g": GATES, "beta": GATES}, {"gate_mode": "log", "beta_mode": "given"}),
        (
            {"g": GATES, "beta": GATES, "gate_mode": "alpha", "beta_mode": "doubled_logit"},
            {"gate_mode": "alpha", "beta_mode": "doubled_logit"},
        ),
        (
            {
                "g": FakeArray(B, HV, dtype="bf16"),
                "A_log": FakeArray(HV, dtype="f16"),
                "dt_bias": FakeArray(HV),
                "beta": FakeArray(B, HV, dtype="f16"),
                "beta_mode": "logit",
                "use_qk_l2norm": True,
            },
            {
                "gate_mode": "computed",
                "beta_mode": "logit",
                "gate_dtype": "bf16",
                "beta_dtype": "f16",
                "a_log_dtype": "f16",
                "use_qk_l2norm": True,
            },
        ),
    ],
)
def test_gates_are_inferred(context, prepared, gpu, named, expected):
    decode(context, **named)
    assert prepared == [
        cubinery.DecodeProblem(
            **{**BASE, "has_initial_state": False, "store_state": False, **expected}
        )
    ]
    assert gpu.launches == 1


def test_a_gate_of_outputs_asks_for_their_norm(context, prepared, gpu):
    z, weight = FakeArray(B, HV, D, dtype="bf16"), FakeArray(D, dtype="f16")
    decode(context, z=z, norm_weight=weight)
    decode(context, z=z, norm_weight=weight, norm_eps=1e-5)
    problem = {**BASE, "gate_mode": "none", "beta_mode": "one", "has_initial_state": False}
    norm = {"output_norm": "gated_rms", "norm_weight_dtype": "f16"}
    assert prepared == [cubinery.DecodeProblem(**problem, store_state=False, **norm)]
    assert gpu.launches == 2
    with pytest.raises(cubinery.InvalidArgumentError, match="norm_weight is given"):
        decode(context, norm_weight=weight)


def test_a_sigmoid_gate_is_asked_for_by_name(context, prepared, gpu):
    z, weight = FakeArray(B, HV, D, dtype="bf16"), FakeArray(D, dtype="f32")
    decode(context, z=z, norm_weight=weight, output_norm="sigmoid_gated_rms")
    assert prepared[0].output_norm == "sigmoid_gated_rms" and gpu.launches == 1
    with pytest.raises(cubinery.InvalidArgumentError, match="z is None"):
        decode(context, output_norm="gated_rms")
    with pytest.raises(cubinery.InvalidArgumentError, match="output_norm = 'silu'"):
        decode(context, z=z, norm_weight=weight, output_norm="silu")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"state": state()}, {}),
        ({"state": state(), "store_state": False}, {"store_state": False}),
        (
            {"state": state(dtype="bf16"), "state_layout": "kv"},
            {"state_dtype": "bf16", "state_layout": "kv"},
        ),
        ({"state": state(dtype="f8e4m3")}, {"state_dtype": "f8e4m3"}),
        (
            {"state": state(dtype="f8e5m2"), "state_layout": "kv"},
            {"state_dtype": "f8e5m2", "state_layout": "kv"},
        ),
        ({"state_out": state(dtype="f16")}, {"has_initial_state": False, "state_dtype": "f16"}),
        ({"state": state(), "state_out": state()}, {}),
        (
            {
                "state": state(9),
                "state_indices": FakeArray(B, dtype="i64"),
                "state_out_indices": FakeArray(B, dtype="i64"),
                "pad_slot_id": 0,
                "scratch_slot": 8,
            },
            {
                "state_location": "pool",
                "index_dtype": "i64",
            },
        ),
    ],
)
def test_states_are_inferred(context, prepared, gpu, named, expected):
    decode(context, **named)
    problem = {**BASE, "gate_mode": "none", "beta_mode": "one", **expected}
    assert prepared == [cubinery.DecodeProblem(**problem)]
    assert gpu.launches == 1


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_stride_of_checkpoints_needs_no_kernel_of_its_own(context, prepared, gpu, mode):
    """One operator, of the longest chunk that divides them, serves all strides."""

    def kept(every, length=1280):
        q, k, v, out = tokens(1, length)
        rows = -(-length // every) if mode == "before" else length // every
        functional.gdn_prefill(
            q, k, v, out=out, workspace=FakeArray(1 << 24), checkpoint_mode=mode,
            checkpoint_every=every, checkpoints=state(rows), context=context,
        )  # fmt: skip

    for every in (64, 128, 192, 1280):
        kept(every)
    assert [problem.checkpoint_every for problem in prepared] == [64]
    for every in (16, 48, 80, 32, 96):
        kept(every)
    assert [problem.checkpoint_every for problem in prepared] == [64, 16, 32]
    with pytest.raises(cubinery.InvalidArgumentError, match="checkpoint_every is 100; accepted: "):
        kept(100)
    with pytest.raises(cubinery.InvalidArgumentError, match="checkpoint_every is 0; accepted: "):
        prefill(
            context, lead=(1, 64), checkpoint_mode=mode, checkpoint_every=0, checkpoints=state(1)
        )


def test_offsets_of_checkpoints_need_no_kernel_of_their_own(context, prepared, gpu):
    """In the very pool of the launch, any number for each sequence."""
    pool, indices = state(9), FakeArray(B, dtype="i32")
    named = {"state": pool, "state_indices": indices, "checkpoints": pool, "checkpoint_mode": "at"}

    def places(count, dtype="i32"):
        return {
            "checkpoint_offsets": FakeArray(B, count, dtype="i32"),
            "checkpoint_slots": FakeArray(B, count, dtype=dtype),
        }

    for count in (1, 2, 7):
        for every in (64, 128):
            prefill(context, **named, **places(count), checkpoint_every=every)
    assert [problem.checkpoint_every for problem in prepared] == [64]
    assert [problem.index_dtype for problem in prepared] == ["i32"]
    refused = cubinery.InvalidArgumentError
    with pytest.raises(refused, match="checkpoint_slots has dtype i64; accepted: i32"):
        prefill(context, **named, **places(1, "i64"))
    with pytest.raises(refused, match="checkpoint_offsets is None"):
        prefill(context, **{**named, **places(1), "checkpoint_offsets": None})
    with pytest.raises(refused, match="checkpoint_slots is None"):
        prefill(context, **{**named, **places(1), "checkpoint_slots": None})
    with pytest.raises(refused, match="checkpoint_offsets is given; accepted: None"):
        prefill(context, state=pool, state_indices=indices, **places(1))


def test_a_stride_of_windows_needs_no_kernel_of_its_own(context, prepared, gpu):
    for every in (1, 3, 64, 100):
        conv(
            context, lead=(1, 300), checkpoint_mode="after", checkpoint_every=every,
            checkpoints=window(300 // every),
        )  # fmt: skip
    assert [problem.checkpoint_every for problem in prepared] == [1]
    with pytest.raises(cubinery.InvalidArgumentError, match="checkpoint_every is 0; accepted: "):
        conv(
            context, lead=(1, 300), checkpoint_mode="after", checkpoint_every=0,
            checkpoints=window(300),
        )  # fmt: skip


def test_prefill_has_a_flag_for_each_sequence(context, prepared, gpu):
    flags = FakeArray(B, dtype="bool")
    for named in ({}, {"has_initial_state": flags}):
        prefill(context, state=state(), **named)
    assert [problem.has_initial_state for problem in prepared] == [True]
    assert gpu.launches == 4
    for changed, message in (
        ({"has_initial_state": FakeArray(B)}, "has_initial_state has dtype f32; accepted: bool"),
        ({"has_initial_state": FakeArray(3, dtype="bool")}, "has_initial_state has shape"),
        ({"has_initial_state": flags, "state": None}, "has_initial_state is given; accepted: None"),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            prefill(context, **{"state": state(), **changed})


@pytest.mark.parametrize(
    ("lead", "named", "expected"),
    [
        ((B, T), {"state": state()}, {"has_initial_state": True, "store_state": True}),
        (
            (B * T,),
            {"cu_seqlens": FakeArray(B + 1, dtype="i64")},
            {"varlen": True, "cu_seqlens_dtype": "i64"},
        ),
        ((1, B * T), {"cu_seqlens": FakeArray(B + 1, dtype="i32")}, {"varlen": True}),
        (
            (B, T),
            {
                "checkpoints": FakeArray(2 * B, HV, D, D, dtype="bf16"),
                "checkpoint_mode": "before",
                "checkpoint_every": 16,
            },
            {"checkpoints": "before", "checkpoint_every": 16, "state_dtype": "bf16"},
        ),
        (
            (B, T),
            {
                "checkpoints": FakeArray(9, HV, D, D, dtype="bf16"),
                "checkpoint_mode": "at",
                "checkpoint_offsets": FakeArray(B, 2, dtype="i32"),
                "checkpoint_slots": FakeArray(B, 2, dtype="i64"),
            },
            {"checkpoints": "at", "state_dtype": "bf16", "index_dtype": "i64"},
        ),
        ((B, T), {"segments": "never"}, {"segments": "never"}),
    ],
)
def test_prefills_are_inferred(context, prepared, gpu, lead, named, expected):
    prefill(context, lead=lead, **named)
    problem = {
        **BASE,
        **{"gate_mode": "none", "beta_mode": "one"},
        **{"has_initial_state": False, "store_state": False},
        **expected,
    }
    assert prepared == [cubinery.PrefillProblem(**problem)]
    assert gpu.launches == 2


COUNTS = FakeArray(B, dtype="i32")
BOUNDS = FakeArray(B + 1, dtype="i64")


@pytest.mark.parametrize(
    ("lead", "named", "expected"),
    [
        ((B, DRAFTS), {}, {"has_initial_state": False, "store_state": False}),
        ((B, DRAFTS), {"state": state()}, {}),
        ((B, DRAFTS), {"state": state(), "draft_tokens": 4}, {"draft_tokens": 4}),
        (
            (B, DRAFTS),
            {"state": state(), "state_out": state(B, DRAFTS), "stored_states": "every"},
            {"stored_states": "every"},
        ),
        (
            (B, DRAFTS),
            {
                "state": state(B, 5),
                "accepted": FakeArray(B, dtype="i64"),
                "stored_states": "every",
            },
            {"stored_states": "every", "from_accepted": True, "accepted_dtype": "i64"},
        ),
        (
            (B, DRAFTS),
            {"state": state(B, 5), "accepted": COUNTS, "store_state": False},
            {"from_accepted": True, "store_state": False},
        ),
        (
            (B * DRAFTS,),
            {
                "state": state(9),
                "state_indices": FakeArray(B, 8, dtype="i32"),
                "cu_seqlens": BOUNDS,
                "draft_tokens": 8,
                "accepted": COUNTS,
                "stored_states": "every",
                "pad_slot_id": -1,
            },
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64", "draft_tokens": 8},
                **{"state_location": "pool"},
                **{"stored_states": "every", "from_accepted": True},
            },
        ),
        (
            (B, DRAFTS),
            {
                "state": state(),
                "store_state": False,
                "parents": FakeArray(B, DRAFTS, dtype="i64"),
            },
            {"store_state": False, "tree": True, "parents_dtype": "i64"},
        ),
        (
            (B * DRAFTS,),
            {
                **{"state": state(), "cu_seqlens": BOUNDS, "stored_states": "every"},
                "state_out": state(B, 16),
                "parents": FakeArray(B * DRAFTS, dtype="i32"),
            },
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64"},
                **{"stored_states": "every", "tree": True},
            },
        ),
        (
            (1, B * DRAFTS),
            {"state": state(dtype="bf16"), "cu_seqlens": BOUNDS, "round_each_token": True},
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64"},
                **{"state_dtype": "bf16", "round_each_token": True},
            },
        ),
    ],
)
def test_verifications_are_inferred(context, prepared, gpu, lead, named, expected):
    verify(context, lead=lead, **named)
    problem = {**BASE, "gate_mode": "none", "beta_mode": "one", "draft_tokens": 16, **expected}
    assert prepared == [cubinery.VerifyProblem(**problem)]
    assert gpu.launches == 1


SPLIT = BASE  # of a convolution's channels
PER_HEAD = FakeArray(HV)
PER_TOKEN = FakeArray(B, T, HV, dtype="bf16")
FLAGS = FakeArray(B, dtype="bool")


@pytest.mark.parametrize(
    ("lead", "named", "expected"),
    [
        ((B, T), {}, {}),
        (
            (B, T),
            {"activation": "none", "bias": FakeArray(C, dtype="f16")},
            {"activation": "none", "has_bias": True},
        ),
        (
            (B * T,),
            {"cu_seqlens": BOUNDS, "state_out": window(dtype="f32")},
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64"},
                **{"state_dtype": "f32", "store_state": True},
            },
        ),
        (
            (1, B * T),
            {
                **{"cu_seqlens": BOUNDS, "state": window(9, W), "has_initial_state": FLAGS},
                **{"state_indices": FakeArray(B, dtype="i32"), "pad_slot_id": -1},
            },
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64", "whole_window": True},
                **{"state_location": "pool"},
                **{"has_initial_state": True, "store_state": True},
            },
        ),
        (
            (B, 1),
            {"state": window(), "store_state": False, "state_layout": "channels"},
            {"has_initial_state": True, "state_layout": "channels"},
        ),
        (
            (B, DRAFTS),
            {"state": window(columns=W), "accepted": COUNTS},
            {"has_initial_state": True, "store_state": True, "from_accepted": True},
        ),
        (
            (B, DRAFTS),
            {"state": window(columns=W), "cache_seqlens": COUNTS},
            {"has_initial_state": True, "store_state": True, "circular_state": True},
        ),
        (
            (B, DRAFTS),
            {
                **{"state": FakeArray(B, DRAFTS, C, W, dtype="bf16"), "accepted": COUNTS},
                **{"stored_states": "every"},
            },
            {
                **{"has_initial_state": True, "store_state": True, "from_accepted": True},
                **{"stored_states": "every", "whole_window": True},
            },
        ),
        (
            (B * T,),
            {
                **{"cu_seqlens": BOUNDS, "checkpoints": window(7, W, dtype="f32")},
                **{"checkpoint_mode": "before", "checkpoint_every": 3, "max_seqlen": T},
                **{"checkpoint_cu_starts": BOUNDS},
            },
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64", "state_dtype": "f32"},
                **{"checkpoints": "before", "checkpoint_every": 1, "whole_window": True},
            },
        ),
        (
            (B * T,),
            {
                **{"cu_seqlens": BOUNDS, "checkpoints": window(7, W, dtype="f32")},
                **{"checkpoint_mode": "at", "checkpoint_slots": FakeArray(B, 1, dtype="i64")},
                **{"checkpoint_offsets": FakeArray(B, 1, dtype="i32")},
            },
            {
                **{"varlen": True, "cu_seqlens_dtype": "i64", "state_dtype": "f32"},
                **{"checkpoints": "at", "checkpoint_every": 1, "whole_window": True},
                **{"index_dtype": "i64"},
            },
        ),
    ],
)
def test_convolutions_are_inferred(context, prepared, gpu, lead, named, expected):
    if "bias" in named:
        x, weight = FakeArray(*lead, C, dtype="bf16"), FakeArray(C, W, dtype="f16")
        y = FakeArray(*lead, C, dtype="bf16")
        assert functional.gdn_conv(x, weight, **named, y=y, context=context) is y
    else:
        conv(context, lead=lead, **named)
    problem = {"weight_dtype": "f16", "has_initial_state": False, "store_state": False, **expected}
    assert prepared == [cubinery.ConvProblem(**problem)]
    assert gpu.launches == 1


def test_a_split_is_inferred(context, prepared, gpu, monkeypatch):
    monkeypatch.setattr(_arrays, "empty", lambda like, shape, dtype: FakeArray(*shape, dtype=dtype))
    gates = {"a": PER_TOKEN, "b": PER_TOKEN, "A_log": PER_HEAD, "dt_bias": PER_HEAD}
    k = FakeArray(B, T, HK, D, dtype="bf16")
    made = conv(context, **SPLIT, **gates, k=k, use_qk_l2norm=True, scale=0.25)
    assert made.k is k
    assert (made.q.shape, made.v.shape) == ((B, T, HK, D), (B, T, HV, D))
    assert (_arrays.dtype_name(made.q), _arrays.dtype_name(made.v)) == ("bf16", "bf16")
    for array in (made.g, made.beta):
        assert (array.shape, _arrays.dtype_name(array)) == ((B, T, HV), "f32")
    plain = conv(context, **SPLIT, b=PER_TOKEN, beta_mode="doubled_logit")
    assert (plain.g, plain.beta.shape) == (None, (B, T, HV))
    assert conv(context, **SPLIT)[3:] == (None, None)
    problem = {
        **SPLIT,
        **{"split_qkv": True, "weight_dtype": "f16"},
        **{"has_initial_state": False, "store_state": False},
    }
    computed = {
        **{"gate_mode": "computed", "beta_mode": "logit", "use_qk_l2norm": True},
        **{"gate_dtype": "bf16", "beta_dtype": "bf16"},
    }
    assert prepared == [
        cubinery.ConvProblem(**problem, **computed),
        cubinery.ConvProblem(**problem, beta_mode="doubled_logit", beta_dtype="bf16"),
        cubinery.ConvProblem(**problem),
    ]
    assert gpu.launches == 3


def test_a_split_infers_a_decay_of_channels_and_a_bound(context, prepared, gpu, monkeypatch):
    monkeypatch.setattr(_arrays, "empty", lambda like, shape, dtype: FakeArray(*shape, dtype=dtype))
    a, flat = FakeArray(B, T, HV, D, dtype="bf16"), FakeArray(HV * D)
    for lead, bounds in (((B, T), {}), ((B * T,), {"cu_seqlens": FakeArray(B + 1, dtype="i32")})):
        rows = FakeArray(*lead, HV, D, dtype="bf16")
        made = conv(context, lead=lead, **SPLIT, **bounds, a=rows, A_log=PER_HEAD, dt_bias=flat)
        assert (made.g.shape, _arrays.dtype_name(made.g)) == ((*lead, HV, D), "f32")
    g = FakeArray(B, T, HV, D)
    assert conv(context, **SPLIT, a=a, g=g, lower_bound=-5.0).g is g
    one = conv(context, **SPLIT, a=PER_TOKEN, dt_bias=PER_HEAD, lower_bound=-5.0)
    assert one.g.shape == (B, T, HV)
    assert [(problem.decay, problem.gate_mode, problem.varlen) for problem in prepared] == [
        ("channel", "computed", False), ("channel", "computed", True),
        ("channel", "lower_bound", False), ("head", "lower_bound", False),
    ]  # fmt: skip
    assert gpu.launches == 4


def test_the_layout_of_windows_is_that_of_their_strides(context, prepared, gpu, monkeypatch):
    monkeypatch.setattr(
        _rules, "strides_of", lambda array: array._strides and tuple(array._strides)
    )
    conv(context, state=window(turned=True))
    conv(context, state_out=window(turned=True, columns=W))
    conv(context, state=window())
    found = [(problem.state_layout, problem.whole_window) for problem in prepared]
    assert found == [("channels", False), ("channels", True), ("columns", False)]
    assert gpu.launches == 3


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"lead": (B * T,)}, "x: 2 dimensions; accepted: arrays of 3"),
        ({"state_indices": FakeArray(B, dtype="i32")}, "state_indices: given"),
        ({"state": FakeArray(B, C, dtype="bf16")}, "state: 2 dimensions; accepted: arrays of 3"),
        ({"state": window(columns=2)}, "gdn_conv: state has shape"),
        ({"q_heads": HK}, "k_heads = None; accepted: an int, as q_heads, k_heads, v_heads, "),
        ({"activation": "gelu"}, "activation = 'gelu'; accepted: 'none', 'silu'"),
        ({"a": PER_TOKEN}, "gate_mode = computed; accepted: none"),
        ({"A_log": PER_HEAD}, "gdn_conv: A_log is given"),
        ({"lower_bound": -5.0}, "gdn_conv: lower_bound is -5; accepted: none, gate_mode is not"),
        (
            {**SPLIT, "a": PER_TOKEN, "dt_bias": PER_HEAD, "lower_bound": 0.0},
            "gdn_conv: lower_bound is 0; accepted: -5 to below 0",
        ),
        ({**SPLIT, "a": PER_TOKEN, "decay": "channel"}, "gdn_conv: a has shape"),
        ({"accepted": COUNTS}, "from_accepted"),
        ({"has_initial_state": FLAGS}, "has_initial_state is given; accepted: None"),
        (
            {"state": window(), "has_initial_state": FakeArray(B, dtype="i32")},
            "has_initial_state has dtype i32; accepted: bool",
        ),
        ({**SPLIT, "v_heads": HV + 1, "channels": C}, "v_heads = 5|has 128 channels"),
        ({**SPLIT, "y": FakeArray(B, T, C, dtype="bf16")}, "gdn_conv: y is given; accepted: None"),
        ({"q": FakeArray(B, T, HK, D, dtype="bf16")}, "gdn_conv: q is given; accepted: None"),
        ({"scale": 2.0}, "scale is 2; accepted: 1"),
        ({"checkpoint_mode": "behind"}, "checkpoint_mode = 'behind'; accepted: 'none', 'before', "),
        ({"checkpoint_mode": "after"}, "gdn_conv: checkpoints is None"),
        ({"checkpoints": window()}, "gdn_conv: checkpoints is given; accepted: None"),
        (
            {"lead": (B, DRAFTS), "state": window(), "stored_states": "every"},
            "gdn_conv: state_out is None",
        ),
    ],
)
def test_refusals_of_convolutions(context, gpu, monkeypatch, named, message):
    monkeypatch.setattr(_arrays, "empty", lambda like, shape, dtype: FakeArray(*shape, dtype=dtype))
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        conv(context, **named)
    assert gpu.launches == 0


def test_heads_before_tokens(context, prepared, gpu):
    q, k, v, out = (FakeArray(B, heads, T, D, dtype="bf16") for heads in (HK, HK, HV, HV))
    functional.gdn_prefill(
        q, k, v, out=out, workspace=FakeArray(1 << 20), token_layout="bhtd", context=context
    )
    assert (prepared[0].k_heads, prepared[0].v_heads, prepared[0].token_layout) == (HK, HV, "bhtd")
    assert gpu.launches == 2


@pytest.mark.parametrize("lead", [(B,), (B, 1)])
def test_out_is_allocated(context, monkeypatch, lead):
    made = []

    def empty(like, shape, dtype):
        made.append((shape, dtype))
        return FakeArray(*shape, dtype=dtype)

    monkeypatch.setattr(_arrays, "empty", empty)
    out = decode(context, lead=lead, out=None)
    assert out.shape == (*lead, HV, D)
    decode(context, lead=lead, out=None, output_dtype="f32")
    prefill(context, out=None)
    verify(context, out=None)
    conv(context, y=None)
    assert made == [
        ((*lead, HV, D), "bf16"),
        ((*lead, HV, D), "f32"),
        ((B, T, HV, D), "bf16"),
        ((B, DRAFTS, HV, D), "bf16"),
        ((B, T, C), "bf16"),
    ]


@pytest.mark.parametrize(
    ("lead", "named"),
    [
        ((B, T), {"state": state()}),
        ((B * T,), {"cu_seqlens": FakeArray(B + 1, dtype="i64")}),
        ((1, B * T), {"cu_seqlens": FakeArray(B + 1, dtype="i64")}),
    ],
)
def test_workspaces_are_allocated(context, monkeypatch, gpu, lead, named):
    sizes = []

    def workspace(like, size, stream, device):
        sizes.append((size, stream, device))
        return FakeArray(size // 8, dtype="i64")

    monkeypatch.setattr(_arrays, "workspace", workspace)
    prefill(context, lead=lead, workspace=None, stream=16, **named)
    (operator,) = context._operators.values()
    assert sizes == [(operator.workspace_bytes(B * T, B), 16, 0)]
    assert gpu.launches == 2


def test_the_output_dtype_is_outs(context, prepared):
    decode(context, out=FakeArray(B, HV, D, dtype="f32"))
    assert (prepared[0].dtype, prepared[0].output_dtype) == ("bf16", "f32")


def test_operators_are_kept(context, prepared):
    for lead in ((1,), (5,), (3, 1)):
        decode(context, lead=lead)
    assert len(prepared) == 1
    decode(context, state=state())
    decode(context, dtype="f16")
    decode(context, use_qk_l2norm=True)
    decode(context, lead=(7,), state=state(7), dtype="bf16")
    assert len(prepared) == 4


def test_threads_share_one_operator(context, gpu):
    threads = [threading.Thread(target=decode, args=(context,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gpu.launches == 6
    assert len(context._operators) == 1


def test_one_context_per_device(monkeypatch, context, gpu):
    made = []
    monkeypatch.setattr(_context, "_contexts", {})
    monkeypatch.setattr(_context, "Context", lambda device: made.append(device) or context)
    for _ in range(2):
        q, k, v, out = tokens(B)
        functional.gdn_decode(q, k, v, out=out)
    assert made == [0]
    assert gpu.launches == 2


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"state_indices": FakeArray(B, dtype="i32")}, "state_indices: given"),
        ({"state_out": state(), "store_state": False}, "state_out: given"),
        ({"gate_mode": "log"}, "gdn_decode: g "),
        ({"gate_mode": "exp"}, "gate_mode = 'exp'; accepted: 'none', 'log', 'alpha', 'computed'"),
        ({"beta_mode": "given"}, "gdn_decode: beta "),
        ({"pad_slot_id": -1, "state": state()}, "pad_slot_id is -1; accepted: none"),
        ({"scratch_slot": 0, "state": state()}, "scratch_slot is 0; accepted: none"),
        ({"A_log": FakeArray(HV)}, "gdn_decode: A_log"),
        ({"lead": (B, 2)}, "gdn_decode: q "),
        ({"lead": ()}, "q: 2 dimensions; accepted: arrays of 3 or 4"),
    ],
)
def test_refusals(context, gpu, named, message):
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        decode(context, **named)
    assert gpu.launches == 0


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"accepted": COUNTS}, "from_accepted = true; accepted: false"),
        ({"draft_tokens": 3, "state": state()}, "gdn_verify: q has T = 4; accepted: 0 to 3"),
        ({"draft_tokens": 17}, "draft_tokens = 17; accepted: 1 to 16"),
        ({"stored_states": "all", "state": state()}, "stored_states = 'all'; accepted: 'last'"),
        ({"stored_states": "every", "state": state()}, "gdn_verify: state_out is None"),
        ({"state_indices": FakeArray(B, dtype="i32")}, "state_indices: given"),
        ({"lead": (B * DRAFTS,)}, "q: 3 dimensions; accepted: arrays of 4"),
    ],
)
def test_refusals_of_verifications(context, gpu, named, message):
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        verify(context, **named)
    assert gpu.launches == 0


# Where there are no slots to write, whatever else there is: the message names the indices.
OUT_INDICES = [
    (("state_out",), "without state_indices, which say where new states go that start from zero"),
    (("state",), "without state_indices: both states are pools, or neither is"),
    (("state", "state_out"), "without state_indices: both states are pools, or neither is"),
    ((), "without state and state_out"),
]


@pytest.mark.parametrize("call, kept", [(decode, state), (prefill, state), (verify, state),
                                        (conv, window)])  # fmt: skip
@pytest.mark.parametrize("given, why", OUT_INDICES)
@pytest.mark.parametrize("rows", [B, B + 3])
def test_slots_to_write_need_slots_to_read(context, gpu, call, kept, given, why, rows):
    named = {name: kept(rows) for name in given}
    message = re.escape(f"state_out_indices: given; accepted: None, {why}")
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        call(context, **named, state_out_indices=FakeArray(B, dtype="i32"))
    assert gpu.launches == 0


def test_arrays_on_the_cpu_are_refused():
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((B, HV, D), numpy.float32)
    for function in (functional.gdn_decode, functional.gdn_prefill, functional.gdn_verify):
        with pytest.raises(cubinery.InvalidArgumentError, match="q: is on device cpu"):
            function(array, array, array)
    with pytest.raises(cubinery.InvalidArgumentError, match="q: is on device cpu"):
        functional.gdn_decode(*(FakeArray(B, HV, D, device=(CPU, 0)) for _ in range(3)))
    with pytest.raises(cubinery.InvalidArgumentError, match="q: is of type str"):
        functional.gdn_decode("q", "k", "v")
    with pytest.raises(cubinery.InvalidArgumentError, match="x: is on device cpu"):
        functional.gdn_conv(array, array[0])


def test_torch_arrays_on_the_cpu_are_refused(context):
    torch = pytest.importorskip("torch")
    array = torch.zeros(B, HV, D, dtype=torch.bfloat16)
    with pytest.raises(cubinery.InvalidArgumentError, match="q: is on device cpu"):
        functional.gdn_decode(array, array, array)
    with pytest.raises(cubinery.InvalidArgumentError, match="q is on device cpu"):
        functional.gdn_decode(array, array, array, out=array, context=context)
