"""The core of vLLM's layers on cubinery, whatever their recurrence: what is made while the engine
starts, and what is launched for a batch.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from cubinery._core import version
from cubinery._errors import Error
from cubinery.plugins import _common, _launches
from cubinery.plugins._common import Kernels, Place, Plugin
from cubinery.plugins._vllm_layer import (
    KINDS, NORMS, NULL_BLOCK, Pools, Step, VllmLayer, problems, step_of, supported,
)  # fmt: skip
from cubinery.plugins._vllm_places import METADATA, UTILS

if TYPE_CHECKING:
    _Behind = Any
else:
    _Behind = object


class Core(_Behind):  # type: ignore[misc]
    """What goes in front of one of vLLM's classes of layers: its core on cubinery, else on what is
    behind.

    Each class of layers has its own, which says what a layer is like (`_cubinery_describe()`), what
    launches take of it, and which methods of vLLM's class the core is in.
    """

    _cubinery_place: ClassVar[Place]
    _cubinery_breaks: ClassVar[
        tuple[str, ...]
    ] = ()  # methods that no piecewise graph may have inside
    _cubinery_padding: ClassVar[dict[str, Any]] = {}
    _cubinery_plugin: ClassVar[Plugin]
    _cubinery_vllm: Any  # what of vLLM it needs
    _cubinery_layer: VllmLayer
    _cubinery_kernels: Kernels | None = None
    _cubinery_operators: dict[str, Any]
    _cubinery_pdl: bool  # whether a launch may overlap the convolution in front of it
    kv_cache: Any
    _cubinery_can: frozenset[str] = frozenset()  # kinds of work
    _cubinery_owes: bool = False  # vLLM a prefill, because it has work of its own

    def __init__(self, config: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, vllm_config, *args, **kwargs)
        self._cubinery_config = vllm_config
        try:
            device = self._cubinery_vllm.current_device()
            context = self._cubinery_plugin.context_of(device)
            layer = self._cubinery_layer = supported(context, self._cubinery_describe())
            self._cubinery_kernels = self._cubinery_plugin.kernels_of(device, layer, problems)
        except (Error, AttributeError) as error:
            self._cubinery_refuse("a layer", error)
            return
        self._cubinery_begin()
        self._cubinery_mark_graphs()

    def _cubinery_mark_graphs(self) -> None:
        """What vLLM keeps of compiled graphs is not for layers of another kind."""
        config = self._cubinery_config.additional_config
        if isinstance(config, dict):
            config.setdefault("cubinery", f"{version()} {self._cubinery_layer.output_norm}")

    def _cubinery_refuse(self, what: str, why: object) -> None:
        must = "VLLM_BATCH_INVARIANT" if self._cubinery_vllm.envs.VLLM_BATCH_INVARIANT else ""
        self._cubinery_plugin.fall_back(what, why, must and f"{must} is set")

    # ---- What a class of layers says ----

    @classmethod
    def _cubinery_find(cls) -> SimpleNamespace:
        """What of vLLM layers need while they serve."""
        import torch

        backend = _common.seam(f"{METADATA}:GDNAttentionBackend")

        def supports_batch_invariance(cls: Any) -> bool:
            return True

        return SimpleNamespace(
            envs=_common.seam("vllm.envs"),
            f32=torch.float32,
            current_device=torch.cuda.current_device,
            get_forward_context=_common.seam("vllm.forward_context:get_forward_context"),
            is_conv_state_dim_first=_common.seam(f"{UTILS}:is_conv_state_dim_first"),
            invariant_backend=type(
                "CubineryGDNBackend", (backend,),
                {"supports_batch_invariance": classmethod(supports_batch_invariance)},
            ),
        )  # fmt: skip

    def _cubinery_describe(self) -> VllmLayer:
        raise NotImplementedError

    def _cubinery_begin(self) -> None:
        """What else a layer needs whose kernels are in the making."""

    def _cubinery_finish(self) -> None:
        """What it needs as soon as they are there."""

    def _cubinery_weight(self) -> Any:
        """Of the convolution, [channels, width]."""
        weight = self.conv1d.weight
        return weight.view(weight.size(0), weight.size(2))

    def _cubinery_gates(self) -> dict[str, Any]:
        """What decays are computed from, as launches take it."""
        return {"A_log": self.A_log, "dt_bias": self.dt_bias}

    def _cubinery_norm(self) -> tuple[Any, float]:
        """The norm behind the recurrence, and its epsilon."""
        raise NotImplementedError

    def _cubinery_norm_behind(self, out: Any, z: Any) -> None:
        """vLLM's own, in place."""
        raise NotImplementedError

    def _cubinery_layer_of(self, weight: Any, **own: Any) -> VllmLayer:
        """With what all classes of layers say alike.

        Args:
            weight: a convolution's.
        """
        short = _common.dtype_short
        conv_dtype, state_dtype = self.get_state_dtype()[:2]
        dims_first = self._cubinery_vllm.is_conv_state_dim_first()
        return VllmLayer(
            dtype=short(self.model_config.dtype),
            a_log_dtype=short(self.A_log.dtype),
            dt_bias_dtype=short(self.dt_bias.dtype),
            state_dtype=short(state_dtype),
            conv_weight_dtype=short(weight.dtype),
            conv_state_dtype=short(conv_dtype),
            conv_state_layout="columns" if dims_first else "channels",
            drafts=self.num_spec,
            batch_invariant=bool(self._cubinery_vllm.envs.VLLM_BATCH_INVARIANT),
            **own,
        )

    def _cubinery_norm_kind(self) -> str | None:
        """What kernels call the norm; None: they have no such norm inside."""
        norm, _ = self._cubinery_norm()
        short = _common.dtype_short
        dtypes = short(self.model_config.dtype), short(norm.weight.dtype)
        if dtypes not in (("bf16", "bf16"), ("bf16", "f32")):
            return None
        return NORMS.get(norm.activation)

    def _cubinery_with_norm(self, layer: VllmLayer) -> VllmLayer:
        """With the norm in the launches of decode and verify."""
        kind = self._cubinery_norm_kind()
        if kind is None:
            return layer
        norm, _ = self._cubinery_norm()
        dtype = _common.dtype_short(norm.weight.dtype)
        return replace(layer, output_norm=kind, norm_weight_dtype=dtype)

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
        kernels = self._cubinery_kernels = self._cubinery_plugin.kernels_of(
            device, self._cubinery_layer, problems
        ).ready()
        self._cubinery_operators, self._cubinery_pdl = kernels.operators, kernels.has_pdl
        self._cubinery_finish()
        self._cubinery_can = kernels.able(KINDS, self._cubinery_refuse)
        self._cubinery_owes = self._cubinery_leaves()
        drafts = self._cubinery_layer.drafts + 1
        self._cubinery_plugin.announce(kernels, self._cubinery_layer, _common.sizes_asked(drafts))

    def _cubinery_leaves(self) -> bool:
        """Whether some kind of work stays vLLM's, once operators have been waited for."""
        kernels = self._cubinery_kernels
        return kernels is None or bool(kernels.refused) or not self._cubinery_layer.verifies

    def _cubinery_rehearse(self) -> None:
        """Launches what a layer has on rows of padding, which touch no state: what the pools of
        this engine cannot have is refused now, and no kernel is launched for the first time while
        the engine serves."""
        import torch

        layer = self._cubinery_layer
        like = {"device": self.A_log.device}
        ints = {"dtype": torch.int32, **like}
        rows = {"dtype": self.model_config.dtype, **like}
        x = torch.zeros((1, self._cubinery_pools().conv.shape[1]), **rows)
        a, b = torch.zeros((1, *layer.decay_shape), **rows), torch.zeros((1, layer.v_heads), **rows)
        out = torch.zeros((1, layer.v_heads, layer.value_dim), **rows)
        z = torch.zeros((1, layer.v_heads, layer.value_dim), **rows)
        padding = torch.zeros((1,), **ints)
        bounds = torch.arange(2, **ints)
        step = Step(
            tokens=1, kinds=(), slots_decoded=padding, slots=padding, bounds=bounds,
            has_state=torch.zeros((1,), dtype=torch.bool, **like), longest=1,
            verified=(padding[:, None].expand(1, layer.drafts + 1), padding, bounds[1:], bounds),
            kept=(padding[:, None],) * 2 if layer.keeps_states else (),
        )  # fmt: skip
        for kind in sorted(self._cubinery_can):
            launch = getattr(self, f"_cubinery_{kind}")
            launch(x, b, a, z if self._cubinery_norms() else None, out, step)

    def get_attn_backend(self) -> Any:
        # vLLM refuses most of these layers under VLLM_BATCH_INVARIANT; where all their work is
        # cubinery's they hold it.
        kernels = self._cubinery_kernels
        if kernels is None or not self._cubinery_layer.batch_invariant or kernels.ready().refused:
            return super().get_attn_backend()
        try:
            return super().get_attn_backend()
        except RuntimeError:
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
            sequences = self._cubinery_config.scheduler_config.max_num_seqs
            size = prefill.workspace_bytes(x.shape[0], min(sequences, x.shape[0]))
            kept = self._cubinery_layer.outputs(x)
            if size < 1 << 40:
                workspace = torch.empty((size,), dtype=torch.uint8, device=x.device)
                del workspace
            del kept
        return not self._cubinery_leaves()

    # ---- While it serves ----

    def _cubinery_pools(self) -> Pools:
        pools = self.kv_cache
        if type(pools) is not Pools:
            pools = self.kv_cache = Pools.of(pools, self._cubinery_layer)
        return pools

    def _cubinery_norms(self) -> bool:
        """Whether the gated norm is in the launches of decode and verify."""
        return self._cubinery_kernels is not None and self._cubinery_layer.output_norm != "none"

    def _cubinery_run(self, x: Any, b: Any, a: Any, z: Any, out: Any) -> bool:
        """Whether it has done a batch.  False: it has done nothing.

        Args:
            z: gates of the norm; None: that is no part of the core here.
        """
        metadata = self._cubinery_vllm.get_forward_context().attn_metadata
        m = metadata.get(self.prefix) if isinstance(metadata, dict) else None
        if m is None:
            return self._cubinery_profile(x)
        step = step_of(m)
        norms = self._cubinery_norms()
        can = self._cubinery_can.issuperset(step.kinds) and not (norms and z is None)
        if can and self._cubinery_owes and "prefill" in step.kinds:
            # The first prefill is one of vLLM's warm-up, after which no workspace may grow.  A batch
            # of drafts and others will be vLLM's as a whole: it gets what its prefill needs now.
            self._cubinery_owes = can = False
        if not can:
            self._cubinery_plugin.left("+".join(step.kinds))
            return False
        self._cubinery_plugin.ran(*step.kinds)
        n = step.tokens
        x, b, a, out, z = x[:n], b[:n], a[:n], out[:n], None if z is None else z[:n]
        self._cubinery_serve(x, b, a, z if norms else None, out, step)
        if z is not None and not norms:
            self._cubinery_norm_behind(out, z)
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
        """Drafts between other tokens: each sort is gathered, as vLLM does it, unless it lies
        together."""
        for rows in (step.drafts, step.others):
            if isinstance(rows, slice):
                x_, b_, a_, part = (each[rows] for each in (x, b, a, out))
                z_ = None if z is None else z[rows]
            else:
                x_, b_, a_ = (each.index_select(0, rows) for each in (x, b, a))
                z_ = None if z is None else z.index_select(0, rows)
                part = out.new_empty((rows.shape[0], *out.shape[1:]))
            if rows is step.drafts:
                self._cubinery_verify(x_, b_, a_, z_, part, step)
            elif step.decoded > 0:
                self._cubinery_decode(x_, b_, a_, z_, part, step)
            else:
                self._cubinery_prefill(x_, b_, a_, z_, part, step)
            if not isinstance(rows, slice):
                out.index_copy_(0, rows, part)

    def _cubinery_normed(self, z: Any) -> dict[str, Any]:
        if z is None:
            return {}
        norm, epsilon = self._cubinery_norm()
        return {"z": z, "norm_weight": norm.weight, "norm_eps": epsilon}

    def _cubinery_decode(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        pools = self._cubinery_pools()
        _launches.decode(
            self._cubinery_operators, self._cubinery_layer, x, self._cubinery_weight(), None,
            pools.window, step.slots_decoded, NULL_BLOCK, self._cubinery_pdl,
            g=a, beta=b, out=out, state=pools.state,
            **self._cubinery_padding, **self._cubinery_gates(), **self._cubinery_normed(z),
        )  # fmt: skip

    def _cubinery_prefill(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        operators = self._cubinery_operators
        pools = self._cubinery_pools()
        q, k, v = self._cubinery_layer.outputs(x)
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
        g, beta, by_conv, by_prefill = _launches.prefill_gates(
            self._cubinery_layer, a, b, self._cubinery_gates(), self._cubinery_vllm.f32
        )
        operators[conv](
            x, self._cubinery_weight(), q=q, k=k, v=v, state=pools.window, **by_conv, **windows,
            **shared,
        )  # fmt: skip
        operators[prefill](
            q, k, v, g, beta, out=out, state=pools.state, enable_pdl=self._cubinery_pdl,
            **by_prefill, **states, **shared,
        )  # fmt: skip
        if z is not None:
            self._cubinery_norm_behind(out, z)

    def _cubinery_verify(self, x: Any, b: Any, a: Any, z: Any, out: Any, step: Step) -> None:
        operators = self._cubinery_operators
        pools = self._cubinery_pools()
        slots, first, accepted, bounds = step.verified
        q, k, v = self._cubinery_layer.outputs(x)
        shared = {"accepted": accepted, "cu_seqlens": bounds, "pad_slot_id": NULL_BLOCK}
        operators["conv_verify"](
            x, self._cubinery_weight(), q=q, k=k, v=v, state=pools.conv, state_indices=first,
            **shared,
        )  # fmt: skip
        operators["verify"](
            q, k, v, a, b, out=out, state=pools.state, state_indices=slots,
            enable_pdl=self._cubinery_pdl, **shared, **self._cubinery_gates(),
            **self._cubinery_normed(z),
        )  # fmt: skip
