"""Prefills and convolutions on two GPUs by torch.distributed have the bits of one."""

from __future__ import annotations

import os
import socket
import types
from typing import Any

import pytest

import cubinery
from cubinery.compat import fla

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LENGTHS = [300, 3000, 77]
SEGMENT = 512
HEADS, DIM = 4, 128


def problem(decay: str) -> cubinery.PrefillProblem:
    return cubinery.PrefillProblem(
        q_heads=HEADS, k_heads=HEADS, v_heads=HEADS, gate_dtype="f32", beta_dtype="f32",
        varlen=True, use_qk_l2norm=True, context_parallel=True, segment_tokens=SEGMENT,
        decay=decay,
    )  # fmt: skip


def batch(decay: str, device: Any) -> tuple[list[Any], Any]:
    """q, k, v, g, beta and initial states, the same on every device."""
    random = torch.Generator().manual_seed(7)
    tokens = sum(LENGTHS)
    rows = [torch.randn(tokens, HEADS, DIM, generator=random).bfloat16() for _ in range(3)]
    shape = (tokens, HEADS, DIM) if decay == "channel" else (tokens, HEADS)
    slow = torch.tensor([0.0, 1e-4, 1e-2, 1.0]).reshape(HEADS, *[1] * (len(shape) - 2))
    rows += [
        -slow * torch.rand(shape, generator=random),
        torch.rand(tokens, HEADS, generator=random),
    ]
    states = torch.randn(len(LENGTHS), HEADS, DIM, DIM, generator=random)
    return [row.to(device) for row in rows], states.to(device)


def prefill(rank: int, count: int, decay: str, by_function: bool = False) -> tuple[Any, Any]:
    """Outputs of the rank's tokens, and new states by sequence."""
    device = torch.device("cuda", rank)
    share = cubinery.ranks.shares(LENGTHS, count, SEGMENT)[rank]
    arrays, states = batch(decay, device)
    mine = [array[share.first : share.end] for array in arrays]
    n = share.first_sequence
    state = states[n : n + share.sequences].clone()
    if share.continues:
        state[0] = float("nan")
    out = torch.empty_like(mine[2])
    new = torch.empty_like(state)
    rest = {
        "out": out, "state": state, "state_out": new,
        "cu_seqlens": torch.tensor(share.cu_seqlens, dtype=torch.int32, device=device),
    }  # fmt: skip
    if by_function:
        for _ in range(2):  # the second one finds that ranks have agreed
            cubinery.gdn_prefill(
                *mine, **rest, use_qk_l2norm=True, share=share, segment_tokens=SEGMENT
            )
    else:
        operator = cubinery.Context(rank).prepare(problem(decay))
        if count == 1:
            operator(*mine, **rest)
        else:
            cubinery.ranks.RankPrefill(operator)(*mine, share=share, **rest)
    torch.cuda.synchronize(device)
    return out.cpu(), ended(share, new)


def ended(share: cubinery.ranks.Share, states: Any) -> dict[int, Any]:
    """New states of the sequences that end on the rank."""
    count = share.sequences - (share.target is not None)
    return {share.first_sequence + i: states[i].cpu() for i in range(count)}


# Where the second rank begins: in the middle; so that one of them has too few tokens of a sequence
# for the next one's window; where a sequence begins.
SPLITS = [1688, 1, 302, sum(LENGTHS) - 2, 300]
CHANNELS, WIDTH = 256, 4


def conv_batch(device: Any) -> list[Any]:
    """x, weight, bias and initial states of width columns."""
    random = torch.Generator().manual_seed(11)
    shapes = ((sum(LENGTHS), CHANNELS), (CHANNELS, WIDTH), (CHANNELS,))
    shapes += ((len(LENGTHS), CHANNELS, WIDTH),)
    return [torch.randn(shape, generator=random).bfloat16().to(device) for shape in shapes]


def convolve(rank: int, begins: list[int], columns: int, by_function: bool) -> tuple[Any, Any]:
    """As prefill(), of a convolution.  Of width - 1 columns channels are neighbours."""
    device = torch.device("cuda", rank)
    share = cubinery.ranks.shares_from(LENGTHS, begins)[rank]
    x, weight, bias, states = conv_batch(device)
    x, n = x[share.first : share.end], share.first_sequence
    state = states[n : n + share.sequences, :, -columns:]
    layout = "columns" if columns == WIDTH else "channels"
    state = state.contiguous() if layout == "columns" else state.mT.contiguous().mT
    if share.continues:
        state[0, :, 1 - WIDTH :] = float("nan")
    y, new = torch.empty_like(x), torch.empty_like(state)
    rest = {
        "y": y, "state": state, "state_out": new,
        "cu_seqlens": torch.tensor(share.cu_seqlens, dtype=torch.int32, device=device),
    }  # fmt: skip
    if by_function:
        cubinery.gdn_conv(x, weight, bias, **rest, share=share if len(begins) > 1 else None)
    else:
        conv_problem = cubinery.ConvProblem(
            width=WIDTH, has_bias=True, varlen=True, state_layout=layout,
            whole_window=columns == WIDTH,
        )  # fmt: skip
        conv = cubinery.Context(rank).prepare(conv_problem)
        cubinery.ranks.RankConv(conv)(x, weight, bias, share=share, **rest)
    torch.cuda.synchronize(device)
    return y.cpu(), ended(share, new)


EVEN = sum(LENGTHS) // 2 * 2  # tokens: FLA deals them evenly
FLA = ("gdn", "kda", "conv")


