"""Peers that have Kimi Delta Attention, and FLA's of it."""

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compare.contenders import (
    NotOffered, Prepared, current_stream, package_version, pool_note, states_like, unwritten,
)  # fmt: skip
from compare.data import NORM_EPS, ConvData, DecodeData, KdaPrefillData, LayerData, PrefillData
from compare.rows import DIM, LOWER_BOUND, VerifyRow

Inputs = list[tuple[Tensor, ...]]


def fla_step_kda(data: DecodeData) -> Prepared:
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
    outs = [unwritten(s.v) for s in data.sets]
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
    return Prepared(launch, "vk", pool_note(data), data.slots)


def fla_chunk_kda(data: KdaPrefillData) -> Callable:
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


def _of_channels(data: PrefillData) -> KdaPrefillData:
    if not isinstance(data, KdaPrefillData):
        raise NotOffered("only its Kimi Delta Attention is compared")
    return data


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
        outs = [unwritten(s.z[:, 0][None]) for s in data.sets]
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

        return Prepared(launch, "vk", pool_note(data), data.slots)

    def verify(self, data: DecodeData) -> Prepared:
        raise NotOffered("only its decode of whole layers and its prefill are compared")

    def prefill(self, data: PrefillData) -> Prepared:
        data = _of_channels(data)
        if not data.bounded:
            raise NotOffered("its kernel's gates have a lower bound")
        row = data.row
        flash_kda = self._operators("_flashkda_C")
        count = len(row.seqlens)
        bytes_ = flash_kda.get_workspace_size(row.tokens, row.v_heads, count)
        spaces = [torch.empty(bytes_, dtype=torch.uint8, device=data.device) for _ in data.sets]
        outs = [unwritten(s.v) for s in data.sets]
        finals = [states_like(s.v, count) for s in data.sets]
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
        data = _of_channels(data)
        inputs, flags, gates, note = self._given(data)
        row = data.row
        count = len(row.seqlens)
        device = torch.cuda.current_device()
        outs = [unwritten(s.v) for s in data.sets]
        finals = [states_like(s.v, count) for s in data.sets]
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

    def _given(self, data: KdaPrefillData) -> tuple[Inputs, int, dict[str, Any], str]:
        """Of each set q, k, and what the kernel takes as g and beta; its flags, what it computes gates
        from, and a note."""
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
        return inputs, flags, gates, "a and b in f32"

    def conv(self, data: ConvData) -> Prepared:
        raise NotOffered("only its prefill is compared")


class CudnnOfLogs(Cudnn):
    """The same kernel with g, beta and unit q and k given."""

    def __init__(self) -> None:
        super().__init__()
        self.name = self.name.replace("cudnn", "cudnn-log", 1)

    def _given(self, data: KdaPrefillData) -> tuple[Inputs, int, dict[str, Any], str]:
        q, k, _, g, beta = data.given()
        dtype = data.sets[0].q.dtype
        given = _in_each_set(data, q.to(dtype), k.to(dtype), g.float(), beta.float())
        return list(zip(*given)), 0, {}, "unit q and k, g and beta in f32 given"


def _in_each_set(data: PrefillData, *tensors: Tensor) -> list[list[Tensor]]:
    """Of each tensor as many copies as there are sets."""
    return [[x] + [x.clone() for _ in data.sets[1:]] for x in tensors]
