"""vLLM's Gated DeltaNet layers (Qwen3-Next, Qwen3.5) on cubinery.

Tried with vLLM 0.33.  The plugin takes the place of one class, QwenGatedDeltaNetAttention, through
vLLM's registry of layers, and of that class the core: what is between the projections.  Decodes are
one launch, with the convolution in front and, where vLLM has it there, the gated norm behind.
Prefills and draft tokens are two.  States, slots, schedules and graphs stay vLLM's.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cubinery._core import version
from cubinery._errors import Error, UnsupportedError
from cubinery.plugins import _common
from cubinery.plugins._common import Kernels
from cubinery.plugins._vllm_layer import (
    ATTRIBUTES, CLASS, GDN, KINDS, METADATA, NORMS, NULL_BLOCK, SEAMS, Pools, Step,
    VllmLayer, problems, step_of, supported,
)  # fmt: skip

__all__ = ["ATTRIBUTES", "SEAMS", "calls", "plugin", "register"]

plugin = _common.Plugin("vLLM", "vLLM 0.33", "vllm.cubinery")
calls = plugin.calls
_FEW = 512  # tokens whose columns are gathered, instead of copied part by part


def register() -> None:
    """vLLM calls this in each of its processes, before a model is built; maybe more than once."""
    plugin.register(SEAMS, _install)


# ---- The layer -----------------------------------------------------------------------------------


if TYPE_CHECKING:
    _Behind = Any
else:
    _Behind = object


class CubineryCore(_Behind):  # type: ignore[misc]
    """What goes in front of vLLM's class of layers: its core on cubinery, else on what is behind."""

    _cubinery_vllm: Any  # what of vLLM it needs
    _cubinery_layer: VllmLayer
    _cubinery_kernels: Kernels | None = None
    _cubinery_operators: dict[str, Any]
    _cubinery_pdl: bool  # whether a launch may overlap the convolution in front of it
    kv_cache: Any
    _cubinery_can: frozenset[str] = frozenset()  # kinds of work

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cubinery_orders: dict[tuple[int, ...], Any] = {}
        try:
            self._cubinery_layer = self._cubinery_describe()
            device = self._cubinery_vllm.current_device()
            self._cubinery_kernels = plugin.kernels_of(device, self._cubinery_layer, problems)
        except (Error, AttributeError) as error:
            self._cubinery_refuse("a layer", error)
            return
        if self._cubinery_takes_gate():
            # vLLM's forward() then leaves the gated norm to the core, in every batch.
            self.enable_fused_gdn_spec_decode = True
            if self.gqa_interleaved_layout:
                self._forward_method = self._cubinery_forward
        self._cubinery_mark_graphs()

    def _cubinery_mark_graphs(self) -> None:
        """What vLLM keeps of compiled graphs is not for layers of another kind."""
        config = self.vllm_config.additional_config
        if isinstance(config, dict):
            config.setdefault("cubinery", f"{version()} {self._cubinery_layer.output_norm}")

    def _cubinery_refuse(self, what: str, why: object) -> None:
        must = "VLLM_BATCH_INVARIANT" if self._cubinery_vllm.envs.VLLM_BATCH_INVARIANT else ""
        plugin.fall_back(what, why, must and f"{must} is set")

    def _cubinery_describe(self) -> VllmLayer:
        if self.activation not in ("silu", "swish"):
            raise UnsupportedError(f"hidden_act = {self.activation!r}; supported: 'silu'")
        short = _common.dtype_short
        conv_dtype, state_dtype = self.get_state_dtype()[:2]
        weight = self.conv1d.weight
        layer = VllmLayer(
            k_heads=self.num_k_heads // self.tp_size,
            v_heads=self.num_v_heads // self.tp_size,
            key_dim=self.head_k_dim,
            value_dim=self.head_v_dim,
            dtype=short(self.model_config.dtype),
            a_log_dtype=short(self.A_log.dtype),
            dt_bias_dtype=short(self.dt_bias.dtype),
            state_dtype=short(state_dtype),
            conv_width=self.conv_kernel_size,
            conv_weight_dtype=short(weight.dtype),
            conv_state_dtype=short(conv_dtype),
            conv_state_layout=(
                "columns" if self._cubinery_vllm.is_conv_state_dim_first() else "channels"
            ),
            drafts=self.num_spec,
            keeps_states=self._checkpoint_alignment is not None,
            batch_invariant=bool(self._cubinery_vllm.envs.VLLM_BATCH_INVARIANT),
        )
        if self._cubinery_takes_gate():
            norm, dtype = NORMS[self.norm.activation], short(self.norm.weight.dtype)
            layer = replace(layer, output_norm=norm, norm_weight_dtype=dtype)
        return supported(plugin.context_of(self._cubinery_vllm.current_device()), layer)

    def _cubinery_takes_gate(self) -> bool:
        """Whether the core is handed z too: by a form of vLLM's forward(), or by ours, where nothing
        compiles the pieces of theirs into one."""
        norm = self.norm
        is_eager = self.vllm_config.compilation_config.mode == 0
        return (
            (not self.gqa_interleaved_layout or is_eager)
            and _common.dtype_short(self.model_config.dtype) == "bf16"
            and _common.dtype_short(norm.weight.dtype) in ("bf16", "f32")
            and norm.activation in NORMS
            and norm.group_size is None
            and bool(norm.norm_before_gate)
        )

    # ---- While the engine starts ----

    def bind_kv_cache(self, kv_cache: Any) -> None:
        super().bind_kv_cache(kv_cache)
        if self._cubinery_kernels is None:
            return
        self._cubinery_prepare()
        try:
            self._cubinery_rehearse()
        except Error as error:
            self._cubinery_can = frozenset()
            self._cubinery_refuse("a layer", error)

    def _cubinery_prepare(self) -> None:
        """Waits for the operators, and says what there is."""
        device = self._cubinery_vllm.current_device()
        kernels = self._cubinery_kernels = plugin.kernels_of(
            device, self._cubinery_layer, problems
        ).ready()
        self._cubinery_operators, self._cubinery_pdl = kernels.operators, kernels.has_pdl
        if self.gqa_interleaved_layout:
            groups = self.num_k_heads // self.tp_size
            self._cubinery_orders = {
                widths: self._cubinery_vllm.order(groups, widths, self.A_log.device)
                for widths in self._cubinery_widths()
            }
        self._cubinery_can = kernels.able(KINDS, self._cubinery_refuse)
        drafts = self._cubinery_layer.drafts + 1
        plugin.announce(kernels, self._cubinery_layer, _common.sizes_asked(drafts))

    def _cubinery_rehearse(self) -> None:
        """Launches what a layer has on rows of padding, which touch no state: what the pools of
        this engine cannot have is refused now, and no kernel is launched for the first time while
        the engine serves."""
        import torch

        like = {"device": self.A_log.device}
        ints = {"dtype": torch.int32, **like}
        channels = self._cubinery_pools().conv.shape[1]
        heads, dim = self._cubinery_layer.v_heads, self._cubinery_layer.value_dim
        x = torch.zeros((1, channels + heads * dim), dtype=self.model_config.dtype, **like)
        gates = torch.zeros((1, 2 * heads), dtype=self.model_config.dtype, **like)
        padding = torch.zeros((1,), **ints)
        bounds = torch.arange(2, **ints)
        step = Step(
            tokens=1, kinds=(), slots_decoded=padding, slots=padding, bounds=bounds,
            has_state=torch.zeros((1,), dtype=torch.bool, **like), longest=1,
            verified=(padding[:, None].expand(1, self.num_spec + 1), padding, bounds[1:], bounds),
            kept=(padding[:, None],) * 2 if self._cubinery_layer.keeps_states else (),
        )  # fmt: skip
        z = self._cubinery_z(x) if self._cubinery_norms() else None
        out = torch.zeros((1, heads, dim), dtype=self.model_config.dtype, **like)
        rows = x[:, :channels], gates[:, :heads], gates[:, heads:], z, out, step
        for kind in sorted(self._cubinery_can):
            getattr(self, f"_cubinery_{kind}")(*rows)

    def get_attn_backend(self) -> Any:
        # vLLM refuses these layers under VLLM_BATCH_INVARIANT; where all their work is cubinery's
        # they hold it.
        kernels = self._cubinery_kernels
        if kernels is None or not self._cubinery_layer.batch_invariant or kernels.ready().refused:
            return super().get_attn_backend()
        return self._cubinery_vllm.invariant_backend

    def _cubinery_profile(self, x: Any) -> bool:
        """While vLLM measures its memory: allocates what a prefill of so many tokens does.  Whether
        vLLM's own kernels need no such thing."""
        import torch

        if self._cubinery_kernels is None:
            return False
        operators = self._cubinery_kernels.ready().operators
        prefill = operators.get("prefill", operators.get("prefill_kept"))
        if prefill is not None:
            sequences = self.vllm_config.scheduler_config.max_num_seqs
            size = prefill.workspace_bytes(x.shape[0], min(sequences, x.shape[0]))
            kept = self._cubinery_outputs(x)
            if size < 1 << 40:
                workspace = torch.empty((size,), dtype=torch.uint8, device=x.device)
                del workspace
            del kept
        return not self._cubinery_kernels.refused

    # ---- While it serves ----

    def _cubinery_pools(self) -> Pools:
        pools = self.kv_cache
        if type(pools) is not Pools:
            pools = self.kv_cache = Pools.of(pools, self._cubinery_layer)
        return pools

    def _cubinery_norms(self) -> bool:
        """Whether the gated norm is in the launches of decode and verify."""
        return self._cubinery_kernels is not None and self._cubinery_layer.output_norm != "none"

    def _forward_core(self, mixed_qkv: Any, b: Any, a: Any, core_attn_out: Any) -> Any:
        if not self._cubinery_run(mixed_qkv, b, a, None, core_attn_out):
            return super()._forward_core(mixed_qkv, b, a, core_attn_out)

    def _forward_core_fused_norm_packed(self, mixed_qkvz: Any, ba: Any, core_attn_out: Any) -> Any:
        b, a = self.split_ba(ba)
        channels = mixed_qkvz.shape[1] - self.value_dim // self.tp_size
        x, z = mixed_qkvz[:, :channels], self._cubinery_z(mixed_qkvz)
        if not self._cubinery_run(x, b, a, z, core_attn_out):
            return super()._forward_core_fused_norm_packed(mixed_qkvz, ba, core_attn_out)

    def _cubinery_forward(self, hidden_states: Any) -> Any:
        """forward() of projections whose heads are groups of q, k, v and z (Qwen3-Next): puts them
        in order in one launch each, or few, where vLLM's takes eight."""
        qkvz, ba = self.in_proj_qkvz(hidden_states)[0], self.in_proj_ba(hidden_states)[0]
        qkvz, ba = map(self._cubinery_ordered, (qkvz, ba), self._cubinery_widths())
        tokens = hidden_states.size(0)
        heads = self.num_v_heads // self.tp_size
        out = hidden_states.new_zeros((tokens, heads, self.head_v_dim))
        self._cubinery_vllm.core(qkvz, ba, out, self._cubinery_vllm.layer_name(self.prefix))
        return self.out_proj(out.flatten(-2))[0]

    def _cubinery_widths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the parts of a group: q, k, v and z; b and a."""
        per_key = self.num_v_heads // self.num_k_heads
        values = per_key * self.head_v_dim
        return (self.head_k_dim, self.head_k_dim, values, values), (per_key, per_key)

    def _cubinery_ordered(self, x: Any, widths: tuple[int, ...]) -> Any:
        """The parts of all groups behind each other: [.., (group, part)] as [.., (part, group)]."""
        groups = self.num_k_heads // self.tp_size
        if x.shape[0] <= _FEW and widths in self._cubinery_orders:
            return x.index_select(1, self._cubinery_orders[widths])
        ordered, at, first = x.new_empty(x.shape), 0, 0
        grouped = x.unflatten(-1, (groups, -1))
        for width in widths:
            part = ordered[:, at : at + groups * width].unflatten(-1, (groups, width))
            part.copy_(grouped[:, :, first : first + width])
            at, first = at + groups * width, first + width
        return ordered

    def _cubinery_z(self, mixed_qkvz: Any) -> Any:
        width = self.value_dim // self.tp_size
        return mixed_qkvz[:, mixed_qkvz.shape[1] - width :].unflatten(-1, (-1, self.head_v_dim))

    def _cubinery_run(self, x: Any, b: Any, a: Any, z: Any, out: Any) -> bool:
        """Whether it has done a batch.  False: it has done nothing."""
        metadata = self._cubinery_vllm.get_forward_context().attn_metadata
        m = metadata.get(self.prefix) if isinstance(metadata, dict) else None
        if m is None:
            return self._cubinery_profile(x)
        step = step_of(m)
        norms = self._cubinery_norms()
        if not self._cubinery_can.issuperset(step.kinds) or (norms and z is None):
            plugin.left("+".join(step.kinds))
            return False
        plugin.ran(*step.kinds)
        n = step.tokens
        x, b, a, out, z = x[:n], b[:n], a[:n], out[:n], None if z is None else z[:n]
        self._cubinery_serve(x, b, a, z if norms else None, out, step)
        if z is not None and not norms:
            self._rms_norm_gated_cuda(out, z, out)
        return True

    def _cubinery_serve(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        if step.drafts is not None:
            return self._cubinery_mixed(x, b, a, z, out, step)
        if step.verified:
            self._cubinery_verify(x, b, a, z, out, step)
        d = step.decoded
        if d == step.tokens:
            return self._cubinery_decode(x, b, a, z, out, step)
        if d > 0:
            self._cubinery_decode(x[:d], b[:d], a[:d], None if z is None else z[:d], out[:d], step)
        if step.slots is not None:
            z = None if z is None else z[d:]
            self._cubinery_prefill(x[d:], b[d:], a[d:], z, out[d:], step)

    def _cubinery_mixed(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        """Drafts between other tokens: each sort is gathered, as vLLM does it."""
        for rows in (step.drafts, step.others):
            x_, b_, a_ = (each.index_select(0, rows) for each in (x, b, a))
            z_ = None if z is None else z.index_select(0, rows)
            part = out.new_empty((rows.shape[0], *out.shape[1:]))
            if rows is step.drafts:
                self._cubinery_verify(x_, b_, a_, z_, part, step)
            else:
                self._cubinery_prefill(x_, b_, a_, z_, part, step)
            out.index_copy_(0, rows, part)

    def _cubinery_weight(self) -> Any:
        weight = self.conv1d.weight
        return weight.view(weight.size(0), weight.size(2))

    def _cubinery_outputs(self, x: Any) -> tuple[Any, ...]:
        """Room for what a convolution makes of x: q, k and v."""
        layer = self._cubinery_layer
        return (
            x.new_empty((x.shape[0], layer.k_heads, layer.key_dim)),
            x.new_empty((x.shape[0], layer.k_heads, layer.key_dim)),
            x.new_empty((x.shape[0], layer.v_heads, layer.value_dim)),
        )

    def _cubinery_norm(self, z: Any) -> dict[str, Any]:
        if z is None:
            return {}
        return {"z": z, "norm_weight": self.norm.weight, "norm_eps": self.layer_norm_epsilon}

    def _cubinery_decode(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        operators = self._cubinery_operators
        pools = self._cubinery_pools()
        weight, slots = self._cubinery_weight(), step.slots_decoded
        conv = operators.get("conv_decode")
        if conv is None:
            given = {"x": x, "conv_weight": weight, "conv_state": pools.window}
        else:
            q, k, v = self._cubinery_outputs(x)
            # One token of each request: [N, 1, ..].
            conv(
                x[:, None], weight, q=q[:, None], k=k[:, None], v=v[:, None], state=pools.window,
                state_indices=slots, pad_slot_id=NULL_BLOCK,
            )  # fmt: skip
            given = {"q": q, "k": k, "v": v, "enable_pdl": self._cubinery_pdl}
        operators["decode"](
            g=a, beta=b, A_log=self.A_log, dt_bias=self.dt_bias, out=out, state=pools.state,
            state_indices=slots, pad_slot_id=NULL_BLOCK, **given, **self._cubinery_norm(z),
        )  # fmt: skip

    def _cubinery_prefill(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        operators = self._cubinery_operators
        pools = self._cubinery_pools()
        q, k, v = self._cubinery_outputs(x)
        gates = (x.shape[0], self._cubinery_layer.v_heads)
        f32 = self._cubinery_vllm.f32
        g, beta = x.new_empty(gates, dtype=f32), x.new_empty(gates, dtype=f32)
        shared = {
            "state_indices": step.slots, "cu_seqlens": step.bounds, "max_seqlen": step.longest,
            "has_initial_state": step.has_state, "pad_slot_id": NULL_BLOCK,
        }  # fmt: skip
        conv, prefill = "conv", "prefill"
        if self._cubinery_layer.keeps_states:
            conv, prefill = "conv_kept", "prefill_kept"
        windows = states = {}
        if step.kept:
            shared["checkpoint_offsets"], shared["checkpoint_slots"] = step.kept
            windows, states = {"checkpoints": pools.window}, {"checkpoints": pools.state}
        operators[conv](
            x, self._cubinery_weight(), q=q, k=k, v=v, a=a, b=b, A_log=self.A_log,
            dt_bias=self.dt_bias, g=g, beta=beta, state=pools.window, **windows, **shared,
        )  # fmt: skip
        operators[prefill](
            q, k, v, g, beta, out=out, state=pools.state, enable_pdl=self._cubinery_pdl, **states, **shared
        )  # fmt: skip
        if z is not None:
            self._rms_norm_gated_cuda(out, z, out)

    def _cubinery_verify(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        operators = self._cubinery_operators
        pools = self._cubinery_pools()
        slots, first, accepted, bounds = step.verified
        q, k, v = self._cubinery_outputs(x)
        shared = {"accepted": accepted, "cu_seqlens": bounds, "pad_slot_id": NULL_BLOCK}
        operators["conv_verify"](
            x,
            self._cubinery_weight(),
            q=q,
            k=k,
            v=v,
            state=pools.conv,
            state_indices=first,
            **shared,
        )
        operators["verify"](
            q, k, v, a, b, A_log=self.A_log, dt_bias=self.dt_bias, out=out, state=pools.state,
            state_indices=slots, enable_pdl=self._cubinery_pdl, **shared,
            **self._cubinery_norm(z),
        )  # fmt: skip


# ---- The seam ------------------------------------------------------------------------------------


def _install() -> None:
    if not _common.seam("vllm.platforms:current_platform").is_cuda():
        return
    behind = _common.seam(CLASS)
    taken = _common.seam("vllm.model_executor.custom_op:op_registry_oot")
    if behind.__name__ in taken:
        raise UnsupportedError(f"{taken[behind.__name__]} has taken the layer's place")
    layer = type("CubineryGatedDeltaNet", (CubineryCore, behind), {"_cubinery_vllm": _vllm()})
    behind.register_oot(name=behind.__name__)(layer)


def _vllm() -> SimpleNamespace:
    """What of vLLM layers need while they serve."""
    import torch

    backend = _common.seam(f"{METADATA}:GDNAttentionBackend")

    def supports_batch_invariance(cls: Any) -> bool:
        return True

    def order(groups: int, widths: tuple[int, ...], device: Any) -> Any:
        """The columns of parts in order, of those that lie in groups."""
        columns: list[int] = []
        first, total = 0, sum(widths)
        for width in widths:
            for group in range(groups):
                columns += range(group * total + first, group * total + first + width)
            first += width
        return torch.tensor(columns, device=device)

    return SimpleNamespace(
        envs=_common.seam("vllm.envs"),
        f32=torch.float32,
        core=_common.seam(f"{GDN}:qwen_gdn_attention_core_fused_norm_packed"),
        layer_name=_common.seam(f"{GDN}:_encode_layer_name"),
        order=order,
        current_device=torch.cuda.current_device,
        get_forward_context=_common.seam("vllm.forward_context:get_forward_context"),
        is_conv_state_dim_first=_common.seam(f"{GDN}:is_conv_state_dim_first"),
        invariant_backend=type(
            "CubineryGDNBackend", (backend,),
            {"supports_batch_invariance": classmethod(supports_batch_invariance)},
        ),
    )  # fmt: skip
