"""One prompt on several GPUs, beside the same prompt on one.

torchrun --nproc-per-node 2 examples/11_ranks.py
"""

from __future__ import annotations

import sys

import cubinery

try:
    import torch
    from torch import distributed
except ImportError:
    sys.exit(print("no PyTorch") or 77)

LENGTHS = [40_000, 300]
SEGMENT, HEADS, DIM = 8192, 8, 128


def main() -> bool:
    distributed.init_process_group("nccl")
    rank, count = distributed.get_rank(), distributed.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    device = torch.device("cuda", torch.cuda.current_device())
    problem = cubinery.PrefillProblem(
        q_heads=HEADS, k_heads=HEADS, v_heads=HEADS, gate_dtype="f32", beta_dtype="f32",
        varlen=True, use_qk_l2norm=True, context_parallel=True, segment_tokens=SEGMENT,
    )  # fmt: skip
    operator = cubinery.Context(device.index).prepare(problem)

    # Every rank makes all tokens, to compare; of a model it would have its own.
    random = torch.Generator(device).manual_seed(1)
    tokens = sum(LENGTHS)
    q, k, v = (
        torch.randn(tokens, HEADS, DIM, device=device, generator=random).bfloat16()
        for _ in range(3)
    )
    g = -torch.rand(tokens, HEADS, device=device, generator=random) * 0.1
    beta = torch.rand(tokens, HEADS, device=device, generator=random)
    states = torch.zeros(len(LENGTHS), HEADS, DIM, DIM, device=device)

    def bounds(numbers: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=device)

    share = cubinery.ranks.shares(LENGTHS, count, SEGMENT)[rank]
    mine = slice(share.first, share.end)
    out = torch.empty_like(v[mine])
    last = torch.empty(share.sequences, HEADS, DIM, DIM, device=device)
    prefill = cubinery.ranks.RankPrefill(operator)
    prefill(
        q[mine], k[mine], v[mine], g[mine], beta[mine], share=share, out=out,
        state=states[share.first_sequence :][: share.sequences].clone(), state_out=last,
        cu_seqlens=bounds(share.cu_seqlens),
    )  # fmt: skip

    expected = torch.empty_like(v)
    operator(
        q, k, v, g, beta, out=expected, state=states, state_out=torch.empty_like(states),
        cu_seqlens=bounds((0, LENGTHS[0], tokens)),
    )  # fmt: skip
    same = torch.equal(out, expected[mine])
    print(
        f"rank {rank} of {count}: tokens {share.first} to {share.end - 1}, same bits as on one: {same}"
    )
    distributed.destroy_process_group()
    return same


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit(print("no GPU") or 77)
    sys.exit(0 if main() else 1)