def fla_context(rank: int, device: Any) -> Any:
    """What FLA makes of the batch for one of two ranks: the second sequence is on both."""
    each = EVEN // 2
    bounds = [0, 300, each] if rank == 0 else [0, 3300 - each, each]
    return types.SimpleNamespace(
        group=torch.distributed.group.WORLD,
        cu_seqlens=torch.tensor(bounds, dtype=torch.int32, device=device),
        cu_seqlens_cpu=torch.tensor(bounds, dtype=torch.int32),
        is_first_rank=rank == 0, is_last_rank=rank == 1,
        pre_num_ranks=rank, post_num_ranks=1 - rank,
        conv1d_kernel_size=WIDTH, pre_num_conv_tokens=rank * (WIDTH - 1),
    )  # fmt: skip


def by_fla(rank: int, name: str, is_split: bool) -> tuple[Any, Any]:
    """Outputs of the rank's tokens and final states of its sequences, by FLA's functions."""
    device = torch.device("cuda", rank)
    tokens, rows = slice(0, EVEN), slice(0, len(LENGTHS))
    options: dict[str, Any] = {"output_final_state": True}
    if is_split:
        options["cp_context"] = fla_context(rank, device)
        tokens = slice(rank * EVEN // 2, (rank + 1) * EVEN // 2)
        rows = slice(rank, rank + 2)
    else:
        bounds = [0, 300, 3300, EVEN]
        options["cu_seqlens"] = torch.tensor(bounds, dtype=torch.int32, device=device)
    if name == "conv":
        x, weight, bias, states = conv_batch(device)
        o, final = fla.causal_conv1d(
            x[None, tokens], weight, bias, initial_state=states[rows], activation="silu", **options
        )
    else:
        arrays, states = batch("head" if name == "gdn" else "channel", device)
        function = fla.chunk_gated_delta_rule if name == "gdn" else fla.chunk_kda
        before = states.clone()
        o, final = function(
            *(array[None, tokens] for array in arrays), initial_state=states[rows],
            use_qk_l2norm_in_kernel=True, **options,
        )  # fmt: skip
        assert torch.equal(states, before)
    torch.cuda.synchronize(device)
    return o[0].cpu(), final.cpu()


CONVOLUTIONS = [
    (split, columns, by_function)
    for split in SPLITS
    for columns, by_function in ((WIDTH - 1, False), (WIDTH, True))
]


def work(rank: int, count: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", rank=rank, world_size=count, device_id=torch.device("cuda", rank)
    )
    found: dict[str, Any] = {}
    for decay in ("head", "channel"):
        for by_function in (False, True):
            found[f"{decay} {by_function}"] = prefill(rank, count, decay, by_function)
    for split, columns, by_function in CONVOLUTIONS:
        found[f"{split} {columns}"] = convolve(rank, [0, split], columns, by_function)
    for name in FLA:
        found[name] = by_fla(rank, name, True)
    torch.save(found, f"{folder}/{rank}")
    mixed = cubinery.Context(rank).prepare(problem("head" if rank == 0 else "channel"))
    with pytest.raises(cubinery.InvalidArgumentError, match="rank 1 has"):
        cubinery.ranks.RankPrefill(mixed)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> list[dict[str, Any]]:
    """What each of two ranks has, by its name."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (2, port, str(folder)), nprocs=2)
    return [torch.load(f"{folder}/{rank}") for rank in range(2)]


def assert_same_bits(of_ranks: list[Any], expected: tuple[Any, Any]) -> None:
    out, states = expected
    assert torch.equal(torch.cat([each for each, _ in of_ranks]), out)
    both = {**of_ranks[0][1], **of_ranks[1][1]}
    assert sorted(both) == list(range(len(LENGTHS)))
    assert all(torch.equal(both[n], states[n]) for n in both)


@pytest.mark.parametrize("by_function", [False, True])
@pytest.mark.parametrize("decay", ["head", "channel"])
def test_two_gpus_have_the_bits_of_one(found: Any, decay: str, by_function: bool) -> None:
    of_ranks = [each[f"{decay} {by_function}"] for each in found]
    assert_same_bits(of_ranks, prefill(0, 1, decay))


@pytest.mark.parametrize("split, columns, by_function", CONVOLUTIONS)
def test_convolutions_have_the_bits_of_one_gpu(
    found: Any, split: int, columns: int, by_function: bool
) -> None:
    of_ranks = [each[f"{split} {columns}"] for each in found]
    assert_same_bits(of_ranks, convolve(0, [0], columns, True))


def assert_close(actual: Any, expected: Any) -> None:
    """Two paths of the same products, whose operands are rounded to bf16: in the mean of squares.

    Without the other rank's state the tokens behind a boundary are off by as much as they are.
    """
    actual, expected = actual.double(), expected.double()
    assert actual.shape == expected.shape and bool(actual.isfinite().all())
    assert (actual - expected).norm() <= 2.0**-5 * expected.norm()


@pytest.mark.parametrize("name", FLA)
def test_contexts_of_fla(found: Any, name: str) -> None:
    o, final = by_fla(0, name, False)
    each, near = EVEN // 2, 64
    for rank, of_rank in enumerate(mine[name] for mine in found):
        expected = o[rank * each : (rank + 1) * each]
        assert_close(of_rank[0], expected)
        assert_close(of_rank[0][:near], expected[:near])
    (_, first), (_, second) = (mine[name] for mine in found)
    assert_close(torch.cat([first[:1], second]), final)  # the second sequence ends on rank 1


def test_steps_need_a_workspace() -> None:
    operator = cubinery.Context(0).prepare(problem("head"))
    arrays, states = batch("head", "cuda:0")
    with pytest.raises(cubinery.InvalidArgumentError, match="workspace = None"):
        operator(
            *arrays, out=torch.empty_like(arrays[2]), state=states, step=1,
            cu_seqlens=torch.tensor([0, 300, 3300, 3377], dtype=torch.int32, device="cuda:0"),
        )  # fmt: skip
