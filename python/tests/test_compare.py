"""benchmarks/compare.py without a GPU: checks, contenders and clock; test_compare_record.py has the rest."""

import contextlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from compare import record, rows  # noqa: E402: the path comes first

SMALL = rows.PrefillRow(2, 4, (70, 0, 130))
DECODE = rows.DecodeRow(3, "f32", 2, 4)
CONV = rows.ConvRow(1, 70, v_heads=4, qk_heads=2)
CONV_STEP = rows.ConvRow(3, v_heads=4, qk_heads=2)


# --- reference and checks, on the CPU


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    with module.no_grad():
        yield module


@pytest.mark.parametrize("gates", rows.GATES)
def test_chunks_are_the_recurrence(torch, gates):
    from compare import data, reference

    row = rows.PrefillRow(2, 4, (150,), gates)
    s = data.make(row, "cpu", sets=1).sets[0]
    state = torch.randn(4, 128, 128, generator=torch.Generator().manual_seed(1))
    tokens = [x[0] for x in s.tokens]
    expected = reference.recurrence(*tokens, state, row.scale)
    actual = reference.chunked(*tokens, state, row.scale)
    for x, y in zip(actual, expected, strict=True):
        assert reference.relative_rms(x, y) < 1e-12


def test_a_step_by_hand(torch):
    """K = 1, V = 1: S = 3, g = log 1/2, k = 2, v = 5, beta = 1/4, q = 7."""
    from compare import reference

    one = lambda x: torch.tensor([[x]], dtype=torch.float64)
    g, beta = (torch.tensor([x], dtype=torch.float64) for x in (0.5, 0.25))
    state = torch.tensor([[[3.0]]], dtype=torch.float64)
    o, state = reference.step(one(7.0), one(2.0), one(5.0), g.log(), beta, state, 0.1)
    assert state.item() == pytest.approx(1.5 + 2 * 0.25 * (5 - 1.5 * 2))
    assert o.item() == pytest.approx(0.1 * 7 * 2.5)


def test_a_convolution_by_hand(torch):
    """Width 2: y = silu(w0 x[t - 1] + w1 x[t]); the state's newest column lies in front of x."""
    from compare import reference

    x, weight = torch.tensor([[[3.0], [5.0]]]), torch.tensor([[2.0, 10.0]])
    silu = torch.nn.functional.silu
    y, state = reference.convolution(x, weight, torch.tensor([[[99.0, 7.0]]]))
    assert torch.equal(y, silu(torch.tensor([[[44.0], [56.0]]])))
    assert torch.equal(state, torch.tensor([[[3.0, 5.0]]]))
    y, state = reference.convolution(x[:, :1], weight, None)
    assert torch.equal(y, silu(torch.tensor([[[30.0]]])))
    assert torch.equal(state, torch.tensor([[[0.0, 3.0]]]))


def test_errors_of_elements(torch):
    from compare import reference

    expected = torch.tensor([4.0, 0.001])
    assert reference.largest_error(torch.tensor([3.0, 0.001]), expected) == 0.25
    assert reference.largest_error(torch.tensor([4.0, 0.002]), expected) == pytest.approx(0.1)
    assert not reference.largest_error(torch.tensor([4.0, torch.nan]), expected) < 1e9
    close = reference.largest_error(expected.bfloat16(), expected)
    assert close <= 2**-8


def test_errors_of_other_shapes_and_of_nan(torch):
    from compare import reference

    x = torch.ones(2, 3)
    assert reference.relative_rms(1.1 * x, x) == pytest.approx(0.1)
    assert not reference.relative_rms(x * torch.nan, x) < 1e9
    with pytest.raises(ValueError, match="shape"):
        reference.relative_rms(torch.ones(3), x)


