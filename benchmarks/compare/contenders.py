"""Who is compared: each turns a row's data into launches.  A package is imported when it is asked for.

A launch takes the number of a set and returns (o, state), of a layer (o, state, window): o as
data.expected() has it or without its dimensions of one (of a convolution q, k and v), state with the
layout that Prepared.state_layout names.  Everything that a user would do once (operators, workspaces,
other forms of the gates, index tensors) is done before.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from compare.data import NORM_EPS, ConvData, DecodeData, KdaPrefillData, LayerData, PrefillData
from compare.record import OURS, YARDSTICK
from compare.rows import DIM, LOWER_BOUND, DecodeRow, KdaPrefillRow, VerifyRow

Outputs = Tensor | tuple[Tensor, Tensor, Tensor]
Launch = Callable[[int], tuple[Outputs, *tuple[Tensor, ...]]]


@dataclass
class Prepared:
    """One contender on one row."""

    launch: Launch
    state_layout: str  # "kv" or "vk"; of a convolution "columns"
    note: str = ""  # what its user should know about the figure
    # [sets, B]: the state is a pool, and these are the sets' places in it.
    slots: Tensor | None = None
    # What is right, where it is not what the row's data say.
    expected: Callable[[], tuple[Tensor, ...]] | None = None

    def result(self) -> tuple[Tensor, ...]:
        """Launches once on set 0: o, and its states as [N, HV, K, V], of a layer the convolution's too;
        of a convolution [N, T, C] and [N, C, W]."""
        o, *states = self.launch(0)
        if isinstance(o, tuple):
            o = torch.cat([x.flatten(-2) for x in o], -1)
        if self.slots is not None:
            states = [state[self.slots[0].long()] for state in states]
        if self.state_layout == "vk":
            states[0] = states[0].transpose(-1, -2)
        return o, *states


class Contender(Protocol):
    """name: what the record calls it, with the version."""

    name: str

    def decode(self, data: DecodeData) -> Prepared: ...

    def verify(self, data: DecodeData) -> Prepared: ...

    def prefill(self, data: PrefillData) -> Prepared: ...

    def conv(self, data: ConvData) -> Prepared: ...


class NotOffered(Exception):
    """The library has no such operation: the message says which."""


def current_stream() -> int:
    return torch.cuda.current_stream().cuda_stream


class Cubinery:
    """Operator objects with every array given: what an engine holds."""

    def __init__(self) -> None:
        self._library = importlib.import_module("cubinery")
        self._context = self._library.Context(torch.cuda.current_device())
        try:
            self.nvrtc = self._context.nvrtc_version
        except self._library.UnsupportedError:  # offline
            self.nvrtc = "none"
        self.name = OURS

    def decode(self, data: DecodeData) -> Prepared:
        fields = _engine_fields(data)
        if isinstance(data, LayerData):
            fields |= _around_fields(data)
        problem = self._library.DecodeProblem(**fields)
        operator = self._library.Decode(self._context, problem)
        return self._in_place(operator, data, lambda x: x[:, 0])

    def verify(self, data: DecodeData) -> Prepared:
        problem = self._library.VerifyProblem(
            **_engine_fields(data),
            draft_tokens=data.row.tokens,
            store_state=data.row.stored == "last",
        )
        operator = self._library.Verify(self._context, problem)
        return self._in_place(operator, data, lambda x: x)

    def _in_place(
        self, operator: Callable, data: DecodeData, rows_of: Callable[[Tensor], Tensor]
    ) -> Prepared:
        """`rows_of`: what the operator takes of a tensor of tokens."""
        pool = data.vk_pool()
        states = (pool,)
        fixed = data.gates | {"state": pool}
        names = {"g": "a", "beta": "b"}  # of arguments: of members of sets
        if isinstance(data, LayerData):
            windows = data.window_pool()
            states += (windows,)
            fixed |= {"conv_weight": data.weight, "conv_state": windows}
            fixed |= {"norm_weight": data.norm_weight, "norm_eps": NORM_EPS}
            names |= {"x": "x", "z": "z"}
        else:
            names |= {"q": "q", "k": "k", "v": "v"}
        rows = [{to: rows_of(getattr(s, name)) for to, name in names.items()} for s in data.sets]
        outs = [_unwritten(each.get("v", each.get("z"))) for each in rows]

        def launch(at: int) -> tuple[Tensor, ...]:
            operator(
                **rows[at],
                **fixed,
                out=outs[at],
                state_indices=data.slots[at],
                stream=current_stream(),
            )
            return outs[at], *states

        return Prepared(launch, "vk", _pool_note(data), data.slots)

    def prefill(self, data: PrefillData) -> Prepared:
        row = data.row
        problem = self._library.PrefillProblem(
            q_heads=row.qk_heads,
            k_heads=row.qk_heads,
            v_heads=row.v_heads,
            dtype=row.dtype,
            output_dtype=row.dtype,
            gate_dtype=row.gate_dtype,
            beta_dtype=row.gate_dtype,
            varlen=row.packed,
            state_layout=row.state_layout,
            has_initial_state=row.has_initial_state,
            **(_computed_fields(row) if isinstance(row, KdaPrefillRow) else {}),
        )
        operator = self._library.Prefill(self._context, problem)
        count = len(row.seqlens)
        bytes_ = operator.workspace_bytes(row.tokens, count)
        spaces = [torch.empty(bytes_, dtype=torch.uint8, device=data.device) for _ in data.sets]
        outs = [_unwritten(s.v) for s in data.sets]
        finals = [_states_like(s.v, count) for s in data.sets]

        def launch(at: int) -> tuple[Tensor, Tensor]:
            s = data.sets[at]
            # Without initial states the operator takes the place of the final ones as `state`.
            states = {"state": finals[at]}
            if s.state is not None:
                states = {"state": s.state, "state_out": finals[at]}
            operator(
                *s.tokens,
                **data.gates,
                out=outs[at],
                cu_seqlens=data.cu_seqlens if row.packed else None,
                max_seqlen=max(row.seqlens) if row.packed else None,
                scale=row.scale,
                workspace=spaces[at],
                stream=current_stream(),
                **states,
            )
            return outs[at], finals[at]

        return Prepared(launch, row.state_layout)

    def conv(self, data: ConvData) -> Prepared:
        row = data.row
        problem = self._library.ConvProblem(
            q_heads=row.qk_heads,
            k_heads=row.qk_heads,
            v_heads=row.v_heads,
            key_dim=DIM,
            value_dim=DIM,
            width=row.width,
            split_qkv=True,
            varlen=not row.is_step,
            has_initial_state=row.is_step,
            whole_window=True,
        )
        operator = self._library.Conv(self._context, problem)
        outs = [data.outputs() for _ in data.sets]
        states = _windows(data)

        def launch(at: int) -> tuple[Outputs, Tensor]:
            q, k, v = outs[at]
            operator(
                data.sets[at].x,
                data.weight,
                q=q,
                k=k,
                v=v,
                cu_seqlens=None if row.is_step else data.cu_seqlens,
                state=states[at],
                stream=current_stream(),
            )
            return outs[at], states[at]

        return Prepared(launch, "columns", "one kernel")


class CubineryOfHeads(Cubinery):
    """A yardstick beside rows with decays of channels: the same operators with one decay for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.name = YARDSTICK

    def decode(self, data: DecodeData) -> Prepared:
        return self._prepared(super().decode, data)

    def verify(self, data: DecodeData) -> Prepared:
        return self._prepared(super().verify, data)

    def prefill(self, data: PrefillData) -> Prepared:
        return self._prepared(super().prefill, data)

    def _prepared(self, prepare: Callable[[Any], Prepared], data: Any) -> Prepared:
        if not data.row.by_channel:
            raise NotOffered("a head has one decay in this row")
        own = data.by_head()
        prepared = prepare(own)
        prepared.expected = own.expected
        return prepared

    def conv(self, data: ConvData) -> Prepared:
        raise NotOffered("there are no decays in this row")


