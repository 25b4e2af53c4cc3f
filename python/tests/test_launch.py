"""Launches on a GPU that is not there: what reaches the driver, and what is refused."""

import dataclasses
import gc
import sys
import threading
import weakref

import cubinery
import pytest
from cubinery import _core
from fake_gpu import CPU, CUDA, FakeArray

B, T, H, D = 3, 40, 2, 16
DECODE = cubinery.DecodeProblem(q_heads=H, k_heads=H, v_heads=H, key_dim=D, value_dim=D)
PREFILL = cubinery.PrefillProblem(q_heads=H, k_heads=H, v_heads=H, key_dim=D, value_dim=D)

VERIFY = cubinery.VerifyProblem(
    **{"q_heads": H, "k_heads": H, "v_heads": H, "key_dim": D, "value_dim": D, "draft_tokens": 8},
    **{"state_location": "pool", "stored_states": "every", "from_accepted": True},
)
S, SLOTS, DRAFTS = 5, 20, 4

COMMIT = cubinery.CommitProblem(
    **{"q_heads": H, "k_heads": H, "v_heads": H, "key_dim": D, "value_dim": D, "draft_tokens": 8},
    state_location="pool",
)


CONV = cubinery.ConvProblem(
    **{"q_heads": H, "k_heads": H, "v_heads": H, "key_dim": D, "value_dim": D, "split_qkv": True},
    **{"has_bias": True, "varlen": True, "gate_mode": "computed", "beta_mode": "logit"},
    **{"use_qk_l2norm": True, "state_location": "pool"},
)
CHANNELS = 3 * H * D


def decode_arrays(array=FakeArray):
    """Positional and named arguments of one step of DECODE."""
    tokens = [array(B, H, D, dtype="bf16") for _ in range(3)]
    named = {"out": array(B, H, D, dtype="bf16"), "state": array(B, H, D, D)}
    return [*tokens, array(B, H), array(B, H)], named


def prefill_arrays(array=FakeArray):
    """Positional and named arguments of one launch of PREFILL, less the workspace."""
    tokens = [array(B, T, H, D, dtype="bf16") for _ in range(3)]
    named = {"out": array(B, T, H, D, dtype="bf16"), "state": array(B, H, D, D)}
    return [*tokens, array(B, T, H), array(B, T, H)], named


def verify_arrays(array=FakeArray):
    """Positional and named arguments of one launch of VERIFY: B requests of DRAFTS tokens."""
    tokens = [array(B, DRAFTS, H, D, dtype="bf16") for _ in range(3)]
    named = {
        "out": array(B, DRAFTS, H, D, dtype="bf16"),
        "state": array(SLOTS, H, D, D),
        "state_indices": array(B, S, dtype="i32"),
        "accepted": array(B, dtype="i32"),
    }
    return [*tokens, array(B, DRAFTS, H), array(B, DRAFTS, H)], named


def commit_layer(array=FakeArray):
    """The arrays of one layer of COMMIT."""
    tokens = {name: array(B, DRAFTS, H, D, dtype="bf16") for name in ("k", "v")}
    gates = {name: array(B, DRAFTS, H) for name in ("g", "beta")}
    return {**tokens, **gates, "state": array(SLOTS, H, D, D)}


def conv_arrays(array=FakeArray):
    """Positional and named arguments of one launch of CONV: B sequences in T tokens."""
    named = {
        **{"q": array(T, H, D, dtype="bf16"), "k": array(T, H, D, dtype="bf16")},
        **{"v": array(T, H, D, dtype="bf16"), "a": array(T, H), "b": array(T, H)},
        **{"A_log": array(H), "dt_bias": array(H), "g": array(T, H), "beta": array(T, H)},
        **{"cu_seqlens": array(B + 1, dtype="i32"), "has_initial_state": array(B, dtype="bool")},
        **{
            "state": array(SLOTS, CHANNELS, 3, dtype="bf16"),
            "state_indices": array(B, dtype="i32"),
        },
    }
    x, weight = array(T, CHANNELS, dtype="bf16"), array(CHANNELS, 4, dtype="bf16")
    return [x, weight, array(CHANNELS, dtype="bf16")], named


