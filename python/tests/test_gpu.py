"""The operators on a GPU with PyTorch, CuPy and JAX, against the recurrence in float64.

Tolerances are those that include/cubinery/gdn.h promises, relative to the largest value of a row: a
decode and a verification round their output once (one unit in the last place of its dtype covers
that), a prefill also the operands of its products (three units).  The f32 state of the first two
carries f32 arithmetic only.
"""

from __future__ import annotations

import threading
from typing import Any

import cubinery
import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

HK, HV, D = 2, 4, 64
UNIT = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float32: 2.0**-17}
F32_ARITHMETIC = 2.0**-17
SCALE = D**-0.5


@pytest.fixture(scope="module")
def context() -> cubinery.Context:
    return cubinery.Context(0)


def random(*shape: int, dtype: Any = torch.bfloat16, seed: int = 0) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def operands(*lead: int, dtype: Any = torch.bfloat16, seed: int = 0) -> dict[str, Any]:
    """q, k, v, g, beta of lead tokens: unit keys, decays of exp(-1) and up, strengths to 1."""
    k = random(*lead, HK, D, dtype=torch.float32, seed=seed + 1)
    return {
        "q": random(*lead, HK, D, dtype=dtype, seed=seed),
        "k": (k / k.norm(dim=-1, keepdim=True)).to(dtype),
        "v": random(*lead, HV, D, dtype=dtype, seed=seed + 2),
        "g": -random(*lead, HV, dtype=torch.float32, seed=seed + 3).sigmoid(),
        "beta": random(*lead, HV, dtype=torch.float32, seed=seed + 4).sigmoid(),
    }