def _windows(data: ConvData) -> list[Tensor]:
    """The states of each set, to be updated in place, or where final ones go."""
    row = data.row
    shape = (row.sequences, row.channels, row.width)
    return [
        s.x.new_full(shape, torch.nan) if s.state is None else s.state.clone() for s in data.sets
    ]


def _engine_fields(data: DecodeData) -> dict[str, object]:
    """Of cubinery's problems: as engines run decode and verify."""
    row = data.row
    return {
        "q_heads": row.qk_heads,
        "k_heads": row.qk_heads,
        "v_heads": row.v_heads,
        "gate_dtype": "bf16",
        "beta_dtype": "bf16",
        "state_dtype": row.state_dtype,
        "state_layout": "vk",
        "state_location": "pool",
    } | _computed_fields(row)


def _computed_fields(row: DecodeRow | KdaPrefillRow) -> dict[str, object]:
    """Of cubinery's problems: gates, beta and norms are computed in the kernel."""
    return {
        "decay": row.decay,
        "gate_mode": row.gate_mode,
        "beta_mode": "logit",
        "use_qk_l2norm": True,
    }


def _around_fields(data: LayerData) -> dict[str, object]:
    """Of cubinery's decode: the convolution in front and the norm behind, with vLLM's dtypes."""
    return {
        "conv_width": data.row.width,
        "conv_weight_dtype": "f32",
        "conv_state_layout": "channels",
        "output_norm": "sigmoid_gated_rms",
    }