def commit_numbers(array=FakeArray):
    """The named arguments of one launch of COMMIT beside its layers."""
    return {"accepted": array(B, dtype="i32"), "state_indices": array(B, dtype="i32")}


@pytest.fixture
def decode(context):
    return context.prepare(DECODE)


@pytest.fixture
def prefill(context):
    return context.prepare(PREFILL)


@pytest.fixture
def verify(context):
    return context.prepare(VERIFY)


@pytest.fixture
def commit(context):
    return context.prepare(COMMIT)


@pytest.fixture
def conv(context):
    return context.prepare(CONV)


def test_decode_launches_and_returns_out(decode, gpu):
    arrays, named = decode_arrays()
    assert decode(*arrays, **named) is named["out"]
    assert gpu.launches == 1
    assert (decode.problem, decode.context.device, decode.context.sm_count) == (DECODE, 0, 132)


def test_a_lower_bound_is_a_mode_of_the_gate(decode, gpu):
    arrays, named = decode_arrays()
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_decode: lower_bound is -5"):
        decode(*arrays, **named, lower_bound=-5.0)
    assert gpu.launches == 0


def test_a_norm_takes_its_gate_weight_and_epsilon(context, gpu):
    decode = context.prepare(dataclasses.replace(DECODE, output_norm="gated_rms"))
    arrays, named = decode_arrays()
    norm = {"z": FakeArray(B, H, D, dtype="bf16"), "norm_weight": FakeArray(D)}
    assert decode(*arrays, **named, **norm, norm_eps=1e-5) is named["out"]
    assert gpu.launches == 1
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_decode: z is None"):
        decode(*arrays, **named, norm_weight=norm["norm_weight"])
    with pytest.raises(cubinery.InvalidArgumentError, match="norm_eps is -1"):
        decode(*arrays, **named, **norm, norm_eps=-1.0)
    with pytest.raises(TypeError, match="norm_eps"):
        decode(*arrays, **named, **norm, norm_eps="small")
    assert gpu.launches == 1


def test_a_convolution_is_in_place_of_q_k_and_v(context, gpu):
    decode = context.prepare(dataclasses.replace(DECODE, conv_width=4))
    arrays, named = decode_arrays()
    q, k, v, *gates = arrays
    channels = sum(array.shape[-2] * D for array in (q, k, v))
    conv = {
        "x": FakeArray(B, channels, dtype="bf16"),
        "conv_weight": FakeArray(channels, 4, dtype="bf16"),
        "conv_state": FakeArray(named["state"].shape[0], channels, 3, dtype="bf16"),
    }
    gates = dict(zip(("g", "beta"), gates))
    assert decode(**gates, **named, **conv) is named["out"]
    assert gpu.launches == 1
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_decode: q is given"):
        decode(q, **gates, **named, **conv)
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_decode: conv_weight is None"):
        decode(**gates, **named, x=conv["x"], conv_state=conv["conv_state"])
    with pytest.raises(cubinery.InvalidArgumentError, match="q is None"):
        decode(**gates, **named)
    assert gpu.launches == 1


