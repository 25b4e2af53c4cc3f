"""Peers that have Gated DeltaNet; FLA has Kimi Delta Attention, too."""

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor

from compare.contenders import (
    NotOffered, Outputs, Prepared, package_version, pool_note, states_like, unwritten, windows_of,
)  # fmt: skip
from compare.data import ConvData, DecodeData, KdaPrefillData, LayerData, PrefillData
from compare.peers_kda import fla_chunk_kda, fla_step_kda


class Fla:
    """flash-linear-attention's Triton kernels: the chunked one, for decode the recurrent one, and its
    convolutions, behind which a kernel of our own splits their output."""

    def __init__(self) -> None:
        # With flash_qla or flash_kda installed, FLA would hand them the work: others' kernels.
        os.environ["FLA_FLASH_QLA"] = os.environ["FLA_FLASH_KDA"] = "0"
        # Nor what its tuner has kept of other processes: it may have chosen while something else ran.
        os.environ["FLA_CACHE_RESULTS"] = "0"
        operations = importlib.import_module("fla.ops.gated_delta_rule")
        self._chunk = operations.chunk_gated_delta_rule
        self._recurrent = operations.fused_recurrent_gated_delta_rule
        self.name = f"fla-{importlib.import_module('fla').__version__}"

    def decode(self, data: DecodeData) -> Prepared:
        if isinstance(data, LayerData):
            raise NotOffered("no kernel has the convolution, decode and the norm")
        if data.row.by_channel:
            return fla_step_kda(data)
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
            return _fla_prefill(fla_chunk_kda(data), data)
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
            states = windows_of(data)
            return Prepared(step, "columns", "causal_conv1d_update, then a split")
        return Prepared(whole, "columns", "causal_conv1d, its kernel of the states, then a split")


def _tune_again(kernel: Any) -> None:
    """Lets FLA's tuner choose for this row.  Its key has no number of tokens, so that otherwise what it
    measured first, here or in an earlier process, would stay for all."""
    while not hasattr(kernel, "configs"):  # Triton's heuristics are around the tuner
        kernel = kernel.fn
    kernel.cache.clear()
    kernel.cache_results = False


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
        outs = [unwritten(s.v) for s in data.sets]

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

        return Prepared(launch, "vk", pool_note(data), data.slots)

    def verify(self, data: DecodeData) -> Prepared:
        """Its kernels for f32 states, for bf16 ones, and for these without new states."""
        _refuse_channels(data)
        pool = data.vk_pool()
        outs = [unwritten(s.v) for s in data.sets]
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

        note = pool_note(data) + (", its WY form" if wy is not None else "")
        return Prepared(launch, "vk", note, data.slots)

    def prefill(self, data: PrefillData) -> Prepared:
        _refuse_channels(data)
        row = data.row
        gates = [(s.g[0].float().exp(), s.beta[0].float()) for s in data.sets]
        starts = [
            None if s.state is None else s.state.transpose(-1, -2).contiguous() for s in data.sets
        ]
        outs = [unwritten(s.v[0]) for s in data.sets]
        finals = [states_like(s.v, len(row.seqlens)) for s in data.sets]
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