def _pool_note(data: DecodeData) -> str:
    return f"states in a pool, {'not updated' if data.row.stored == 'none' else 'updated in place'}"


def _unwritten(like: Tensor) -> Tensor:
    """NaN: memory that held another contender's result would hide what is not written."""
    return torch.full_like(like, torch.nan)


def _states_like(v: Tensor, count: int) -> Tensor:
    shape = (count, v.shape[-2], v.shape[-1], v.shape[-1])
    return torch.full(shape, torch.nan, dtype=torch.float32, device=v.device)


class Fla:
    """flash-linear-attention's Triton kernels: the chunked one, for decode the recurrent one, and its
    convolutions, behind which a kernel of our own splits their output."""

    def __init__(self) -> None:
        # With flash_qla or flash_kda installed, FLA would hand them the work: others' kernels.
        os.environ["FLA_FLASH_QLA"] = os.environ["FLA_FLASH_KDA"] = "0"
        operations = importlib.import_module("fla.ops.gated_delta_rule")
        self._chunk = operations.chunk_gated_delta_rule
        self._recurrent = operations.fused_recurrent_gated_delta_rule
        self.name = f"fla-{importlib.import_module('fla').__version__}"

    def decode(self, data: DecodeData) -> Prepared:
        if isinstance(data, LayerData):
            raise NotOffered("no kernel has the convolution, decode and the norm")
        if data.row.by_channel:
            return _fla_kda(data)
        stores = data.row.stored == "last"

        def launch(at: int) -> tuple[Tensor, Tensor]:
            s = data.sets[at]
            return self._recurrent(
                *(s.q, s.k, s.v),
                g=s.a,
                beta=s.b,
                A_log=data.A_log,
                dt_bias=data.dt_bias,
                use_gate_in_kernel=True,
                use_beta_sigmoid_in_kernel=True,
                use_qk_l2norm_in_kernel=True,
                initial_state=s.state,
                output_final_state=stores,
            )

        if not stores:
            return Prepared(lambda at: (launch(at)[0], data.sets[at].state), "kv", "no new states")
        note = "states [B, HV, K, V], the new ones in memory of their own"
        if data.row.state_dtype != "f32":
            note += " and in f32, whatever the old ones are"
        return Prepared(launch, "kv", note)

    verify = decode

    def prefill(self, data: PrefillData) -> Prepared:
        if isinstance(data, KdaPrefillData):
            return _fla_prefill(_fla_chunk_kda(data), data)
        return _fla_prefill(self._chunk, data)

    def conv(self, data: ConvData) -> Prepared:
        convolutions = importlib.import_module("fla.modules.causal_conv1d.ops")
        _tune_again(convolutions.causal_conv1d_fwd_kernel)
        _tune_again(convolutions.causal_conv1d_update_kernel)
        split = importlib.import_module("compare.split").split
        outs = [data.outputs() for _ in data.sets]

        def step(at: int) -> tuple[Outputs, Tensor]:
            y, state = convolutions.causal_conv1d_update(
                data.sets[at].x, states[at], weight=data.weight, activation="silu"
            )
            split(y, outs[at])
            return outs[at], state

        def whole(at: int) -> tuple[Outputs, Tensor]:
            y, state = convolutions.causal_conv1d(
                data.sets[at].x,
                data.weight,
                activation="silu",
                output_final_state=True,
                cu_seqlens=data.cu_seqlens_i64,
            )
            split(y, outs[at])
            return outs[at], state

        if data.row.is_step:
            states = _windows(data)
            return Prepared(step, "columns", "causal_conv1d_update, then a split")
        return Prepared(whole, "columns", "causal_conv1d, its kernel of the states, then a split")