def test_prefill_launches_two_kernels(prefill, gpu):
    arrays, named = prefill_arrays()
    size = prefill.workspace_bytes(B * T, B)
    assert 0 < size < prefill.workspace_bytes(2 * B * T, B)
    workspace = FakeArray(-(-size // 4), dtype="i32")
    assert prefill(*arrays, workspace=workspace, **named) is named["out"]
    assert gpu.launches == 2


@pytest.mark.parametrize("array", ["FakeArray", "FastArray"])
def test_verify_launches_and_returns_out(verify, gpu, array):
    arrays, named = verify_arrays(FakeArray if array == "FakeArray" else gpu.FastArray)
    assert verify(*arrays, **named) is named["out"]
    assert verify(*arrays, **named, state_out_indices=FakeArray(B, 8, dtype="i32")) is named["out"]
    assert gpu.launches == 2
    assert verify.problem == VERIFY


def test_a_tree_has_parents(context, gpu):
    tree = dataclasses.replace(VERIFY, tree=True, parents_dtype="i64")
    verify = context.prepare(tree)
    arrays, named = verify_arrays()
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_verify: parents is None"):
        verify(*arrays, **named)
    for parents, message in (
        (FakeArray(B, DRAFTS, dtype="i32"), "parents has dtype i32; accepted: i64"),
        (FakeArray(B, DRAFTS + 1, dtype="i64"), r"parents has shape \[3, 5\]"),
        (FakeArray(B, DRAFTS, dtype="i64", device=(CPU, 0)), "parents is on device cpu"),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            verify(*arrays, **named, parents=parents)
    assert gpu.launches == 0
    verify(*arrays, **named, parents=FakeArray(B, DRAFTS, dtype="i64"))
    assert gpu.launches == 1


def test_packed_requests_have_bounds(context, gpu):
    verify = context.prepare(dataclasses.replace(VERIFY, varlen=True))
    arrays, named = verify_arrays()
    arrays = [
        FakeArray(B * DRAFTS, *given.shape[2:], dtype="f32" if len(given.shape) == 3 else "bf16")
        for given in arrays
    ]
    named["out"] = FakeArray(B * DRAFTS, H, D, dtype="bf16")
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_verify: cu_seqlens is None"):
        verify(*arrays, **named)
    # A launch does not know how many of the tokens are whose: there must be a slot for each.
    bounds = FakeArray(B + 1, dtype="i32")
    with pytest.raises(cubinery.InvalidArgumentError, match=r"state_indices has shape \[3, 5\]"):
        verify(*arrays, **named, cu_seqlens=bounds)
    verify(*arrays, **named, cu_seqlens=bounds, state_out_indices=FakeArray(B, 8, dtype="i32"))
    assert gpu.launches == 1


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("accepted", {"dtype": "i64"}, "gdn_verify: accepted has dtype i64; accepted: i32"),
        ("accepted", {"device": (CPU, 0)}, "gdn_verify: accepted is on device cpu"),
        ("state_indices", {"shape": (B,)}, r"gdn_verify: state_indices has shape \[3\]"),
        ("state_indices", {"shape": (B, DRAFTS - 1)}, "accepted: .*steps = 4"),
        ("out", {"shape": (B, H, D), "dtype": "bf16"}, "gdn_verify: out has shape"),
    ],
)
def test_refusals_of_a_verification_name_the_array(verify, gpu, name, wrong, message):
    arrays, named = verify_arrays()
    shape = wrong.get("shape", named[name].shape)
    options = {option: value for option, value in wrong.items() if option != "shape"}
    named[name] = FakeArray(*shape, **{"dtype": "i32", **options})
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        verify(*arrays, **named)
    assert gpu.launches == 0


@pytest.mark.parametrize("array", ["FakeArray", "FastArray"])
def test_commit_takes_a_layer_or_a_table(commit, gpu, array):
    array = FakeArray if array == "FakeArray" else gpu.FastArray
    layer, numbers = commit_layer(array), commit_numbers(array)
    assert commit(**layer, **numbers) is None
    assert commit(layers=array(36, 32, dtype="i64"), **numbers) is None
    assert commit(layers=array(36, 32, dtype="i64"), state_indices=numbers["state_indices"]) is None
    assert gpu.launches == 3
    assert commit.problem == COMMIT


@pytest.mark.parametrize("array", ["FakeArray", "FastArray"])
def test_a_table_has_the_addresses_of_its_layers(commit, gpu, array):
    array = FakeArray if array == "FakeArray" else gpu.FastArray
    layers = [commit_layer(array) for _ in range(30)]
    layers[29]["state_out"] = array(SLOTS, H, D, D)
    layers[0]["A_log"] = None  # as one that is missing
    words = commit.table(layers)
    assert len(words) == 32 * 30
    assert gpu.launches == 0
    for i, layer in enumerate(layers):
        of_layer = words[32 * i : 32 * (i + 1)]
        assert of_layer == commit.table([layer])
        assert of_layer[:2] == [B, DRAFTS]
        state = layer["state"]._managed.tensor.data
        out = layer.get("state_out")
        written = state if out is None else out._managed.tensor.data
        found = [of_layer[at] for at in (2, 7, 12, 16, 24, 28)]
        arrays = [layer[name]._managed.tensor.data for name in ("k", "v", "g", "beta")]
        assert found == [*arrays, state, written]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": None}, "layer 1: gdn_commit: v is None"),
        ({"k": FakeArray(B, 9, H, D, dtype="bf16")}, "layer 1: gdn_commit: k has T = 9; accepted"),
        ({"state": FakeArray(SLOTS, H, D)}, "layer 1: gdn_commit: state has shape"),
        (
            {"g": FakeArray(B, DRAFTS, H, device=(CPU, 0))},
            "layer 1: gdn_commit: g is on device cpu",
        ),
        ({"q": None}, r"layers\[1\] = 'q'; accepted: 'k', 'v', 'g', 'beta', 'A_log', "),
    ],
)
def test_refusals_of_a_table_name_the_layer(commit, change, message):
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        commit.table([commit_layer(), {**commit_layer(), **change}])