@pytest.mark.parametrize("gates", rows.GATES)
def test_data_is_what_the_distribution_says(torch, gates):
    from compare import data

    made = data.make(rows.PrefillRow(2, 8, (64, 32), gates), "cpu", sets=2)
    g, beta = made.sets[0].g.float(), made.sets[0].beta.float()
    bounds = {"strong": (-1, 0), "qwen": (-1, 0), "undecayed": (0, 0), "extreme": (-69, -31)}
    low, high = bounds.get(gates, (-torch.inf, 0))
    assert (g >= low).all() and (g <= high).all()
    assert (g == 0).all(1).sum() == {"qwen": 2, "undecayed": 8}.get(gates, 0)
    assert (beta > 0).all() and (beta < (0.5001 if gates == "strong" else 1)).all()
    for name, tensor in vars(made.sets[0]).items():
        other = getattr(made.sets[1], name)
        if tensor is None:
            assert other is None and gates == "strong"
            continue
        assert torch.equal(tensor, other) and tensor.data_ptr() != other.data_ptr()
    assert made.cu_seqlens.tolist() == [0, 64, 96]


# --- contenders: libraries that stand in for the real ones and keep to their conventions


def _prefill(torch, q, k, v, g, beta, scale, state, bounds):
    """Dense float64 o [T, HV, V] and states [N, HV, K, V], token by token."""
    from compare import reference

    o = torch.zeros(v.shape, dtype=torch.float64)
    states = []
    for n, (first, last) in enumerate(zip(bounds, bounds[1:], strict=False)):
        start = torch.zeros(v.shape[1], 128, 128) if state is None else state[n]
        tokens = (x[first:last] for x in (q, k, v, g, beta))
        o[first:last], final = reference.recurrence(*tokens, start, scale)
        states.append(final)
    return o, torch.stack(states)


def _decode(torch, q, k, v, a, b, A_log, dt_bias, state):
    """float64 o [B, T, HV, V] and the last states: tensors of tokens have T behind B."""
    from compare import reference

    heads = v.shape[-2]
    q, k = (reference.to_heads(x, heads) for x in (q, k))
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    g = -A_log.double().exp() * torch.log1p((a.double() + dt_bias.double()).exp())
    tokens = (q, k, v.double(), g, b.double().sigmoid())
    outputs, state = [], state.double()
    for t in range(v.shape[1]):
        o, state = reference.step(*(x[:, t] for x in tokens), state, 128**-0.5)
        outputs.append(o)
    return torch.stack(outputs, 1), state


def _conv(torch, x, weight, state):
    """float64 y and whole windows, tap by tap, of x [N, T, C]."""
    width = weight.shape[1]
    start = torch.zeros(x.shape[0], x.shape[2], width) if state is None else state
    inputs = torch.cat([start.double(), x.double().transpose(1, 2)], 2)
    y = torch.nn.functional.conv1d(
        inputs[..., 1:], weight.double()[:, None], groups=len(weight)
    ).transpose(1, 2)
    return y * y.sigmoid(), inputs[..., -width:]


def _put_split(y, outs):
    first = 0
    for out in outs:
        channels = out.shape[-2] * out.shape[-1]
        out.copy_(y[..., first : first + channels].reshape(out.shape))
        first += channels


def _fake_kernel():
    """A tuner, as Triton has it, that has chosen for some other row."""
    tuner = types.SimpleNamespace(configs=[1], cache={(6144, 4): 1}, cache_results=True)
    return types.SimpleNamespace(fn=tuner)


def _fake_fla(torch):
    def causal_conv1d(x, weight, *, activation, output_final_state, cu_seqlens):
        assert activation == "silu" and output_final_state
        assert cu_seqlens.tolist() == [0, x.shape[1]] and cu_seqlens.dtype == torch.int64
        y, state = _conv(torch, x, weight, None)
        return y.to(x.dtype), state.to(x.dtype)

    def causal_conv1d_update(x, cache, *, weight, activation):
        assert activation == "silu" and cache.is_contiguous()
        y, state = _conv(torch, x, weight, cache)
        cache.copy_(state)
        return y.to(x.dtype), cache

    def chunk_gated_delta_rule(
        q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None
    ):
        assert output_final_state and cu_seqlens.dtype == torch.int64
        tokens = (x[0] for x in (q, k, v, g, beta))
        o, state = _prefill(torch, *tokens, scale, initial_state, cu_seqlens.tolist())
        return o[None].to(q.dtype), state.float()

    def fused_recurrent_gated_delta_rule(q, k, v, g, beta, A_log, dt_bias, initial_state, **flags):
        stores = flags.pop("output_final_state")
        assert flags == dict.fromkeys(
            ("use_gate_in_kernel", "use_beta_sigmoid_in_kernel", "use_qk_l2norm_in_kernel"), True
        )
        o, state = _decode(torch, q, k, v, g, beta, A_log, dt_bias, initial_state)
        return o.to(q.dtype), state.float() if stores else None

    return {
        "fla": types.SimpleNamespace(__version__="1.2"),
        "fla.ops.gated_delta_rule": types.SimpleNamespace(
            chunk_gated_delta_rule=chunk_gated_delta_rule,
            fused_recurrent_gated_delta_rule=fused_recurrent_gated_delta_rule,
        ),
        "fla.modules.causal_conv1d.ops": types.SimpleNamespace(
            causal_conv1d=causal_conv1d,
            causal_conv1d_update=causal_conv1d_update,
            causal_conv1d_fwd_kernel=_fake_kernel(),
            causal_conv1d_update_kernel=_fake_kernel(),
        ),
        "compare.split": types.SimpleNamespace(split=_put_split),
        "flash_qla": types.SimpleNamespace(chunk_gated_delta_rule=chunk_gated_delta_rule),
    }


