"""A serving loop without an engine: requests come while others decode, slots of a pool are theirs
until they are done, and all decoding steps are replays of one CUDA graph, padded where there are
fewer requests than it was captured for.  docs/engines.md explains what is done when.

The model is small and random; a token is a vector, and a step's output is the next step's input.
Checked against each request by itself: its whole sequence prefilled at once, from nothing.

    python examples/09_serving.py [config.json [tp]]    layers of a model; without: small ones
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import cubinery

try:
    import torch
except ImportError:
    sys.exit(print("no PyTorch") or 77)

SMALL_MODEL = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "dtype": "bfloat16",
}  # fmt: skip
HIDDEN, LAYERS = 256, 2
NO_REQUEST = 0  # a slot that no request gets: what its index means is a row of padding
SLOTS, BATCH = 9, 8  # of a pool; of the graph
NEW_TOKENS = 12
PROMPTS = (5, 64, 130, 1, 17)  # lengths; the last two come when the others have begun to decode
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Operators:
    """One of each, for all layers: they are alike."""

    def __init__(self, context: Any, config: Any, tp: int) -> None:
        problems = cubinery.problems_for_model(config, tp)
        # Norms and gates of a prompt are the convolution's work, those of a step the decode's.
        made = {"gate_mode": "computed", "beta_mode": "logit", "use_qk_l2norm": True}
        dtypes = {name: getattr(problems.prefill, name)
                  for name in ("gate_dtype", "beta_dtype", "a_log_dtype", "dt_bias_dtype")}  # fmt: skip
        given = {"gate_mode": "log", "beta_mode": "given", "use_qk_l2norm": False}
        given |= {name: "f32" for name in dtypes}
        self.shape = replace(problems.conv, **made, **dtypes)
        self.states = problems.decode
        self.conv = context.prepare(self.shape)
        self.prefill = context.prepare(replace(problems.prefill, **given))
        self.decode = context.prepare(replace(problems.decode_with_conv, output_norm="gated_rms"))


class Layer:
    """Weights of a layer, and its pools."""

    def __init__(self, operators: Operators, random: Any, device: str) -> None:
        p = operators.shape
        dtype = DTYPES[p.dtype]
        self.keys, self.values = p.k_heads * p.key_dim, p.v_heads * p.value_dim
        self.p, self.channels = p, 2 * self.keys + self.values

        def weight(*shape: int, spread: float, mean: float = 0, kind: Any = dtype) -> Any:
            return (mean + spread * torch.randn(shape, generator=random)).to(device, kind)

        rows = self.channels + self.values + 2 * p.v_heads  # of q, k, v; z; a and b
        self.project = weight(rows, HIDDEN, spread=HIDDEN**-0.5)
        self.back = weight(HIDDEN, self.values, spread=self.values**-0.5)
        self.conv_weight = weight(self.channels, p.width, spread=0.5)
        self.gates = {
            "A_log": weight(p.v_heads, mean=-2, spread=0.3, kind=torch.float32),
            "dt_bias": weight(p.v_heads, spread=0.5),
        }
        self.norm_weight = weight(p.value_dim, mean=1, spread=0.1, kind=torch.float32)
        # Nobody clears a slot: what an earlier request left there is not read.
        window = (SLOTS, self.channels, p.width - 1)
        self.windows = torch.full(window, float("nan"), dtype=DTYPES[p.state_dtype], device=device)
        state = (SLOTS, p.v_heads, p.value_dim, p.key_dim)
        kind = DTYPES[operators.states.state_dtype]
        self.pool = torch.full(state, float("nan"), dtype=kind, device=device)

    def split(self, x: Any) -> tuple[Any, ...]:
        heads = self.p.v_heads
        return (x @ self.project.T).split([self.channels, self.values, heads, heads], -1)

    def norm(self, o: Any, z: Any) -> Any:
        x = o.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.norm_weight
        return (x * torch.nn.functional.silu(z.float())).to(o.dtype)


@dataclass
class Request:
    inputs: list[Any]  # vectors: of the prompt, then of each step
    outputs: list[Any] = field(default_factory=list)  # of the prompt's last token and each step
    slot: int = NO_REQUEST


class Server:
    def __init__(self, operators: Operators, layers: list[Layer], device: str) -> None:
        self.operators, self.layers, self.device = operators, layers, device
        self.free = [slot for slot in range(SLOTS) if slot != NO_REQUEST]
        self.running: list[Request] = []
        # What a replay of the graph reads and writes.
        self.x = torch.zeros(BATCH, HIDDEN, dtype=layers[0].project.dtype, device=device)
        self.slots = torch.zeros(BATCH, dtype=torch.int32, device=device)
        self.graph, self.y = self.capture()

    def ints(self, numbers: list[int]) -> Any:
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)

    def start(self, requests: list[Request]) -> None:
        """Prefills prompts, packed behind each other."""
        for request in requests:
            request.slot = self.free.pop()
        bounds = [0]
        for request in requests:
            bounds.append(bounds[-1] + len(request.inputs))
        x = torch.stack([vector for request in requests for vector in request.inputs])
        y = self.prompts(x, self.ints(bounds), self.ints([r.slot for r in requests]))
        for request, end in zip(requests, bounds[1:]):
            request.outputs.append(y[end - 1])
        self.running += requests

    def prompts(self, x: Any, bounds: Any, slots: Any) -> Any:
        p = self.operators.shape
        is_old = torch.zeros(len(slots), dtype=torch.bool, device=self.device)
        size = self.operators.prefill.workspace_bytes(len(x), len(slots))
        workspace = torch.empty(size, dtype=torch.uint8, device=self.device)
        for layer in self.layers:
            qkv, z, a, b = layer.split(x)
            q = x.new_empty(len(x), p.q_heads, p.key_dim)
            k = x.new_empty(len(x), p.k_heads, p.key_dim)
            v = x.new_empty(len(x), p.v_heads, p.value_dim)
            g, beta = (torch.empty(len(x), p.v_heads, device=self.device) for _ in range(2))
            o = torch.empty_like(v)
            of_batch = {"cu_seqlens": bounds, "state_indices": slots, "has_initial_state": is_old}
            self.operators.conv(
                qkv, layer.conv_weight, q=q, k=k, v=v, a=a, b=b, g=g, beta=beta, **layer.gates,
                state=layer.windows, **of_batch,
            )  # fmt: skip
            self.operators.prefill(
                q, k, v, g, beta, out=o, state=layer.pool, workspace=workspace, **of_batch
            )
            x = x + layer.norm(o, z.view_as(o)).flatten(1) @ layer.back.T
        return x

    def decode(self) -> Any:
        """Enqueues a step of the whole batch."""
        p, x = self.operators.shape, self.x
        for layer in self.layers:
            qkv, z, a, b = layer.split(x)
            o = x.new_empty(BATCH, p.v_heads, p.value_dim)
            self.operators.decode(
                g=a, beta=b, **layer.gates, out=o, x=qkv, conv_weight=layer.conv_weight,
                conv_state=layer.windows, state=layer.pool, state_indices=self.slots,
                z=z.view_as(o), norm_weight=layer.norm_weight, pad_slot_id=NO_REQUEST,
                zero_padding=True,
            )  # fmt: skip
            x = x + o.flatten(1) @ layer.back.T
        return x

    def capture(self) -> tuple[Any, Any]:
        """All rows are padding while it is captured: nobody has a slot yet."""
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.decode()  # cuBLAS allocates at its first call
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = self.decode()
        return graph, y

    def step(self) -> None:
        """A token of each running request; those that are done give their slots back."""
        for row, request in enumerate(self.running):
            request.inputs.append(request.outputs[-1] / request.outputs[-1].norm() * HIDDEN**0.5)
            self.x[row] = request.inputs[-1]
        rows = [request.slot for request in self.running]
        self.slots.copy_(self.ints(rows + [NO_REQUEST] * (BATCH - len(rows))))
        self.graph.replay()
        for row, request in enumerate(self.running):
            request.outputs.append(self.y[row].clone())
        done = [request for request in self.running if len(request.outputs) > NEW_TOKENS]
        for request in done:
            self.free.append(request.slot)
            self.running.remove(request)


def run(context: Any, config: Any, tp: int = 1, device: str = "cuda") -> bool:
    """Whether each request got what it gets alone, which is printed."""
    operators = Operators(context, config, tp)
    random = torch.Generator().manual_seed(1)
    layers = [Layer(operators, random, device) for _ in range(LAYERS)]
    server = Server(operators, layers, device)
    prompts = [torch.randn(n, HIDDEN, generator=random).to(server.x) for n in PROMPTS]
    requests = [Request(list(prompt)) for prompt in prompts]
    server.start(requests[:-2])
    for _ in range(3):
        server.step()
    server.start(requests[-2:])
    while server.running:
        server.step()
    worst = 0.0
    for request in requests:
        x = torch.stack(request.inputs)
        alone = server.prompts(x, server.ints([0, len(x)]), server.ints([server.free[0]]))
        alone = alone[-len(request.outputs) :].float()
        error = (torch.stack(request.outputs).float() - alone).abs().max() / alone.abs().max()
        worst = max(worst, error.item()) if error == error else float("inf")
        print(f"prompt of {len(x) - NEW_TOKENS}, {NEW_TOKENS} more: differs by {error.item():.1e}")
    limit = 2.0**-5 if operators.shape.dtype == "bf16" else 2.0**-8
    print(f"limit {limit:.1e}")
    return worst < limit


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit(print("no GPU") or 77)
    chosen = sys.argv[1] if len(sys.argv) > 1 else SMALL_MODEL
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sys.exit(0 if run(cubinery.Context(0), chosen, size) else 1)
