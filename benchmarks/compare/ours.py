"""cubinery's operators, and the yardstick that they are beside rows with decays of channels."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compare.contenders import (
    NotOffered, Outputs, Prepared, current_stream, pool_note, states_like, unwritten, windows_of,
)  # fmt: skip
from compare.data import NORM_EPS, ConvData, DecodeData, LayerData, PrefillData
from compare.record import OURS, YARDSTICK
from compare.rows import DIM, DecodeRow, KdaPrefillRow


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
        outs = [unwritten(each.get("v", each.get("z"))) for each in rows]

        def launch(at: int) -> tuple[Tensor, ...]:
            operator(
                **rows[at],
                **fixed,
                out=outs[at],
                state_indices=data.slots[at],
                stream=current_stream(),
            )
            return outs[at], *states

        return Prepared(launch, "vk", pool_note(data), data.slots)

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
        outs = [unwritten(s.v) for s in data.sets]
        finals = [states_like(s.v, count) for s in data.sets]

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
        states = windows_of(data)

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