def reference(x: dict[str, Any], state: Any) -> tuple[Any, Any]:
    """One sequence in float64: x as operands(T), state [HV, V, K] (vk); o and the last state."""
    q, k, v, g, beta = (x[name].double() for name in ("q", "k", "v", "g", "beta"))
    q, k = (y.repeat_interleave(HV // HK, dim=1) for y in (q * SCALE, k))
    state = state.double()
    rows = []
    for t in range(len(q)):
        state = g[t].exp()[:, None, None] * state
        u = beta[t][:, None] * (v[t] - torch.einsum("hvk,hk->hv", state, k[t]))
        state = state + u[:, :, None] * k[t][:, None, :]
        rows.append(torch.einsum("hvk,hk->hv", state, q[t]))
    return torch.stack(rows), state


def assert_close(ours: Any, theirs: Any, tolerance: float) -> None:
    """Every value to `tolerance` of the largest of its row; what is not finite fails."""
    error = (ours.double() - theirs).abs().amax(-1)
    budget = tolerance * theirs.abs().amax(-1) + 1e-30
    assert (error <= budget).all(), f"{(error / budget).max().item():.2f} times the tolerance"


def steps(x: dict[str, Any], state: Any) -> tuple[Any, Any]:
    """reference() of one decode step of B requests, each from its state."""
    results = [
        reference({name: y[n : n + 1] for name, y in x.items()}, state[n])
        for n in range(len(state))
    ]
    return torch.cat([o for o, _ in results]), torch.stack([s for _, s in results])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("extra", [(), (1,)])
def test_decode_in_place(context, dtype, extra):
    x = operands(5, dtype=dtype)
    state = random(5, HV, D, D, dtype=torch.float32)
    expected, expected_state = steps(x, state)
    given = {name: y.view(5, *extra, *y.shape[1:]) for name, y in x.items()}
    out = cubinery.gdn_decode(**given, state=state, context=context)
    assert (out.shape, out.dtype) == ((5, *extra, HV, D), dtype)
    assert_close(out.view(5, HV, D), expected, UNIT[dtype])
    assert_close(state, expected_state, F32_ARITHMETIC)


def test_decode_out_and_state_out(context):
    x = operands(3)
    state = random(3, HV, D, D, dtype=torch.float32)
    before = state.clone()
    expected, expected_state = steps(x, state)
    out = torch.full((3, HV, D), torch.nan, device="cuda")
    state_out = torch.full_like(state, torch.nan)
    made = cubinery.gdn_decode(**x, state=state, state_out=state_out, out=out, context=context)
    assert made is out
    assert_close(out, expected, F32_ARITHMETIC)
    assert_close(state_out, expected_state, F32_ARITHMETIC)
    assert torch.equal(state, before)


def test_decode_from_a_pool(context):
    x = operands(3)
    pool = random(8, HV, D, D, dtype=torch.float32)
    before = pool.clone()
    slots = torch.tensor([6, -1, 2], dtype=torch.int32, device="cuda")
    expected, expected_state = steps(x, pool[slots.long().clamp(min=0)])
    out = cubinery.gdn_decode(
        **x, state=pool, state_indices=slots, pad_slot_id=-1, zero_padding=True, context=context
    )
    for row, slot in ((0, 6), (2, 2)):
        assert_close(out[row], expected[row], UNIT[torch.bfloat16])
        assert_close(pool[slot], expected_state[row], F32_ARITHMETIC)
        before[slot] = pool[slot]
    assert torch.count_nonzero(out[1]) == 0
    assert torch.equal(pool, before)


def test_strided_views(context):
    """q, k and v as slices of one projection, as models make them."""
    x = operands(4)
    mixed = torch.cat([x[name].flatten(1) for name in ("q", "k", "v")], dim=1)
    widths = [HK * D, HK * D, HV * D]
    for name, part in zip(("q", "k", "v"), mixed.split(widths, dim=1)):
        x[name] = part.unflatten(1, (-1, D))
        assert not x[name].is_contiguous()
    state = random(4, HV, D, D, dtype=torch.float32)
    expected, _ = steps(x, state)
    out = cubinery.gdn_decode(**x, state=state, context=context)
    assert_close(out, expected, UNIT[torch.bfloat16])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_prefill(context, dtype):
    x = operands(2, 150, dtype=dtype)
    state = random(2, HV, D, D, dtype=torch.float32)
    expected = [reference({name: y[n] for name, y in x.items()}, state[n]) for n in range(2)]
    out = cubinery.gdn_prefill(**x, state=state, context=context)
    assert (out.shape, out.dtype) == ((2, 150, HV, D), dtype)
    for n, (o, last) in enumerate(expected):
        assert_close(out[n], o, 3 * UNIT[dtype])
        assert_close(state[n], last, 3 * UNIT[dtype])


@pytest.mark.parametrize("lead", [(), (1,)])
def test_packed_prefill(context, lead):
    bounds = [0, 70, 71, 200]
    x = operands(200)
    cu_seqlens = torch.tensor(bounds, dtype=torch.int64, device="cuda")
    state_out = torch.full((3, HV, D, D), torch.nan, device="cuda")
    given = {name: y.view(*lead, *y.shape) for name, y in x.items()}
    out = cubinery.gdn_prefill(**given, state_out=state_out, cu_seqlens=cu_seqlens, context=context)
    assert out.shape == (*lead, 200, HV, D)
    for n in range(3):
        part = slice(bounds[n], bounds[n + 1])
        zero = torch.zeros(HV, D, D, device="cuda")
        o, last = reference({name: y[part] for name, y in x.items()}, zero)
        assert_close(out.view(200, HV, D)[part], o, 3 * UNIT[torch.bfloat16])
        assert_close(state_out[n], last, 3 * UNIT[torch.bfloat16])


def test_prefill_heads_before_tokens(context):
    x = operands(1, 50)
    expected = cubinery.gdn_prefill(**x, context=context)
    turned = {name: y.transpose(1, 2) for name, y in x.items()}
    out = cubinery.gdn_prefill(**turned, token_layout="bhtd", context=context)
    assert torch.equal(out.transpose(1, 2), expected)


def test_prefill_goes_on_in_decode(context):
    """Operator objects with every array given, as an engine calls them."""
    x = operands(1, 65)
    heads = {"q_heads": HK, "k_heads": HK, "v_heads": HV, "key_dim": D, "value_dim": D}
    prefill = context.prepare(cubinery.PrefillProblem(**heads, has_initial_state=False))
    decode = context.prepare(cubinery.DecodeProblem(**heads))
    state = torch.full((1, HV, D, D), torch.nan, device="cuda")
    out = torch.full((1, 65, HV, D), torch.nan, dtype=torch.bfloat16, device="cuda")
    workspace = torch.empty(prefill.workspace_bytes(64, 1), dtype=torch.uint8, device="cuda")
    first = [x[name][:, :64] for name in ("q", "k", "v", "g", "beta")]
    last = [x[name][:, 64:] for name in ("q", "k", "v", "g", "beta")]
    prefill(*first, out=out[:, :64], state=state, workspace=workspace)
    decode(*last, out=out[:, 64:], state=state)
    zero = torch.zeros(HV, D, D, device="cuda")
    expected, expected_state = reference({name: y[0] for name, y in x.items()}, zero)
    assert_close(out[0], expected, 3 * UNIT[torch.bfloat16])
    assert_close(state[0], expected_state, 3 * UNIT[torch.bfloat16])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_verify_keeps_every_state(context, dtype):
    x = operands(3, 5, dtype=dtype)
    state = random(3, HV, D, D, dtype=torch.float32)
    before = state.clone()
    every = torch.full((3, 6, HV, D, D), torch.nan, device="cuda")
    out = cubinery.gdn_verify(
        **x, state=state, state_out=every, stored_states="every", context=context
    )
    assert (out.shape, out.dtype) == ((3, 5, HV, D), dtype)
    for n in range(3):
        for t in range(5):
            rows = {name: y[n, : t + 1] for name, y in x.items()}
            o, last = reference(rows, state[n])
            assert_close(every[n, t], last, F32_ARITHMETIC)
        assert_close(out[n], o, UNIT[dtype])
    assert torch.isnan(every[:, 5]).all()  # a step that no request has
    assert torch.equal(state, before)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_verify_of_a_tree(context, dtype):
    x = operands(3, 5)
    state = random(3, HV, D, D, dtype=torch.float32)
    trees = [[-1, 0, 0, 1, -1], [-1, 0, 1, 2, 3], [-1, -1, 0, 5, 1]]
    every = torch.full((3, 5, HV, D, D), torch.nan, device="cuda")
    out = cubinery.gdn_verify(
        **x, state=state, state_out=every, stored_states="every",
        parents=torch.tensor(trees, dtype=dtype, device="cuda"), context=context,
    )  # fmt: skip
    for n, parents in enumerate(trees[:2]):
        for t in range(5):
            path = [t]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            o, last = reference({name: y[n, path] for name, y in x.items()}, state[n])
            assert_close(every[n, t], last, F32_ARITHMETIC)
            assert_close(out[n, t], o[-1], UNIT[torch.bfloat16])
    assert torch.isnan(out[2]).all() and torch.isnan(every[2]).all()  # token 3 follows token 5


def test_verify_keeps_the_last_state(context):
    x = operands(2, 16)
    state = random(2, HV, D, D, dtype=torch.float32)
    expected = [reference({name: y[n] for name, y in x.items()}, state[n]) for n in range(2)]
    out = cubinery.gdn_verify(**x, state=state, context=context)
    for n, (o, last) in enumerate(expected):
        assert_close(out[n], o, UNIT[torch.bfloat16])
        assert_close(state[n], last, F32_ARITHMETIC)


def test_rounds_of_speculation_in_a_graph(context):
    """Packed requests in a pool: each round starts from what the one before it was told to keep."""
    slots = torch.tensor([[7, 2, 5, 0], [1, 8, 3, 6]], dtype=torch.int32, device="cuda")
    bounds = torch.tensor([0, 4, 7], dtype=torch.int32, device="cuda")
    accepted = torch.zeros(2, dtype=torch.int64, device="cuda")  # nothing is kept yet: step 0
    pool = random(9, HV, D, D, dtype=torch.float32)
    given = operands(7)
    out = torch.empty(7, HV, D, dtype=torch.bfloat16, device="cuda")

    def launch() -> None:
        cubinery.gdn_verify(
            **given, out=out, state=pool, state_indices=slots, cu_seqlens=bounds, draft_tokens=4,
            accepted=accepted, stored_states="every", context=context,
        )  # fmt: skip

    start = pool.clone()
    launch()  # prepares the operator
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    pool.copy_(start)
    states = [start[7], start[1]]
    for seed, counts in ((10, (2, 3)), (20, (4, 1)), (30, (1, 2))):
        for name, y in operands(7, seed=seed).items():
            given[name].copy_(y)
        graph.replay()
        for n, (first, end) in enumerate(((0, 4), (4, 7))):
            rows = {name: y[first:end] for name, y in given.items()}
            o, _ = reference(rows, states[n])
            assert_close(out[first:end], o, UNIT[torch.bfloat16])
            kept = {name: y[: counts[n]] for name, y in rows.items()}
            _, states[n] = reference(kept, states[n])
            assert_close(pool[slots[n, counts[n] - 1]], states[n], 4 * F32_ARITHMETIC)
        accepted.copy_(torch.tensor(counts))
    assert torch.equal(pool[4], start[4])


@pytest.mark.parametrize("captured", [False, True])
def test_commits_the_accepted_tokens_of_all_layers(context, captured):
    """Packed requests in pools: a verification of each layer keeps no states, then one launch."""
    heads = {"q_heads": HK, "k_heads": HK, "v_heads": HV, "key_dim": D, "value_dim": D}
    problem = cubinery.CommitProblem(**heads, varlen=True, state_location="pool")
    commit = context.prepare(problem)
    slots = torch.tensor([7, 1, 4], dtype=torch.int32, device="cuda")
    ends = [0, 4, 6, 9]
    bounds = torch.tensor(ends, dtype=torch.int32, device="cuda")
    layers = [operands(9, seed=100 * i) for i in range(2)]
    pools = [random(9, HV, D, D, dtype=torch.float32, seed=i) for i in range(2)]
    starts = [pool.clone() for pool in pools]
    for x, pool, start in zip(layers, pools, starts):
        out = cubinery.gdn_verify(
            **x, state=pool, state_indices=slots, cu_seqlens=bounds, draft_tokens=4,
            store_state=False, context=context,
        )  # fmt: skip
        for n, slot in enumerate(slots.tolist()):
            rows = {name: y[ends[n] : ends[n + 1]] for name, y in x.items()}
            o, _ = reference(rows, start[slot])
            assert_close(out[ends[n] : ends[n + 1]], o, UNIT[torch.bfloat16])
        assert torch.equal(pool, start)
        del x["q"]
    words = commit.table([{**x, "state": pool} for x, pool in zip(layers, pools)])
    table = torch.tensor(words, device="cuda").view(-1, 32)
    accepted = torch.zeros(3, dtype=torch.int32, device="cuda")

    def launch() -> None:
        commit(layers=table, accepted=accepted, cu_seqlens=bounds, state_indices=slots)

    replay = launch
    if captured:
        launch()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        replay = graph.replay
    counts = [3, 0, 1]
    accepted.copy_(torch.tensor(counts))
    replay()
    for x, pool, start in zip(layers, pools, starts):
        for n, slot in enumerate(slots.tolist()):
            if counts[n] > 0:
                part = slice(ends[n], ends[n] + counts[n])
                rows = {name: y[part] for name, y in x.items()}
                _, last = reference({**rows, "q": rows["k"]}, start[slot])
                assert_close(pool[slot], last, F32_ARITHMETIC)
                start[slot] = pool[slot]
        assert torch.equal(pool, start)


W = 4  # taps of the convolutions
CHANNELS = (2 * HK + HV) * D
SPLIT = {"q_heads": HK, "k_heads": HK, "v_heads": HV, "key_dim": D, "value_dim": D}


def convolved(x: Any, weight: Any, bias: Any = None, history: Any = None) -> Any:
    """One sequence in float64, before the activation: x [T, C] behind history [W - 1, C]."""
    width = weight.shape[1]
    zeros = torch.zeros(width - 1, x.shape[1], device="cuda")
    inputs = torch.cat([zeros if history is None else history, x]).double()
    taps = [weight[:, i].double() * inputs[i : i + len(x)] for i in range(width)]
    return sum(taps) + (0 if bias is None else bias.double())


def taps(dtype: Any = torch.bfloat16, width: int = W, channels: int = CHANNELS) -> Any:
    return random(channels, width, dtype=dtype, seed=7)


def windows(rows: int, columns: int, layout: str, dtype: Any = torch.bfloat16) -> Any:
    """States of a convolution that lie as `layout` says."""
    state = random(rows, CHANNELS, columns, dtype=dtype, seed=8)
    if layout == "channels":
        state = state.transpose(1, 2).contiguous().transpose(1, 2)
    return state


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("width", "activation"), [(4, "silu"), (3, "none"), (2, "silu")])
def test_convolution(context, dtype, width, activation, turned):
    x = random(3, 50, CHANNELS, dtype=dtype)
    if turned:  # [B, channels, T] in memory
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    weight, bias = taps(dtype, width), random(CHANNELS, dtype=dtype, seed=9)
    y = cubinery.gdn_conv(x, weight, bias, activation=activation, context=context)
    assert (y.shape, y.dtype) == (x.shape, dtype)
    for n in range(3):
        expected = convolved(x[n], weight, bias)
        if activation == "silu":
            expected = torch.nn.functional.silu(expected)
        assert_close(y[n], expected, UNIT[dtype])


@pytest.mark.parametrize("columns", [W - 1, W])
@pytest.mark.parametrize("layout", ["columns", "channels"])
@pytest.mark.parametrize("lead", [(), (1,)])
def test_convolution_of_packed_sequences(context, lead, layout, columns):
    bounds = [0, 70, 71, 71, 90, 200]
    slots = [5, 0, 3, -1, 6]
    starts = [True, False, True, True, True]
    x, weight = random(200, CHANNELS), taps()
    pool = windows(8, columns, layout)
    before = pool.clone()
    y = torch.full((*lead, 200, CHANNELS), 7.0, dtype=torch.bfloat16, device="cuda")
    cubinery.gdn_conv(
        x.view(*lead, 200, CHANNELS), weight, state=pool, pad_slot_id=-1,
        state_indices=torch.tensor(slots, dtype=torch.int32, device="cuda"),
        has_initial_state=torch.tensor(starts, device="cuda"),
        cu_seqlens=torch.tensor(bounds, dtype=torch.int64, device="cuda"), y=y, context=context,
    )  # fmt: skip
    y = y.view(200, CHANNELS)
    for n, slot in enumerate(slots):
        part = slice(bounds[n], bounds[n + 1])
        if slot < 0:
            assert (y[part] == 7).all()
            continue
        window = before[slot].T if starts[n] else torch.zeros_like(before[slot].T)
        expected = convolved(x[part], weight, history=window[1 - W :])
        assert_close(y[part], torch.nn.functional.silu(expected), UNIT[torch.bfloat16])
        before[slot] = torch.cat([window, x[part]])[-columns:].T
    assert torch.equal(pool, before)


def split_reference(y: Any, scale: float) -> tuple[Any, Any, Any]:
    """q, k and v of y in float64, q and k normalised."""
    q, k, v = y.split([HK * D, HK * D, HV * D], dim=-1)
    q, k, v = (part.unflatten(-1, (-1, D)) for part in (q, k, v))
    q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
    return scale * q, k, v


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_convolution_splits(context, dtype):
    x, weight = random(2, 40, CHANNELS, dtype=dtype), taps(dtype)
    a, b = (random(2, 40, HV, dtype=dtype, seed=seed) for seed in (1, 2))
    A_log, dt_bias = (random(HV, dtype=torch.float32, seed=seed) for seed in (3, 4))
    made = cubinery.gdn_conv(
        x, weight, **SPLIT, a=a, b=b, A_log=A_log, dt_bias=dt_bias, use_qk_l2norm=True, scale=SCALE,
        context=context,
    )  # fmt: skip
    y = torch.stack([torch.nn.functional.silu(convolved(row, weight)) for row in x])
    for ours, theirs in zip(made, split_reference(y, SCALE)):
        assert (ours.shape, ours.dtype) == (theirs.shape, dtype)
        assert_close(ours, theirs, UNIT[dtype])
    softplus = torch.nn.functional.softplus(a.double() + dt_bias.double())
    assert_close(made.g, -A_log.double().exp() * softplus, F32_ARITHMETIC)
    assert_close(made.beta, b.double().sigmoid(), F32_ARITHMETIC)


def test_convolution_makes_the_operands_of_a_decode(context):
    """Its norm, gates and strengths are those that the step would compute."""
    x, weight = random(5, 1, CHANNELS), taps()
    a, b = (random(5, 1, HV, dtype=torch.float32, seed=seed) for seed in (1, 2))
    gates = {name: random(HV, dtype=torch.float32, seed=3) for name in ("A_log", "dt_bias")}
    plain = cubinery.gdn_conv(x, weight, **SPLIT, context=context)
    made = cubinery.gdn_conv(
        x, weight, **SPLIT, a=a, b=b, **gates, use_qk_l2norm=True, context=context
    )
    states = [random(5, HV, D, D, dtype=torch.float32) for _ in range(2)]
    expected = cubinery.gdn_decode(
        *plain[:3], a, b, **gates, beta_mode="logit", use_qk_l2norm=True, state=states[0],
        context=context,
    )  # fmt: skip
    out = cubinery.gdn_decode(*made, state=states[1], context=context)
    assert_close(out, expected.double(), 4 * UNIT[torch.bfloat16])
    assert_close(states[1], states[0].double(), 4 * UNIT[torch.bfloat16])


@pytest.mark.parametrize("layout", ["columns", "channels"])
@pytest.mark.parametrize("columns", [W - 1, W])
def test_convolution_steps_go_on_from_a_prefill(context, columns, layout):
    x, weight = random(3, 24, CHANNELS), taps()
    state = windows(3, columns, layout)
    state.fill_(torch.nan)
    rows = [cubinery.gdn_conv(x[:, :20], weight, state_out=state, context=context)]
    for t in range(20, 24):
        rows.append(cubinery.gdn_conv(x[:, t : t + 1], weight, state=state, context=context))
    y = torch.cat(rows, dim=1)
    for n in range(3):
        expected = torch.nn.functional.silu(convolved(x[n], weight))
        assert_close(y[n], expected, UNIT[torch.bfloat16])
    assert torch.equal(state, x[:, 24 - columns :].transpose(1, 2))


@pytest.mark.parametrize("layout", ["columns", "channels"])
def test_convolution_rounds_of_speculation_in_a_graph(context, layout):
    """Packed requests of up to four tokens in a pool: each round goes on behind the tokens that
    the one before it was told to keep."""
    ends, slots = [0, 4, 7], [4, 1]
    weight, given = taps(), random(7, CHANNELS)
    pool = windows(6, W - 2 + 4, layout)
    history = [pool[slot, :, : W - 1].T.clone() for slot in slots]
    accepted = torch.zeros(2, dtype=torch.int64, device="cuda")
    y = torch.empty_like(given)
    indices = torch.tensor(slots, dtype=torch.int32, device="cuda")
    bounds = torch.tensor(ends, dtype=torch.int32, device="cuda")

    def launch() -> None:
        cubinery.gdn_conv(
            given, weight, state=pool, state_indices=indices, cu_seqlens=bounds, accepted=accepted,
            y=y, context=context,
        )  # fmt: skip

    start = pool.clone()
    launch()  # prepares the operator
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    pool.copy_(start)
    for seed, counts in ((10, (2, 3)), (20, (4, 1)), (30, (1, 2))):
        given.copy_(random(7, CHANNELS, seed=seed))
        graph.replay()
        for n, (first, end) in enumerate(zip(ends, ends[1:])):
            rows = given[first:end]
            expected = torch.nn.functional.silu(convolved(rows, weight, history=history[n]))
            assert_close(y[first:end], expected, UNIT[torch.bfloat16])
            history[n] = torch.cat([history[n], rows[: counts[n]]])[1 - W :]
        accepted.copy_(torch.tensor(counts))
    for slot in (0, 2, 3, 5):
        assert torch.equal(pool[slot], start[slot])
    accepted.fill_(5)  # more than a launch has
    kept = pool.clone()
    graph.replay()
    assert torch.isnan(y).all() and torch.equal(pool, kept)


def test_no_grad_is_needed(context):
    """Arrays that require a gradient are read like others: there is no backward pass."""
    x = operands(2)
    state = random(2, HV, D, D, dtype=torch.float32)
    expected, _ = steps(x, state)
    x["q"] = torch.nn.Parameter(x["q"])
    out = cubinery.gdn_decode(**x, state=state, context=context)
    assert_close(out, expected, UNIT[torch.bfloat16])


@pytest.mark.parametrize("by_number", [False, True])
@pytest.mark.parametrize("function", ["gdn_decode", "gdn_prefill", "gdn_verify"])
def test_other_streams(context, function, by_number):
    """Inputs come late on the stream: a launch on another one would read what was there before."""
    lead = {"gdn_decode": (4,), "gdn_prefill": (1, 40), "gdn_verify": (4, 3)}[function]
    call = getattr(cubinery, function)
    late = operands(*lead)
    expected = call(**late, context=context)
    given = {name: torch.full_like(y, torch.nan) for name, y in late.items()}
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        for name, y in late.items():
            given[name].copy_(y)
        if not by_number:
            out = call(**given, context=context)
    if by_number:
        out = torch.empty_like(expected)
        call(**given, out=out, stream=stream.cuda_stream, context=context)
    stream.synchronize()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("function", ["gdn_decode", "gdn_prefill", "gdn_verify"])
def test_graph_capture(context, function):
    lead = {"gdn_decode": (4,), "gdn_prefill": (1, 40), "gdn_verify": (4, 3)}[function]
    call = getattr(cubinery, function)
    given = operands(*lead)
    call(**given, context=context)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(**given, context=context)
    for seed in (10, 20):
        fresh = operands(*lead, seed=seed)
        for name, y in fresh.items():
            given[name].copy_(y)
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, call(**fresh, context=context))


