"""A prefill on two GPUs by torch.distributed has the bits of one."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

import cubinery

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


def prefill(rank: int, count: int, decay: str) -> tuple[Any, dict[int, Any]]:
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
    operator = cubinery.Context(rank).prepare(problem(decay))
    new = torch.empty_like(state)
    rest = {
        "out": out, "state": state, "state_out": new,
        "cu_seqlens": torch.tensor(share.cu_seqlens, dtype=torch.int32, device=device),
    }  # fmt: skip
    if count == 1:
        operator(*mine, **rest)
    else:
        cubinery.ranks.RankPrefill(operator)(*mine, share=share, **rest)
    torch.cuda.synchronize(device)
    ends_here = share.sequences - (share.target is not None)
    return out.cpu(), {n + i: new[i].cpu() for i in range(ends_here)}


def work(rank: int, count: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", rank=rank, world_size=count, device_id=torch.device("cuda", rank)
    )
    for decay in ("head", "channel"):
        torch.save(prefill(rank, count, decay), f"{folder}/{decay}{rank}")
    mixed = cubinery.Context(rank).prepare(problem("head" if rank == 0 else "channel"))
    with pytest.raises(cubinery.InvalidArgumentError, match="rank 1 has"):
        cubinery.ranks.RankPrefill(mixed)
    torch.distributed.destroy_process_group()


def test_two_gpus_have_the_bits_of_one(tmp_path: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (2, port, str(tmp_path)), nprocs=2)
    for decay in ("head", "channel"):
        expected, states = prefill(0, 1, decay)
        found = [torch.load(f"{tmp_path}/{decay}{rank}") for rank in range(2)]
        assert torch.equal(torch.cat([out for out, _ in found]), expected)
        both = {**found[0][1], **found[1][1]}
        assert sorted(both) == list(range(len(LENGTHS)))
        assert all(torch.equal(both[n], states[n]) for n in both)


def test_steps_need_a_workspace() -> None:
    operator = cubinery.Context(0).prepare(problem("head"))
    arrays, states = batch("head", "cuda:0")
    with pytest.raises(cubinery.InvalidArgumentError, match="workspace = None"):
        operator(
            *arrays, out=torch.empty_like(arrays[2]), state=states, step=1,
            cu_seqlens=torch.tensor([0, 300, 3300, 3377], dtype=torch.int32, device="cuda:0"),
        )  # fmt: skip