def _fake_flashinfer(torch):
    def chunk_gated_delta_rule(
        q,
        k,
        v,
        g,
        beta,
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
        output,
        output_state,
        max_seqlen=None,
    ):
        assert g.dtype == beta.dtype == torch.float32 and q.ndim == 3
        assert max_seqlen == int(cu_seqlens.diff().max())
        state = initial_state.transpose(-1, -2)
        bounds = cu_seqlens.tolist()
        o, state = _prefill(torch, q, k, v, g.log(), beta, scale, state, bounds)
        output.copy_(o)
        output_state.copy_(state.transpose(-1, -2))
        return output, output_state

    def in_pool(q, k, v, a, b, A_log, dt_bias, pool, slots, output, keeps):
        at = slots.long()
        o, new = _decode(torch, q, k, v, a, b, A_log, dt_bias, pool[at].transpose(-1, -2))
        output.copy_(o)
        if not keeps:
            pool[at] = new.transpose(-1, -2).to(pool.dtype)
        return output, pool

    def pretranspose(
        q,
        k,
        v,
        state,
        A_log,
        a,
        dt_bias,
        b,
        *,
        output,
        initial_state,
        initial_state_indices,
        disable_state_update=False,
    ):
        assert state is None
        pool, slots = initial_state, initial_state_indices
        return in_pool(
            q, k, v, a, b, A_log, dt_bias, pool, slots, output, disable_state_update
        )  # fmt: skip

    def mtp(q, k, v, pool, slots, A_log, a, dt_bias, b, *, output, disable_state_update):
        assert pool.dtype == torch.float32
        return in_pool(
            q, k, v, a, b, A_log, dt_bias, pool, slots, output, disable_state_update
        )  # fmt: skip

    def wy(
        *,
        A_log,
        a,
        dt_bias,
        q,
        k,
        v,
        b,
        initial_state_source,
        initial_state_indices,
        disable_state_update,
        output,
    ):
        assert disable_state_update and initial_state_source.dtype == torch.bfloat16
        pool, slots = initial_state_source, initial_state_indices
        return in_pool(q, k, v, a, b, A_log, dt_bias, pool, slots, output, True)[0]

    return {
        "flashinfer.gdn_prefill": types.SimpleNamespace(
            chunk_gated_delta_rule=chunk_gated_delta_rule
        ),
        "flashinfer.gdn_decode": types.SimpleNamespace(
            gated_delta_rule_decode_pretranspose=pretranspose, gated_delta_rule_mtp=mtp
        ),
        "flashinfer.gdn_kernels": types.SimpleNamespace(gated_delta_rule_mtp_wy_output_only=wy),
    }