def test_a_table_is_of_layers(commit, decode):
    with pytest.raises(cubinery.InvalidArgumentError, match="layers is empty; accepted: 1 or more"):
        commit.table([])
    with pytest.raises(cubinery.InvalidArgumentError, match=r"layers\[0\]: is of type list"):
        commit.table([[]])
    with pytest.raises(TypeError, match="the operator takes no table"):
        _core.operator_table(decode._handle)
    with pytest.raises(TypeError, match="3 arguments given; taken: 0"):
        _core.operator_table(commit._handle, None, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": None}, "k is None; accepted: an array, layers is None"),
        ({"layers": FakeArray(4, 31, dtype="i64")}, r"gdn_commit: layers has shape \[4, 31\]"),
        ({"layers": FakeArray(4, 32, dtype="i32")}, "gdn_commit: layers has dtype i32"),
        ({"layers": FakeArray(4, 32, dtype="i64", device=(CPU, 0))}, "layers is on device cpu"),
        ({"k": FakeArray(B, DRAFTS, H, D, dtype="bf16")}, "gdn_commit: k is given; accepted: None"),
        ({"accepted": FakeArray(B, dtype="i64")}, "gdn_commit: accepted has dtype i64"),
        ({"accepted": FakeArray(B - 1, dtype="i32")}, "gdn_commit: state_indices has shape"),
        ({"state_indices": None}, "gdn_commit: state_indices is None"),
        ({"cu_seqlens": FakeArray(B + 1, dtype="i32")}, "gdn_commit: cu_seqlens is given"),
        ({"scratch_slot": 3}, "gdn_commit: scratch_slot is 3; accepted: none"),
        ({"scratch_slot": 2**63}, "scratch_slot"),
    ],
)
def test_refusals_of_a_commit_name_the_argument(commit, gpu, changes, message):
    given = {"layers": FakeArray(4, 32, dtype="i64"), **commit_numbers()}
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        commit(**{**given, **changes})
    assert gpu.launches == 0


def test_the_stream_of_a_commit_is_that_of_its_table(commit, gpu):
    gpu.set_current_stream(0x1230)
    commit(layers=gpu.FastArray(4, 32, dtype="i64"), **commit_numbers())
    assert gpu.last_stream == 0x1230
    commit(**commit_layer(gpu.FastArray), **commit_numbers())
    assert gpu.last_stream == 0x1230
    commit(layers=FakeArray(4, 32, dtype="i64"), **commit_numbers(), stream=0x4560)
    assert gpu.last_stream == 0x4560


@pytest.mark.parametrize("array", ["FakeArray", "FastArray"])
def test_conv_launches(conv, gpu, array):
    arrays, named = conv_arrays(FakeArray if array == "FakeArray" else gpu.FastArray)
    assert conv(*arrays, **named) is None
    conv(*arrays, **{**named, "has_initial_state": None}, scale=0.25)
    gpu.set_current_stream(0x1230)
    conv(*arrays, **named, state_out_indices=named["state_indices"], enable_pdl=True)
    assert gpu.launches == 3
    assert gpu.last_stream == (0 if array == "FakeArray" else 0x1230)
    assert conv.problem == CONV


def test_a_convolution_takes_checkpoints_and_a_length(context, gpu):
    conv = context.prepare(dataclasses.replace(CONV, checkpoints="after", checkpoint_every=3))
    arrays, named = conv_arrays()
    kept = {
        "checkpoints": FakeArray(9, CHANNELS, 3, dtype="bf16"),
        "checkpoint_cu_starts": FakeArray(B + 1, dtype="i32"),
    }
    conv(*arrays, **named, **kept)
    conv(*arrays, **named, **kept, max_seqlen=4)
    assert gpu.launches == 2
    with pytest.raises(TypeError, match="max_seqlen = 'four'; accepted: integers of 64 bits"):
        conv(*arrays, **named, **kept, max_seqlen="four")
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_conv: checkpoints is None"):
        conv(*arrays, **named)