class FlashQla:
    """QwenLM/FlashQLA, TileLang kernels with its automatic partitioning.  Prefill only."""

    def __init__(self) -> None:
        self._chunk = importlib.import_module("flash_qla").chunk_gated_delta_rule
        if "enable_fwd_cp_cache" in inspect.signature(self._chunk).parameters:
            # Keeps what only a backward pass needs.
            self._chunk = functools.partial(self._chunk, enable_fwd_cp_cache=False)
        self.name = f"flash-qla-{package_version('flash-qla')}"

    def decode(self, data: DecodeData) -> Prepared:
        raise NotOffered("the release has no decode kernel")

    verify = decode

    def prefill(self, data: PrefillData) -> Prepared:
        _refuse_channels(data)
        gates = [(s.g.float(), s.beta.float()) for s in data.sets]  # it takes f32
        return _fla_prefill(self._chunk, data, gates)

    def conv(self, data: ConvData) -> Prepared:
        raise NotOffered("the release has no convolution")


def _fla_kda(data: DecodeData) -> Prepared:
    """What is inside FLA's fused_recurrent_kda: it takes a pool and an output, which that does not pass
    on.  In a pool it stores a state for every token, so of several tokens states are dense."""
    step = importlib.import_module("fla.ops.kda.fused_recurrent").fused_recurrent_kda_fwd
    stores, dense = data.row.stored == "last", isinstance(data.row, VerifyRow)
    if dense:
        states = [s.state.transpose(-1, -2).contiguous() for s in data.sets]
        places: list[dict[str, Tensor]] = [{} for _ in data.sets]
    else:
        states = [data.vk_pool()] * len(data.sets)
        # Each aligned, so that one kernel serves all.
        places = [{"ssm_state_indices": slots.clone()} for slots in data.slots]
    outs = [_unwritten(s.v) for s in data.sets]
    gates = data.gates | {"dt_bias": data.dt_bias.flatten()}

    def launch(at: int) -> tuple[Tensor, Tensor]:
        s = data.sets[at]
        step(
            *(s.q, s.k, s.v, s.a, s.b),
            **gates,
            scale=DIM**-0.5,
            use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True,
            use_qk_l2norm_in_kernel=True,
            state_v_first=True,
            initial_state=states[at],
            inplace_final_state=stores,
            out=outs[at],
            **places[at],
        )
        return outs[at], states[at]

    if dense:
        note = f"dense states, {'updated in place' if stores else 'not updated'}"
        return Prepared(launch, "vk", note)
    return Prepared(launch, "vk", _pool_note(data), data.slots)