def _fake_cubinery(torch):
    class Operator:
        def __init__(self, context, problem):
            self.problem = problem

        def workspace_bytes(self, tokens, sequences):
            return tokens * sequences

    class Prefill(Operator):
        def __call__(
            self,
            q,
            k,
            v,
            g,
            beta,
            *,
            out,
            state,
            state_out=None,
            cu_seqlens,
            max_seqlen,
            scale,
            workspace,
            stream,
        ):
            assert self.problem["state_layout"] == "kv" and stream == 7
            assert self.problem["has_initial_state"] == (state_out is not None)
            tokens = q.shape[1]
            bounds = [0, tokens] if cu_seqlens is None else cu_seqlens.tolist()
            assert self.problem["varlen"] == (cu_seqlens is not None)
            assert workspace.numel() == tokens * (len(bounds) - 1)
            lengths = [last - first for first, last in zip(bounds, bounds[1:], strict=False)]
            assert max_seqlen == (None if cu_seqlens is None else max(lengths))
            old = state if self.problem["has_initial_state"] else None
            tensors = (x[0] for x in (q, k, v, g, beta))
            o, new = _prefill(torch, *tensors, scale, old, bounds)
            out[0] = o
            (state if state_out is None else state_out).copy_(new)
            return out

    class Verify(Operator):
        def __call__(self, q, k, v, a, b, *, A_log, dt_bias, out, state, state_indices, stream):
            assert self.problem["state_layout"] == "vk" and stream == 7
            assert self.problem.get("max_tokens", 1) == q.shape[1]
            at = state_indices.long()
            o, new = _decode(torch, q, k, v, a, b, A_log, dt_bias, state[at].transpose(-1, -2))
            out.copy_(o)
            if self.problem.get("store_state", True):
                state[at] = new.transpose(-1, -2).to(state.dtype)
            return out

    class Decode(Verify):
        def __call__(self, *rows_, out, **named):
            super().__call__(*(x[:, None] for x in rows_), out=out[:, None], **named)
            return out

    class Conv(Operator):
        def __call__(self, x, weight, *, q, k, v, cu_seqlens, state, stream):
            assert stream == 7 and self.problem["whole_window"] and self.problem["split_qkv"]
            assert self.problem["varlen"] == (cu_seqlens is not None)
            old = state if self.problem["has_initial_state"] else None
            y, new = _conv(torch, x, weight, old)
            _put_split(y, (q, k, v))
            state.copy_(new)

    context = types.SimpleNamespace(nvrtc_version="13.0")
    library = types.SimpleNamespace(
        Context=lambda device: context,
        PrefillProblem=dict,
        DecodeProblem=dict,
        VerifyProblem=dict,
        ConvProblem=dict,
        Prefill=Prefill,
        Decode=Decode,
        Verify=Verify,
        Conv=Conv,
    )
    return {"cubinery": library}


@pytest.fixture
def libraries(torch, monkeypatch):
    from compare import contenders

    for fake in (_fake_cubinery, _fake_fla, _fake_flashinfer):
        for name, module in fake(torch).items():
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(contenders, "current_stream", lambda: 7)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return contenders


class CountingClock:
    """Stands in for the device: the nth sample of all clocks takes n milliseconds."""

    how, why_not_graph = "graph", ""
    order: list = []

    def __init__(self, launch, sets):
        self.launch, self.sets = launch, sets
        launch(sets - 1)

    def sample(self):
        CountingClock.order.append(self)
        return float(len(CountingClock.order))


ALL = ["cubinery", "fla", "flash_qla", "flashinfer"]


@pytest.mark.parametrize(
    "row",
    [
        SMALL,
        rows.PrefillRow(2, 4, (90,), "init"),
        DECODE,
        rows.DecodeRow(2, "bf16", 2, 4),
        *(
            rows.VerifyRow(2, dtype, 2, 4, tokens=3, stored=stored)
            for dtype in ("f32", "bf16")
            for stored in ("none", "last")
        ),
        CONV,
        CONV_STEP,
    ],
    ids=lambda row: row.label,
)
def test_every_adapter_is_right_on_its_librarys_conventions(libraries, row):
    from compare import run

    present, missing = libraries.load(ALL)
    assert not missing
    CountingClock.order = []
    entries = run.run_row(row, present, 2, "cpu", 2, CountingClock)
    assert len(entries) == 4
    for name, entry in entries.items():
        no_decode = name.startswith("flash-qla") and isinstance(row, rows.DecodeRow)
        no_conv = name.startswith("flash") and isinstance(row, rows.ConvRow)
        if no_decode or no_conv:
            assert entry["status"] == "not offered"
            continue
        assert entry["status"] == "timed", entry
        assert entry["error_o"] < 5e-3 and entry["error_state"] < 5e-3
    half = len(CountingClock.order) // 2
    assert CountingClock.order[:half] == CountingClock.order[half:]  # A B C A B C
    assert len(set(CountingClock.order)) == half