def test_a_convolution_takes_offsets_of_checkpoints(context, gpu):
    conv = context.prepare(dataclasses.replace(CONV, checkpoints="at"))
    arrays, named = conv_arrays()
    kept = {
        "checkpoints": FakeArray(9, CHANNELS, 3, dtype="bf16"),
        "checkpoint_offsets": FakeArray(B, 2, dtype="i32"),
        "checkpoint_slots": FakeArray(B, 2, dtype=CONV.index_dtype),
    }
    conv(*arrays, **named, **kept)
    assert gpu.launches == 1
    for changed, message in (
        ({"checkpoint_offsets": None}, "gdn_conv: checkpoint_offsets is None"),
        ({"checkpoint_slots": FakeArray(B, 1, dtype="i32")}, r"\[\d+, 1\]; accepted: .*K = 2\]"),
        ({"checkpoint_cu_starts": FakeArray(B + 1, dtype="i32")}, "checkpoints is at"),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            conv(*arrays, **named, **{**kept, **changed})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "^x is None; accepted: an array"),
        ({"v": None}, "gdn_conv: v is None"),
        ({"y": FakeArray(T, CHANNELS, dtype="bf16")}, "gdn_conv: y is given; accepted: None"),
        ({"bias": FakeArray(CHANNELS)}, "gdn_conv: bias has dtype f32; accepted: bf16"),
        (
            {"weight": FakeArray(CHANNELS, 3, dtype="bf16")},
            r"gdn_conv: weight has shape \[96, 3\]",
        ),
        ({"beta": FakeArray(T, H, device=(CPU, 0))}, "gdn_conv: beta is on device cpu"),
        ({"has_initial_state": FakeArray(B, dtype="i32")}, "has dtype i32; accepted: bool"),
        ({"accepted": FakeArray(B, dtype="i32")}, "gdn_conv: accepted is given; accepted: None"),
        ({"scale": float("nan")}, "gdn_conv: scale is nan"),
        ({"scratch_slot": 3}, "gdn_conv: scratch_slot is 3; accepted: none"),
        ({"scratch_slot": 2**63}, "scratch_slot"),
    ],
)
def test_refusals_of_a_convolution_name_the_argument(conv, gpu, changes, message):
    (x, weight, bias), named = conv_arrays()
    given = {"x": x, "weight": weight, "bias": bias, **named}
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        conv(**{**given, **changes})
    assert gpu.launches == 0


def test_a_short_workspace_is_refused(prefill, gpu):
    arrays, named = prefill_arrays()
    with pytest.raises(cubinery.InvalidArgumentError, match="workspace"):
        prefill(*arrays, workspace=FakeArray(2, dtype="i32"), **named)
    for workspace in (FakeArray(512, 1024), FakeArray(1 << 20, device=(CPU, 0))):
        with pytest.raises(cubinery.InvalidArgumentError, match="workspace: .*one dimension"):
            prefill(*arrays, workspace=workspace, **named)
    with pytest.raises(cubinery.InvalidArgumentError, match="workspace: None .*FakeArray"):
        prefill(*arrays, **named)
    assert gpu.launches == 0


def test_what_no_memory_holds_is_refused(decode, prefill, gpu):
    far = 2**64 - 1
    arrays, named = decode_arrays()
    arrays[0] = FakeArray(B, H, D, dtype="bf16", byte_offset=far)
    with pytest.raises(cubinery.InvalidArgumentError, match=f"q has byte_offset {far}; "):
        decode(*arrays, **named)
    arrays, named = prefill_arrays()
    for workspace in (FakeArray(1 << 20, byte_offset=far), FakeArray(-1), FakeArray(2**62)):
        with pytest.raises(cubinery.InvalidArgumentError, match="workspace: .* elements at byte"):
            prefill(*arrays, workspace=workspace, **named)
    assert gpu.launches == 0