def _fla_chunk_kda(data: KdaPrefillData) -> Callable:
    """FLA's chunk_kda with gates, beta and norms computed in its kernels."""
    bound = {"safe_gate": True, "lower_bound": LOWER_BOUND} if data.bounded else {}
    return functools.partial(
        importlib.import_module("fla.ops.kda").chunk_kda,
        A_log=data.A_log,
        dt_bias=data.dt_bias.flatten(),
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        use_qk_l2norm_in_kernel=True,
        state_v_first=True,
        **bound,
    )


def _tune_again(kernel: Any) -> None:
    """Lets FLA's tuner choose for this row.  Its key has no number of tokens, so that otherwise what it
    measured first, here or in an earlier process, would stay for all."""
    while not hasattr(kernel, "configs"):  # Triton's heuristics are around the tuner
        kernel = kernel.fn
    kernel.cache.clear()
    kernel.cache_results = False


def _fla_prefill(
    chunk: Callable, data: PrefillData, gates: list[tuple[Tensor, Tensor]] | None = None
) -> Prepared:
    """FLA's calling convention, which FlashQLA shares."""
    row = data.row

    def launch(at: int) -> tuple[Tensor, Tensor]:
        s = data.sets[at]
        q, k, v, *given = s.tokens
        return chunk(
            *(q, k, v),
            *(gates[at] if gates else given),
            scale=row.scale,
            initial_state=s.state,
            output_final_state=True,
            cu_seqlens=data.cu_seqlens_i64 if row.packed else None,
        )

    return Prepared(launch, row.state_layout)


def _refuse_channels(data: DecodeData | PrefillData) -> None:
    if data.row.by_channel:
        raise NotOffered("only its Gated DeltaNet is compared")


class FlashInfer:
    """flashinfer-python: gates as alpha = exp(g) in f32, states [V, K]."""

    def __init__(self) -> None:
        prefill = importlib.import_module("flashinfer.gdn_prefill")
        decode = importlib.import_module("flashinfer.gdn_decode")
        self._chunk = prefill.chunk_gated_delta_rule
        self._decode = decode.gated_delta_rule_decode_pretranspose
        self._mtp = decode.gated_delta_rule_mtp
        self.name = f"flashinfer-{package_version('flashinfer-python')}"

    def decode(self, data: DecodeData) -> Prepared:
        _refuse_channels(data)
        pool = data.vk_pool()
        outs = [_unwritten(s.v) for s in data.sets]

        def launch(at: int) -> tuple[Tensor, Tensor]:
            s = data.sets[at]
            o, _ = self._decode(
                *(s.q, s.k, s.v, None),
                *(data.A_log, s.a, data.dt_bias, s.b),
                output=outs[at],
                initial_state=pool,
                initial_state_indices=data.slots[at],
            )
            return o, pool

        return Prepared(launch, "vk", _pool_note(data), data.slots)

    def verify(self, data: DecodeData) -> Prepared:
        """Its kernels for f32 states, for bf16 ones, and for these without new states."""
        _refuse_channels(data)
        pool = data.vk_pool()
        outs = [_unwritten(s.v) for s in data.sets]
        keeps = data.row.stored == "none"
        gates = [(data.A_log, s.a, data.dt_bias, s.b) for s in data.sets]
        wy = None
        if data.row.state_dtype != "f32" and keeps:
            kernels = importlib.import_module("flashinfer.gdn_kernels")
            wy = kernels.gated_delta_rule_mtp_wy_output_only

        def launch(at: int) -> tuple[Tensor, Tensor]:
            s, slots = data.sets[at], data.slots[at]
            a_log, a, dt_bias, b = gates[at]
            if wy is not None:
                wy(
                    A_log=a_log,
                    a=a,
                    dt_bias=dt_bias,
                    q=s.q,
                    k=s.k,
                    v=s.v,
                    b=b,
                    initial_state_source=pool,
                    initial_state_indices=slots,
                    disable_state_update=True,
                    output=outs[at],
                )
            elif data.row.state_dtype == "f32":
                self._mtp(
                    *(s.q, s.k, s.v, pool, slots),
                    *gates[at],
                    output=outs[at],
                    disable_state_update=keeps,
                )
            else:
                self._decode(
                    *(s.q, s.k, s.v, None),
                    *gates[at],
                    output=outs[at],
                    initial_state=pool,
                    initial_state_indices=slots,
                    disable_state_update=keeps,
                )
            return outs[at], pool

        note = _pool_note(data) + (", its WY form" if wy is not None else "")
        return Prepared(launch, "vk", note, data.slots)

    def prefill(self, data: PrefillData) -> Prepared:
        _refuse_channels(data)
        row = data.row
        gates = [(s.g[0].float().exp(), s.beta[0].float()) for s in data.sets]
        starts = [
            None if s.state is None else s.state.transpose(-1, -2).contiguous() for s in data.sets
        ]
        outs = [_unwritten(s.v[0]) for s in data.sets]
        finals = [_states_like(s.v, len(row.seqlens)) for s in data.sets]
        hints = {}
        if "max_seqlen" in inspect.signature(self._chunk).parameters:  # since 0.7
            hints["max_seqlen"] = max(row.seqlens)

        def launch(at: int) -> tuple[Tensor, Tensor]:
            s = data.sets[at]
            return self._chunk(
                *(s.q[0], s.k[0], s.v[0]),
                *gates[at],
                scale=row.scale,
                initial_state=starts[at],
                output_final_state=True,
                cu_seqlens=data.cu_seqlens,
                output=outs[at],
                output_state=finals[at],
                **hints,
            )

        return Prepared(launch, "vk", "gates as alpha in f32")

    def conv(self, data: ConvData) -> Prepared:
        raise NotOffered("not among its operators of Gated DeltaNet")