def test_fla_tunes_its_convolutions_for_every_row(libraries):
    from compare import data

    (fla,), _ = libraries.load(["fla"])
    fla.conv(data.make(CONV, "cpu", 1))
    fakes = sys.modules["fla.modules.causal_conv1d.ops"]
    for kernel in (fakes.causal_conv1d_fwd_kernel, fakes.causal_conv1d_update_kernel):
        assert kernel.fn.cache == {} and not kernel.fn.cache_results


def test_strong_rows_have_no_state_and_are_dense(libraries):
    from compare import run

    present, _ = libraries.load(["cubinery"])
    row = rows.PrefillRow(2, 2, (80,), "strong")
    entry = run.run_row(row, present, 1, "cpu", 1, CountingClock)["cubinery"]
    assert entry["status"] == "timed" and entry["error_o"] < 1e-3


@pytest.mark.parametrize(
    "row, kernels",
    [
        (SMALL, 2),
        (rows.PrefillRow(2, 4, (90,), "strong"), 2),
        (DECODE, 1),
        (rows.VerifyRow(2, "bf16", 2, 4, tokens=3), 1),
        (rows.VerifyRow(2, "f32", 2, 4, tokens=8, stored="last"), 1),
        (CONV, 1),
        (CONV_STEP, 1),
    ],
    ids=lambda x: getattr(x, "label", ""),
)
def test_the_operators_take_what_the_adapter_passes(torch, gpu, context, monkeypatch, row, kernels):
    """The real package on a GPU that is not there: it checks every argument, and launches."""
    import cubinery
    import fake_gpu
    from compare import contenders, data

    names = {dtype: name for name, dtype in data.DTYPES.items()} | {torch.int32: "i32"}

    def array(x):
        if not isinstance(x, torch.Tensor):
            return x
        if x.dtype == torch.uint8:  # which FakeArray has not
            x = x[: x.numel() // 4 * 4].view(torch.int32)
        return fake_gpu.FakeArray(*x.shape, dtype=names[x.dtype], strides=x.stride())

    def on_arrays(kind):
        class Operator(kind):
            def __init__(self, _, problem):
                super().__init__(context, problem)

            def __call__(self, *tensors, **named):
                named = {name: array(x) for name, x in named.items()}
                return super().__call__(*map(array, tensors), **named)

        return Operator

    monkeypatch.setattr(contenders, "current_stream", lambda: 7)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for name in ("Prefill", "Decode", "Verify", "Conv"):
        monkeypatch.setattr(cubinery, name, on_arrays(getattr(cubinery, name)))
    monkeypatch.setattr(cubinery, "Context", lambda device: context)
    contender = contenders.Cubinery()
    made = data.make(row, "cpu", sets=2)
    prepare = {
        rows.PrefillRow: contender.prefill,
        rows.DecodeRow: contender.decode,
        rows.VerifyRow: contender.verify,
        rows.ConvRow: contender.conv,
    }
    prepared = prepare[type(row)](made)
    gpu.forget_launches()
    prepared.launch(1)
    assert gpu.launches == kernels and gpu.last_stream == 7


class _Contender:
    """Runs `result` (given o and state that are right) where a library would."""

    def __init__(self, name, result):
        self.name, self._result = name, result

    def prefill(self, data):
        from compare.contenders import Prepared

        return Prepared(lambda at: self._result(*data.expected()), "kv")


def test_what_is_wrong_is_recorded_and_not_timed(torch):
    from compare import run
    from compare.contenders import NotOffered

    def raises(error):
        def result(o, state):
            raise error

        return result

    def swapped(o, state):
        return o, state.transpose(-1, -2)

    contenders = [
        _Contender("right", lambda o, state: (o, state)),
        _Contender("wrong o", lambda o, state: (1.1 * o, state)),
        _Contender("wrong state", swapped),
        _Contender("nan", lambda o, state: (o * torch.nan, state)),
        _Contender("short", lambda o, state: (o[:, 1:], state)),
        _Contender("raises", raises(RuntimeError("no kernel image\nmore"))),
        _Contender("none", raises(NotOffered("not there"))),
    ]
    entries = run.run_row(SMALL, contenders, 1, "cpu", 1, CountingClock)
    status = {name: entry["status"] for name, entry in entries.items()}
    assert status == {
        "right": "timed",
        "wrong o": "wrong",
        "wrong state": "wrong",
        "nan": "wrong",
        "short": "failed",
        "raises": "failed",
        "none": "not offered",
    }
    assert entries["wrong o"]["error_o"] == pytest.approx(0.1)
    assert entries["wrong state"]["error_state"] > 1
    assert entries["nan"]["error_o"] == "nan"
    assert entries["raises"]["reason"] == "RuntimeError: no kernel image"
    assert all("ms" not in entry for name, entry in entries.items() if name != "right")


def test_one_wrong_element_of_a_convolution_is_wrong(torch):
    from compare import run
    from compare.contenders import Prepared

    class Convolves(_Contender):
        def conv(self, data):
            return Prepared(lambda at: self._result(*data.expected()), "columns")

    def off(o, state):
        o[0, 33, 77] += 0.02 * max(1, abs(o[0, 33, 77].item()))
        return o, state

    def older(o, state):
        return o, state.roll(1, -1)

    contenders = [
        Convolves("rounded", lambda o, state: (o.bfloat16(), state.bfloat16())),
        Convolves("off", off),
        Convolves("older", older),
    ]
    entries = run.run_row(CONV, contenders, 1, "cpu", 1, CountingClock)
    status = {name: entry["status"] for name, entry in entries.items()}
    assert status == {"rounded": "timed", "off": "wrong", "older": "wrong"}
    assert entries["off"]["error_o"] < 0.01 < entries["off"]["error_element"]


def test_rows_of_convolutions_import_no_other_peers(torch):
    from compare import contenders

    assert contenders.offering("conv", ALL) == ["cubinery", "fla"]
    assert contenders.offering("prefill", ALL) == contenders.offering(None, ALL) == ALL


def test_split_copies_every_channel(torch):
    """Interpreted: the kernel itself, in a process of its own because Triton reads that when it loads."""
    pytest.importorskip("triton")
    program = """
import torch
from compare.split import split
for lead, heads in (((1, 1500), (16, 16, 16)), ((1, 37), (16, 16, 32)), ((3, 1), (2, 2, 4))):
    y = torch.randn(*lead, sum(heads) * 128).bfloat16()
    outs = tuple(torch.full((*lead, h, 128), torch.nan).bfloat16() for h in heads)
    split(y, outs)
    assert torch.equal(torch.cat([x.flatten(-2) for x in outs], -1), y)
"""
    paths = os.pathsep.join([str(ROOT / "benchmarks"), *filter(None, sys.path)])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_a_clock_that_breaks_takes_no_other_with_it(torch):
    from compare import run

    class Breaks(CountingClock):
        def sample(self):
            if self.launch(0)[0][0, 0, 0, 0] == 0:
                raise RuntimeError("illegal address")
            return super().sample()

    def fails_later():
        calls = iter([False, False, True, True, True])
        return lambda o, state: (o * 0, state) if next(calls) else (o, state)

    contenders = [
        _Contender("breaks", fails_later()),
        _Contender("right", lambda o, state: (o, state)),
    ]
    entries = run.run_row(SMALL, contenders, 2, "cpu", 1, Breaks)
    assert entries["breaks"]["status"] == "failed"
    assert entries["breaks"]["reason"] == "RuntimeError: illegal address"
    assert entries["right"]["status"] == "timed"


def test_who_does_not_import_is_missing_with_the_reason(torch):
    from compare import contenders

    def breaks():
        raise OSError("libnvrtc.so.13: cannot open\nsecond line")

    loaders = {"here": lambda: "here", "broken": breaks}
    present, missing = contenders.load(["broken", "here"], loaders)
    assert present == ["here"]
    assert missing == {"broken": "OSError: libnvrtc.so.13: cannot open"}
    with pytest.raises(ValueError, match="accepted: here, broken"):
        contenders.load(["tileops"], loaders)


# --- timing, without a clock


def test_summary_and_rounds(torch):
    from compare import timing

    assert timing.summarise([3.0, 1.0, 2.0]) == timing.Timing(2.0, 1.0, 3.0)
    assert timing.summarise([float(x) for x in range(101)]) == timing.Timing(50.0, 10.0, 90.0)
    assert timing.rounds_for(10.0, 3) == 1
    assert timing.rounds_for(0.5, 3) == 4
    assert timing.rounds_for(0.001, 100) == 10  # 1024 launches at most
    assert timing.rounds_for(0.001, 5000) == 1


class _Device:
    """torch.cuda's streams, graphs and events: a launch takes one millisecond of its clock."""

    def __init__(self, capturable=True):
        self.now, self.launches, self.capturing, self.log = 0.0, 0, None, []
        self.capturable = capturable

    def launch(self, at):
        if self.capturing is None:
            self.now += 1
        elif not self.capturable:
            raise RuntimeError("operation not permitted when stream is capturing")
        else:
            self.capturing.append(at)
        self.launches += 1
        return object()

    @contextlib.contextmanager
    def graph(self, graph):
        self.capturing = graph.launches
        try:
            yield
        finally:
            self.capturing = None

    def patch(self, monkeypatch, cuda):
        device = self

        class Graph:
            def __init__(self):
                self.launches = []

            def replay(self):
                device.now += len(self.launches)
                device.log.append(list(self.launches))

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = device.now

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return end.at - self.at

        stream = types.SimpleNamespace(synchronize=lambda: None)
        for name, value in {
            "CUDAGraph": Graph,
            "Event": Event,
            "graph": device.graph,
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": lambda _: contextlib.nullcontext(),
            "synchronize": lambda: None,
        }.items():
            monkeypatch.setattr(cuda, name, value)


def test_clock_goes_round_the_sets_in_a_graph(torch, monkeypatch):
    from compare import timing

    device = _Device()
    device.patch(monkeypatch, torch.cuda)
    monkeypatch.setattr(timing, "GRAPH_MS", 12.0)
    clock = timing.CudaClock(device.launch, 5)
    assert (clock.how, clock.why_not_graph) == ("graph", "")
    device.log.clear()
    assert clock.sample() == 1.0  # per launch
    assert device.log == [[0, 1, 2, 3, 4] * 3]  # 12 ms need three rounds of five


def test_clock_launches_on_the_stream_what_cannot_be_captured(torch, monkeypatch):
    from compare import timing

    device = _Device(capturable=False)
    device.patch(monkeypatch, torch.cuda)
    clock = timing.CudaClock(device.launch, 4)
    assert clock.how == "stream" and "not permitted" in clock.why_not_graph
    before = device.launches
    assert clock.sample() == 1.0
    assert device.launches == before + 4


def test_budget_and_a_lost_device_end_a_run(torch, tmp_path):
    from compare import run

    head = {"gpu": "Test GPU", "ceilings": {"copy_tb_s": 4.0}}
    some = [rows.DecodeRow(1), rows.DecodeRow(8), rows.DecodeRow(32)]
    one = lambda row: {"cubinery": {"status": "failed", "reason": "x"}}

    spent = record.Record(None, "c", dict(head))
    run.run_rows(some, [], spent, -1.0, one, lambda: "")
    assert spent.root["rows"] == [] and len(spent.root["skipped"]["rows"]) == 3

    lost = record.Record(str(tmp_path / "lost.json"), "c", dict(head))
    run.run_rows(some, [], lost, 1e9, one, lambda: "CUDA error")
    saved = json.loads((tmp_path / "lost.json").read_text())
    assert len(saved["rows"]) == 1 and "CUDA error" in saved["skipped"]["reason"]

    def breaks(row):
        raise MemoryError("no room")

    broken = record.Record(None, "c", dict(head))
    named = [types.SimpleNamespace(name="cubinery"), types.SimpleNamespace(name="fla-1.2")]
    run.run_rows(some, named, broken, 1e9, breaks, lambda: "")
    assert len(broken.root["rows"]) == 3
    assert set(broken.root["rows"][0]["contenders"]) == {"cubinery", "fla-1.2"}