class OnlyDlpack:
    """An array of a library that has nothing but DLPack's Python protocol."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)
        self.dtype = str(tensor.dtype).removeprefix("torch.")

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def test_arrays_that_only_speak_dlpack(context):
    x = operands(4)
    state = random(4, HV, D, D, dtype=torch.float32)
    expected, expected_state = steps(x, state)
    out = torch.full((4, HV, D), torch.nan, dtype=torch.bfloat16, device="cuda")
    wrapped = {name: OnlyDlpack(y) for name, y in x.items()}
    cubinery.gdn_decode(**wrapped, state=OnlyDlpack(state), out=OnlyDlpack(out), context=context)
    torch.cuda.synchronize()
    assert_close(out, expected, UNIT[torch.bfloat16])
    assert_close(state, expected_state, F32_ARITHMETIC)


def test_cupy(context):
    cupy = pytest.importorskip("cupy")
    x = operands(1, 40, dtype=torch.float16)
    expected = cubinery.gdn_prefill(**x, context=context)
    torch.cuda.synchronize()
    given = {name: cupy.from_dlpack(y) for name, y in x.items()}
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out = cubinery.gdn_prefill(**given, context=context)
    stream.synchronize()
    assert isinstance(out, cupy.ndarray)
    assert torch.equal(torch.from_dlpack(out), expected)


def test_jax(context, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    x = operands(4)
    expected = cubinery.gdn_decode(**x, context=context)
    torch.cuda.synchronize()
    given = {name: jax.dlpack.from_dlpack(y) for name, y in x.items()}
    out = cubinery.gdn_decode(**given, context=context)
    torch.cuda.synchronize()
    assert isinstance(out, jax.Array)
    assert torch.equal(torch.from_dlpack(out), expected)


def test_threads(context):
    x = operands(4)
    expected = cubinery.gdn_decode(**x, context=context)
    torch.cuda.synchronize()
    results = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                out = cubinery.gdn_decode(**x, context=context)
            torch.cuda.current_stream().synchronize()
            results.append(out)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(out, expected) for out in results)


def test_refusals_name_the_array(context):
    x = operands(4)
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_decode: v is on device cpu"):
        cubinery.gdn_decode(**{**x, "v": x["v"].cpu()}, context=context)
    with pytest.raises(cubinery.InvalidArgumentError, match="q: is on device cpu"):
        cubinery.gdn_decode(**{**x, "q": x["q"].cpu()})
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_decode: k .*f32.*bf16"):
        cubinery.gdn_decode(**{**x, "k": x["k"].float()}, context=context)