class Vllm:
    """vLLM's fused_kda_decode: the convolution, decode and the norm in one launch; and FlashKDA's
    prefill, which vLLM ships in a library of its own.  Of vLLM only these libraries are loaded."""

    HEADS = (12, 24, 48, 96)

    def __init__(self) -> None:
        self._libraries = _vllm_libraries()
        self.name = f"vllm-{package_version('vllm')}"

    def _operators(self, name: str) -> Any:
        """What the library of this name registers."""
        if name not in self._libraries:
            raise NotOffered(f"there is no library of vllm with {name}")
        torch.ops.load_library(str(self._libraries[name]))
        return getattr(torch.ops, name)

    def decode(self, data: DecodeData) -> Prepared:
        row = data.row
        if not (isinstance(data, LayerData) and row.by_channel and row.state_dtype == "f32"):
            raise NotOffered("its kernel has f32 states, the convolution and the norm")
        if row.v_heads not in self.HEADS or row.qk_heads != row.v_heads:
            raise NotOffered(f"its kernel is for {', '.join(map(str, self.HEADS))} heads")
        decode = self._operators("_C").fused_kda_decode
        pool, windows = data.vk_pool(), data.window_pool()
        weight = data.weight.view(3, -1, row.width).transpose(1, 2).contiguous()
        # a, b and o: requests where others have tokens, [1, B, ...].
        rows = [(s.x[:, 0], s.a[:, 0][None], s.b[:, 0][None], s.z[:, 0]) for s in data.sets]
        outs = [_unwritten(s.z[:, 0][None]) for s in data.sets]
        gates = data.gates
        dt_bias = data.dt_bias.flatten()

        def launch(at: int) -> tuple[Tensor, ...]:
            x, a, b, z = rows[at]
            decode(
                *(x, weight, None, windows, a, b),
                *(data.A_log, dt_bias, data.slots[at], pool, outs[at]),
                *(gates["lower_bound"], z, data.norm_weight, NORM_EPS),
            )
            return outs[at], pool, windows

        return Prepared(launch, "vk", _pool_note(data), data.slots)

    def verify(self, data: DecodeData) -> Prepared:
        raise NotOffered("only its decode of whole layers and its prefill are compared")

    def prefill(self, data: PrefillData) -> Prepared:
        row = data.row
        if not isinstance(data, KdaPrefillData):
            raise NotOffered("only its Kimi Delta Attention is compared")
        if not data.bounded:
            raise NotOffered("its kernel's gates have a lower bound")
        flash_kda = self._operators("_flashkda_C")
        count = len(row.seqlens)
        bytes_ = flash_kda.get_workspace_size(row.tokens, row.v_heads, count)
        spaces = [torch.empty(bytes_, dtype=torch.uint8, device=data.device) for _ in data.sets]
        outs = [_unwritten(s.v) for s in data.sets]
        finals = [_states_like(s.v, count) for s in data.sets]
        gates = (data.A_log, data.dt_bias, LOWER_BOUND)

        def launch(at: int) -> tuple[Tensor, Tensor]:
            flash_kda.fwd(
                *data.sets[at].tokens,
                *(row.scale, outs[at], spaces[at], *gates),
                *(None, finals[at], data.cu_seqlens),
                *(None, None),  # checkpoints
            )
            return outs[at], finals[at]

        return Prepared(launch, "vk", "FlashKDA")

    def conv(self, data: ConvData) -> Prepared:
        raise NotOffered("only its decode of whole layers and its prefill are compared")