def test_choices_say_what_runs_and_why(decode, prefill, verify, commit, conv):
    choices = [decode.choice(8), prefill.choice(1000, 4), prefill.choice(1000, 4, 900)]
    choices += [verify.choice(8, 32), commit.choice(36, 8), conv.choice(4, 1000)]
    for choice in choices:
        assert set(choice) == {"path", "configuration", "rung", "why"}
        assert all(choice.values())
    assert decode.choice(1)["path"] == "portable"
    assert decode.choice(1)["configuration"].startswith("path=portable;warp_v=")
    assert prefill.choice(1000, 4)["configuration"].startswith("path=portable;chunk_size=")
    with pytest.raises(cubinery.InvalidArgumentError, match="batch is -1"):
        decode.choice(-1)
    with pytest.raises(cubinery.InvalidArgumentError, match="max_seqlen is -1"):
        prefill.choice(1000, 4, -1)
    with pytest.raises(cubinery.InvalidArgumentError, match="requests is -1"):
        verify.choice(-1, 32)
    with pytest.raises(cubinery.InvalidArgumentError, match="tokens is -1"):
        verify.choice(8, -1)
    with pytest.raises(cubinery.InvalidArgumentError, match="layers is -1"):
        commit.choice(-1, 8)
    with pytest.raises(cubinery.InvalidArgumentError, match="requests is -1"):
        commit.choice(36, -1)
    with pytest.raises(cubinery.InvalidArgumentError, match="sequences is -1"):
        conv.choice(-1, 8)
    with pytest.raises(cubinery.InvalidArgumentError, match="channels is -1"):
        conv.choice(1, 8, -1)