def _vllm_libraries() -> dict[str, Path]:
    """By what they register: the library of COMPARE_VLLM_LIBRARY and what lies beside it, or the
    installed vLLM's.  Raises ModuleNotFoundError."""
    flash_kda = "_flashkda_C*.so"
    if given := os.environ.get("COMPARE_VLLM_LIBRARY"):
        folders, decode = [Path(given).parent], Path(given).name
    else:
        vllm = importlib.util.find_spec("vllm")  # not imported, which takes long
        folders = [Path(folder) for folder in vllm.submodule_search_locations or []] if vllm else []
        decode = "_C_stable_libtorch*.so"
    found = {
        name: path
        for folder in folders
        for name, pattern in (("_C", decode), ("_flashkda_C", flash_kda))
        for path in folder.glob(pattern)
    }
    if not found:
        raise ModuleNotFoundError("no vllm is installed, and COMPARE_VLLM_LIBRARY names no library")
    return found


class Cudnn:
    """cuDNN's front end: the kernel of its Hopper engine for Kimi Delta Attention, launched as its
    engine does, without its graph.  Gates and beta are computed in it, from a and b in f32."""

    def __init__(self) -> None:
        self._host = importlib.import_module("cudnn.linear_attention.hopper.cuda_host")
        self.name = f"cudnn-{package_version('nvidia-cudnn-frontend')}"

    def decode(self, data: DecodeData) -> Prepared:
        raise NotOffered("only its prefill is compared")

    verify = decode

    def prefill(self, data: PrefillData) -> Prepared:
        if not isinstance(data, KdaPrefillData):
            raise NotOffered("only its Kimi Delta Attention is compared")
        if not data.bounded:
            raise NotOffered("gates that its kernel computes have a lower bound")
        host = self._host
        flags = host.FLAG_L2NORM | host.FLAG_SAFE_GATE | host.FLAG_BETA_SIGMOID
        wide = _in_each_set(data, *(x.float() for x in data.sets[0].tokens[3:]))
        inputs = [(s.q, s.k, *raw) for s, *raw in zip(data.sets, *wide)]
        gates = {
            "a_log": data.A_log.data_ptr(),
            "dt_bias": data.dt_bias.data_ptr(),
            "gate_lower_bound": LOWER_BOUND,
        }
        return self._prepared(data, inputs, flags, gates, "a and b in f32")

    def _prepared(
        self,
        data: KdaPrefillData,
        inputs: list[tuple[Tensor, ...]],
        flags: int,
        gates: dict[str, Any],
        note: str,
    ) -> Prepared:
        """`inputs` of each set: q, k, and what the kernel takes as g and beta."""
        row = data.row
        count = len(row.seqlens)
        device = torch.cuda.current_device()
        outs = [_unwritten(s.v) for s in data.sets]
        finals = [_states_like(s.v, count) for s in data.sets]
        starts = [torch.zeros_like(final) for final in finals]  # it always reads one

        def launch(at: int) -> tuple[Tensor, Tensor]:
            q, k, g, beta = inputs[at]
            self._host.launch(
                device=device,
                stream=current_stream(),
                q=q.data_ptr(),
                k=k.data_ptr(),
                v=data.sets[at].v.data_ptr(),
                g=g.data_ptr(),
                beta=beta.data_ptr(),
                cu_seqlens=data.cu_seqlens.data_ptr(),
                initial_state=starts[at].data_ptr(),
                o=outs[at].data_ptr(),
                final_state=finals[at].data_ptr(),
                total_tokens=row.tokens,
                n_seqs=count,
                n_heads=row.v_heads,
                flags=flags,
                q_scale=row.scale,
                **gates,
            )
            return outs[at], finals[at]

        return Prepared(launch, "vk", f"its kernel alone, {note}")

    def conv(self, data: ConvData) -> Prepared:
        raise NotOffered("only its prefill is compared")