def test_the_longest_sequence_is_a_hint_that_can_be_wrong(prefill, gpu):
    arrays, named = prefill_arrays()
    workspace = FakeArray(-(-prefill.workspace_bytes(B * T, B) // 4), dtype="i32")
    for longest in (None, 0, 1, T):
        prefill(*arrays, workspace=workspace, max_seqlen=longest, **named)
    for longest in (-1, T + 1):
        with pytest.raises(cubinery.InvalidArgumentError, match=f"max_seqlen = {longest}"):
            prefill(*arrays, workspace=workspace, max_seqlen=longest, **named)
    with pytest.raises(TypeError):
        prefill(*arrays, workspace=workspace, max_seqlen="long", **named)


def test_the_stream_is_the_librarys(decode, gpu):
    arrays, named = decode_arrays(gpu.FastArray)
    gpu.set_current_stream(0x1230)
    decode(*arrays, **named)
    assert gpu.last_stream == 0x1230
    decode(*arrays, **named, stream=0x4560)
    assert gpu.last_stream == 0x4560
    decode(*arrays, **named, stream=0)
    assert gpu.last_stream == 0


def test_other_libraries_order_their_work_before_the_launch(decode, gpu):
    arrays, named = decode_arrays()
    decode(*arrays, **named)
    assert gpu.last_stream == 0
    decode(*arrays, **named, stream=0x4560)
    assert gpu.last_stream == 0x4560
    # DLPack has 1 for the legacy default stream.
    assert arrays[0].streams == [1, 0x4560]
    assert named["out"].streams == [1, 0x4560]


def test_arrays_without_a_stream_argument_for_the_cpu(decode, gpu):
    arrays, named = decode_arrays()
    arrays[1] = FakeArray(B, H, D, dtype="bf16", device=(CPU, 0))
    with pytest.raises(cubinery.InvalidArgumentError) as caught:
        decode(*arrays, **named)
    assert str(caught.value) == "gdn_decode: k is on device cpu; accepted: cuda:0"
    assert arrays[1].streams == [None]


@pytest.mark.parametrize("array", ["FakeArray", "FastArray"])
@pytest.mark.parametrize(
    ("position", "wrong", "message"),
    [
        (0, {"shape": (B, H, D), "dtype": "f16"}, "gdn_decode: q .*f16.*bf16"),
        (1, {"shape": (B, H + 1, D), "dtype": "bf16"}, r"gdn_decode: k .*\[3, 3, 16\]"),
        (2, {"shape": (B, H, D), "dtype": "bf16", "device": (CUDA, 1)}, "v .*cuda:1.*cuda:0"),
        (3, {"shape": (B, H), "dtype": "i64"}, "gdn_decode: g .*i64.*f32"),
    ],
)
def test_refusals_name_the_array(decode, gpu, array, position, wrong, message):
    kind = FakeArray if array == "FakeArray" else gpu.FastArray
    arrays, named = decode_arrays(kind)
    shape = wrong.pop("shape")
    arrays[position] = kind(*shape, **wrong)
    wrong["shape"] = shape
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        decode(*arrays, **named)
    assert gpu.launches == 0


@pytest.mark.parametrize("array", ["FakeArray", "FastArray"])
def test_strides_are_the_arrays(decode, gpu, array):
    kind = FakeArray if array == "FakeArray" else gpu.FastArray
    arrays, named = decode_arrays(kind)
    arrays[0] = kind(B, H, D, dtype="bf16", strides=(7 * D, 3 * D, 1))
    decode(*arrays, **named)
    assert gpu.launches == 1
    arrays[0] = kind(B, H, D, dtype="bf16", strides=(7 * D, 3 * D, 2))
    with pytest.raises(cubinery.InvalidArgumentError, match="q has .*stride 2"):
        decode(*arrays, **named)


def test_numpy_arrays_are_refused(decode):
    numpy = pytest.importorskip("numpy")
    arrays, named = decode_arrays()
    named["state"] = numpy.zeros((B, H, D, 2 * D), numpy.float32)[..., ::2]
    with pytest.raises(cubinery.InvalidArgumentError, match="state is on device cpu"):
        decode(*arrays, **named)


def test_what_is_no_array_is_refused(decode):
    arrays, named = decode_arrays()
    with pytest.raises(cubinery.InvalidArgumentError, match="beta: is of type list"):
        decode(*arrays[:4], [1.0], **named)
    with pytest.raises(cubinery.InvalidArgumentError, match="q is None"):
        decode(None, *arrays[1:], **named)
    with pytest.raises(TypeError):
        decode(*arrays, **named, stream="main")
    with pytest.raises(TypeError):
        decode(*arrays, **named, scratch_slot="first")
    with pytest.raises(TypeError):
        decode(*arrays, **named, scale="half")


def test_scalars_reach_the_library(decode, gpu):
    arrays, named = decode_arrays()
    decode(*arrays, **named, scale=0.0, enable_pdl=True)
    with pytest.raises(cubinery.InvalidArgumentError, match="scale is inf"):
        decode(*arrays, **named, scale=float("inf"))
    with pytest.raises(cubinery.InvalidArgumentError, match="scratch_slot is 7"):
        decode(*arrays, **named, scratch_slot=7)
    assert gpu.launches == 1


def test_driver_errors_are_raised(decode, gpu):
    gpu.refuse_launches(100)  # CUDA_ERROR_NO_DEVICE
    arrays, named = decode_arrays()
    with pytest.raises(cubinery.DriverError, match="CUDA_ERROR_NO_DEVICE"):
        decode(*arrays, **named)


def test_handles_release_what_they_own(gpu, empty_kernels):
    lines = []

    def log(level, text):
        lines.append((level, text))

    context = cubinery.Context(0, **empty_kernels, log=log)
    decode = context.prepare(DECODE)
    gone = weakref.ref(log)
    arrays, named = decode_arrays()
    references = [sys.getrefcount(array) for array in arrays]
    decode(*arrays, **named)
    assert [sys.getrefcount(array) for array in arrays] == references
    del context, log
    gc.collect()
    assert gone() is not None  # the operator may still write to the log
    decode(*arrays, **named)
    del decode
    gc.collect()
    assert gone() is None


def test_operators_are_shared_by_threads(decode, gpu):
    errors = []

    def work():
        try:
            for _ in range(200):
                arrays, named = decode_arrays(gpu.FastArray)
                decode(*arrays, **named)
            arrays[0] = FakeArray(B, H, D, dtype="f16")
            for _ in range(50):
                with pytest.raises(cubinery.InvalidArgumentError, match="q has dtype f16"):
                    decode(*arrays, **named)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert gpu.launches == 4 * 200


def test_arrays_are_made_in_threads(gpu):
    """The fake GPU's own list of arrays: ctypes calls it without the interpreter's lock."""

    before = gpu.arrays

    def work():
        for _ in range(30000):
            gpu.FastArray(1), gpu.FastArray(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gpu.arrays <= before