class CudnnOfLogs(Cudnn):
    """The same kernel with g, beta and unit q and k given."""

    def __init__(self) -> None:
        super().__init__()
        self.name = self.name.replace("cudnn", "cudnn-log", 1)

    def prefill(self, data: PrefillData) -> Prepared:
        if not isinstance(data, KdaPrefillData):
            raise NotOffered("only its Kimi Delta Attention is compared")
        q, k, _, g, beta = data.given()
        dtype = data.sets[0].q.dtype
        given = _in_each_set(data, q.to(dtype), k.to(dtype), g.float(), beta.float())
        return self._prepared(
            data, list(zip(*given)), 0, {}, "unit q and k, g and beta in f32 given"
        )


def _in_each_set(data: PrefillData, *tensors: Tensor) -> list[list[Tensor]]:
    """Of each tensor as many copies as there are sets."""
    return [[x] + [x.clone() for _ in data.sets[1:]] for x in tensors]


LOADERS: dict[str, Callable[[], Contender]] = {
    "cubinery": Cubinery,
    "cubinery_gdn": CubineryOfHeads,
    "fla": Fla,
    "flash_qla": FlashQla,
    "flashinfer": FlashInfer,
    "vllm": Vllm,
    "cudnn": Cudnn,
    "cudnn_log": CudnnOfLogs,
}
WITHOUT_CONVOLUTION = ("cubinery_gdn", "flash_qla", "flashinfer", "vllm", "cudnn", "cudnn_log")


def package_version(distribution: str) -> str:
    """The version of an installed distribution, "unknown" for a folder without its metadata."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def offering(only: str | None, names: list[str]) -> list[str]:
    """Those to load for the rows of `--only`: some peers take long to import."""
    return [name for name in names if only != "conv" or name not in WITHOUT_CONVOLUTION]


def load(
    names: list[str], loaders: dict[str, Callable[[], Contender]] = LOADERS
) -> tuple[list[Contender], dict[str, str]]:
    """The contenders that import, in this order, and why the others do not.

    Raises ValueError for a name that is none.
    """
    present, missing = [], {}
    for name in names:
        if name not in loaders:
            raise ValueError(f"contender {name}; accepted: {', '.join(loaders)}")
        try:
            present.append(loaders[name]())
        except Exception as error:  # a peer fails to import in ways of its own
            missing[name] = reason_of(error)
    return present, missing


def reason_of(error: BaseException) -> str:
    """Type and first line of an error, short enough for a table's footnote."""
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
