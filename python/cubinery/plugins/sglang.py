"""SGLang's layers of Gated DeltaNet (Qwen3-Next, Qwen3.5) and of Kimi Delta Attention (Kimi-Linear,
Kimi-K3, GLM-5.3, Ling-3.0) on cubinery.

Tried with SGLang 0.5.23.  The plugin takes the places of two classes, GDNAttnBackend and
KDAAttnBackend, through SGLang's registry of hooks, and of these what they compute.  Decodes are one
launch, with the convolution in front; prefills are a convolution's and a prefill's; of draft tokens
the recurrence is one, behind SGLang's own convolution, whose windows after each draft may overlap
in memory.  Pools, slots, schedules, graphs and what the radix cache keeps stay SGLang's.  ReplaySSM,
trees of drafts and multi-item scoring stay with its kernels.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cubinery._errors import Error, UnsupportedError
from cubinery.plugins import _common
from cubinery.plugins._common import Kernels, Place
from cubinery.plugins._sglang_launches import (
    Served, by_channel, decode, prefill, rows_of, starts_of, verify,
)  # fmt: skip
from cubinery.plugins._sglang_layer import (
    ATTRIBUTES, CONV_UPDATE, EXECUTION, GDN, HOOKS, IS_CUDA, KDA, KDA_CONFIG, KINDS, SEAMS, SHARED,
    STABLE_ROWS, SglangLayer, problems,
)  # fmt: skip

__all__ = ["ATTRIBUTES", "SEAMS", "calls", "plugin", "register"]

plugin = _common.Plugin("SGLang", "SGLang 0.5.23", "sglang.srt.cubinery")
calls = plugin.calls
_PREFILLS = ("prefill", "prefill_kept")


def register() -> None:
    """SGLang calls this in each of its processes, before a model is built; maybe more than once."""
    plugin.register(SHARED, _install)


# ---- A layer -------------------------------------------------------------------------------------


def _describe(
    layer: Any, cache: Any, decay: str, dtype: Any, slots: Any, batch_invariant: bool
) -> SglangLayer:
    """A layer of SGLang (RadixLinearAttention, or what is known of one before there is any), on its
    pools."""
    conv, state = by_channel(decay, cache.conv[0]), cache.temporal
    if layer.num_q_heads != layer.num_k_heads or layer.head_q_dim != layer.head_k_dim:
        raise UnsupportedError("q and k have different heads")
    # SGLang's convolutions of Kimi Delta Attention do not ask.
    activation = "silu" if decay == "channel" else layer.activation
    if activation not in (None, "silu", "swish"):
        raise UnsupportedError(f"hidden_act = {activation!r}; supported: 'silu'")
    short = _common.dtype_short
    steps = getattr(cache, "intermediate_ssm", None)
    strides = conv.stride()
    described = SglangLayer(
        k_heads=layer.num_k_heads,
        v_heads=layer.num_v_heads,
        key_dim=layer.head_k_dim,
        value_dim=layer.head_v_dim,
        dtype=short(dtype),
        a_log_dtype=short(layer.A_log.dtype),
        dt_bias_dtype=short(layer.dt_bias.dtype),
        state_dtype=short(state.dtype),
        conv_width=layer.conv_weights.shape[1],
        conv_weight_dtype=short(layer.conv_weights.dtype),
        conv_state_dtype=short(conv.dtype),
        conv_state_layout="channels" if strides[1] == 1 and strides[2] != 1 else "columns",
        conv_has_bias=layer.bias is not None,
        decay=decay,
        gate_mode="computed" if layer.lower_bound is None else "lower_bound",
        drafts=0 if steps is None else steps.shape[1],
        batch_invariant=batch_invariant,
        activation="none" if activation is None else "silu",
        index_dtype=short(slots),
    )
    context = plugin.context_of(conv.device.index or 0)
    if _common.without_path(context, {"decode": problems(described)["decode"]}):
        return replace(described, joins_conv=False)
    return described


# ---- The back end --------------------------------------------------------------------------------


if TYPE_CHECKING:
    _Behind = Any
else:
    _Behind = object


class CubineryBackend(_Behind):  # type: ignore[misc]
    """What goes in front of SGLang's classes: what they compute on cubinery, else on what is behind."""

    _cubinery_decay: str
    _cubinery_sglang: Any  # what of SGLang it needs
    _cubinery_begun: Kernels | None  # of layers as the pools have them
    _cubinery_served: dict[int, Served | None]

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        self._cubinery_begun = None
        self._cubinery_served = {}
        self._cubinery_invariant = bool(
            self._cubinery_sglang.get_exec().deterministic.enable_deterministic_inference
        )
        try:
            self._cubinery_begin(model_runner)
        except Exception:
            # Other pools or configurations than those of today: the layers say later what they are.
            plugin.log.debug("cubinery's plugin", exc_info=True)

    def _cubinery_begin(self, model_runner: Any) -> None:
        """Operators for layers as the pools have them, before there is a model."""
        pool, sglang, decay = self.req_to_token_pool, self._cubinery_sglang, self._cubinery_decay
        cache = pool.mamba2_layer_cache(next(iter(pool.mamba_map)))
        conv, dtype = by_channel(decay, cache.conv[0]), model_runner.dtype
        heads, value_dim, key_dim = cache.temporal.shape[1:]
        k_heads = (conv.shape[1] - heads * value_dim) // (2 * key_dim)
        kept = sglang.f32 if decay == "channel" else dtype  # what weights are in
        weight = SimpleNamespace(dtype=kept, shape=(conv.shape[1], conv.shape[2] + 1))
        guessed = SimpleNamespace(
            num_q_heads=k_heads, num_k_heads=k_heads, num_v_heads=heads, head_q_dim=key_dim,
            head_k_dim=key_dim, head_v_dim=value_dim, activation="silu", bias=None,
            conv_weights=weight, dt_bias=weight, A_log=SimpleNamespace(dtype=sglang.f32),
            lower_bound=self._cubinery_bound(model_runner),
        )  # fmt: skip
        described = _describe(guessed, cache, decay, dtype, sglang.i32, self._cubinery_invariant)
        self._cubinery_begun = plugin.kernels_of(conv.device.index or 0, described, problems)

    def _cubinery_bound(self, model_runner: Any) -> float | None:
        """The lower bound of a model's gates, as its configuration has it."""
        return None

    def _cubinery_for(self, layer: Any, cache: Any, x: Any) -> Served | None:
        """What serves a layer: known after its first call."""
        if layer.layer_id not in self._cubinery_served:
            served = None
            try:
                served = self._cubinery_prepare(layer, cache, x.dtype)
            except (Error, AttributeError) as error:
                plugin.fall_back("a layer", error)
            self._cubinery_served[layer.layer_id] = served
        return self._cubinery_served[layer.layer_id]

    def _cubinery_prepare(self, layer: Any, cache: Any, dtype: Any) -> Served:
        slots, decay = self.forward_metadata.mamba_cache_indices, self._cubinery_decay
        described = _describe(layer, cache, decay, dtype, slots.dtype, self._cubinery_invariant)
        kernels = plugin.kernels_of(slots.device.index or 0, described, problems).ready()
        can = kernels.able(KINDS, plugin.fall_back)
        served = Served(described, kernels, can, self._cubinery_sglang.f32)
        if "verify" in can:
            self._cubinery_steps(cache, served, described.drafts)
        self._cubinery_rehearse(layer, cache, served, dtype)
        plugin.announce(kernels, described, _common.sizes_asked(max(described.drafts, 1)))
        return served

    def _cubinery_steps(self, cache: Any, served: Served, drafts: int) -> None:
        """Where SGLang keeps the state after each draft: steps of a buffer [rows, steps, ..]."""
        import torch

        buffer = cache.intermediate_ssm
        across, along = buffer.stride()[:2]
        apart, gap = divmod(across, along)
        if gap or apart < drafts:
            raise UnsupportedError(f"rows of steps {across} elements apart, steps {along}")
        like = {"dtype": self.forward_metadata.mamba_cache_indices.dtype, "device": buffer.device}
        rows = torch.arange(buffer.shape[0], **like)[:, None] * apart
        served.steps = rows + torch.arange(drafts, **like)

    def _cubinery_rehearse(self, layer: Any, cache: Any, served: Served, dtype: Any) -> None:
        """Launches what there is on rows of padding, which touch no state: what the pools of this
        engine cannot have is refused now."""
        import torch

        like = self.forward_metadata.mamba_cache_indices
        rows = 1 if served.steps is None else int(served.steps.shape[1])
        heads, channels = layer.num_v_heads, layer.conv_weights.shape[0]
        made = {"dtype": dtype, "device": like.device}
        x = torch.zeros((rows, channels), **made)
        a = torch.zeros((rows, *served.layer.decay_shape), **made)
        b = torch.zeros((rows, heads), **made)
        out = torch.zeros((rows, heads, layer.head_v_dim), **made)
        padding = torch.zeros((1,), dtype=like.dtype, device=like.device) - 1
        bounds = torch.arange(2, dtype=torch.int32, device=like.device)
        has_state = torch.zeros((1,), dtype=torch.bool, device=like.device)
        first = x[:1], a[:1], b[:1], out[:1], padding
        if "decode" in served.can:
            decode(served, layer, cache, *first)
        for kind, starts in zip(_PREFILLS, (None, bounds)):
            if kind in served.can:
                prefill(served, layer, cache, *first, bounds, has_state, starts)
        if "verify" in served.can:
            verify(served, layer, cache, x[None], a[None], b[None], out[None], padding)

    # ---- While it serves ----

    def forward_decode(
        self, layer: Any, forward_batch: Any, mixed_qkv: Any, a: Any, b: Any, **kwargs: Any
    ) -> Any:
        x = mixed_qkv[0] if isinstance(mixed_qkv, tuple) else mixed_qkv
        cache = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        served = self._cubinery_for(layer, cache, x)
        if served is None or "decode" not in served.can or cache.replayssm_d is not None:
            if cache.replayssm_d is not None:
                plugin.fall_back("decoding", "ReplaySSM")
            plugin.left("decode")
            return super().forward_decode(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        z = None
        if isinstance(mixed_qkv, tuple):  # what the projections give, undivided
            ba = mixed_qkv[1]
            width = x.shape[1] - layer.num_v_heads * layer.head_v_dim
            x, z = x[:, :width], x[:, width:].unflatten(-1, (-1, layer.head_v_dim))
            b, a = ba[:, : layer.num_v_heads], ba[:, layer.num_v_heads :]
        count = x.shape[0]
        a, b = rows_of(served, a, b, count)
        slots = self.forward_metadata.mamba_cache_indices
        out = x.new_empty((1, count, layer.num_v_heads, layer.head_v_dim))
        plugin.ran("decode")
        decode(served, layer, cache, x, a, b, out[0], slots[:count])
        self._track_mamba_state_decode(
            forward_batch, cache.conv[0], cache.temporal, slots, layer.layer_id
        )
        return out if z is None else (out, z)

    def forward_extend(
        self, layer: Any, forward_batch: Any, mixed_qkv: Any, a: Any, b: Any, **kwargs: Any
    ) -> Any:
        cache = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        served = self._cubinery_for(layer, cache, mixed_qkv)
        verifies = forward_batch.forward_mode.is_target_verify()
        why = None if served is None else self._cubinery_cannot(served, cache, forward_batch)
        if why:
            plugin.fall_back(KINDS["verify" if verifies else "prefill"].words, why)
        if served is None or why:
            plugin.left("verify" if verifies else "prefill")
            return super().forward_extend(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        tokens = mixed_qkv.shape[0]
        out = kwargs.get("linear_attn_output")  # or it is copied there
        if out is None:
            out = mixed_qkv.new_empty((1, tokens, layer.num_v_heads, layer.head_v_dim))
        given = mixed_qkv, *rows_of(served, a, b, tokens), out[0]
        if verifies:
            plugin.ran("verify")
            drafts = forward_batch.spec_info.draft_token_num
            self._cubinery_verify(served, layer, cache, drafts, *given)
            return out
        plugin.ran("prefill")
        count = self.forward_metadata.logical_num_tokens
        if count is not None and count < tokens:  # those behind are of no sequence
            out[:, count:].zero_()
            given = tuple(each[:count] for each in given)
        self._cubinery_extend(served, layer, cache, forward_batch, *given)
        return out

    def _cubinery_cannot(self, served: Served, cache: Any, forward_batch: Any) -> str:
        """Why a batch stays with SGLang's kernels, or nothing."""
        verifies = forward_batch.forward_mode.is_target_verify()
        why = self._cubinery_left(forward_batch, verifies)
        if why:
            return why
        if not verifies:
            return "" if served.can.issuperset(_PREFILLS) else "it cannot"
        metadata = self.forward_metadata
        if metadata.retrieve_next_token is not None or metadata.retrieve_parent_token is not None:
            return "drafts are a tree"
        if cache.replayssm_rawv is not None or cache.replayssm_d is not None:
            return "ReplaySSM"
        if self._cubinery_sglang.pp_spec_stable_rows_enabled():
            return "rows of requests, with pipelines"
        return "" if "verify" in served.can else "it cannot"

    def _cubinery_left(self, forward_batch: Any, verifies: bool) -> str:
        """Likewise, of what the class behind alone has."""
        raise NotImplementedError

    def _cubinery_verify(
        self, served: Served, layer: Any, cache: Any, drafts: int, x: Any, a: Any, b: Any, out: Any
    ) -> None:
        lead, decay = (x.shape[0] // drafts, drafts), served.layer.decay
        slots = self.forward_metadata.mamba_cache_indices[: lead[0]]
        activation = None if served.layer.activation == "none" else "silu"
        convolved = self._cubinery_sglang.conv_update(
            x.unflatten(0, lead).transpose(1, 2), by_channel(decay, cache.conv[0]),
            layer.conv_weights, layer.bias, activation, conv_state_indices=slots,
            intermediate_conv_window=by_channel(decay, cache.intermediate_conv_window[0]),
            intermediate_state_indices=self.verify_intermediate_state_indices[: lead[0]],
        )  # fmt: skip
        a, b, out = (each.unflatten(0, lead) for each in (a, b, out))
        verify(served, layer, cache, convolved.transpose(1, 2), a, b, out, slots)

    def _cubinery_extend(
        self, served: Served, layer: Any, cache: Any, forward_batch: Any, x: Any, a: Any, b: Any,
        out: Any,
    ) -> None:  # fmt: skip
        metadata = self.forward_metadata
        tracks = metadata.has_mamba_track_mask
        if tracks:  # windows for the radix cache
            windows = by_channel(served.layer.decay, cache.conv[0])
            last = x[metadata.track_conv_indices].transpose(1, 2)
            windows[metadata.conv_states_mask_indices] = last
        bounds = metadata.query_start_loc
        count = bounds.shape[0] - 1
        has_state, starts = self._cubinery_shared(metadata, forward_batch)
        kept = prefill(
            served, layer, cache, x, a, b, out, metadata.mamba_cache_indices[:count], bounds,
            has_state, starts,
        )  # fmt: skip
        if tracks:
            self._track_mamba_state_extend(forward_batch, kept, cache.temporal, metadata)

    def _cubinery_shared(self, metadata: Any, forward_batch: Any) -> tuple[Any, Any]:
        """What the layers of a batch share, made by the first of them: which sequences have a state,
        and where the checkpoints of each begin, if some are kept.  In a graph each makes its own.
        """
        is_captured = self._cubinery_sglang.is_captured()
        shared: tuple[Any, Any] | None = metadata.__dict__.get("_cubinery")
        if shared is None or is_captured:
            bounds = metadata.query_start_loc
            has_state = forward_batch.extend_prefix_lens[: bounds.shape[0] - 1] > 0
            starts = None
            if metadata.has_mamba_track_mask and metadata.track_ssm_h_src.numel() > 0:
                starts = starts_of(bounds)
            shared = has_state, starts
            if not is_captured:
                metadata._cubinery = shared
        return shared


class GdnBackend(CubineryBackend):
    """Of Gated DeltaNet."""

    _cubinery_decay = "head"

    def _cubinery_left(self, forward_batch: Any, verifies: bool) -> str:
        return "" if self.mis_metadata is None else "multi-item scoring"


class KdaBackend(CubineryBackend):
    """Of Kimi Delta Attention."""

    _cubinery_decay = "channel"

    def _cubinery_bound(self, model_runner: Any) -> float | None:
        config = self._cubinery_sglang.kda_config(model_runner.model_config)
        if getattr(config, "kda_safe_gate", False):  # Ling
            return float(config.kda_lower_bound)
        attention = getattr(config, "linear_attn_config", None) or {}
        bound: float | None = attention.get("gate_lower_bound")
        return bound

    def _cubinery_prepare(self, layer: Any, cache: Any, dtype: Any) -> Served:
        if self.accept_lens_pool is not None:
            raise UnsupportedError("states are where FlashInfer's verification has them")
        return super()._cubinery_prepare(layer, cache, dtype)

    def _cubinery_left(self, forward_batch: Any, verifies: bool) -> str:
        if verifies and forward_batch.spec_info.ragged_verify_layout is not None:
            return "requests have different numbers of drafts"
        if not verifies and self.prefill_graph_metadata is not None:
            return "they are in its CUDA graphs"
        return ""

    def supports_prefill_graph_extend(self) -> bool:
        """Whether graphs of prefills have these layers' kernels in them, SGLang's own then.  In a
        graph it is not known how many sequences there are, by which a prefill is chosen."""
        begun = self._cubinery_begun
        if begun and begun.ready().able(KINDS, plugin.fall_back).issuperset(_PREFILLS):
            return False
        return bool(super().supports_prefill_graph_extend())


# ---- The seam ------------------------------------------------------------------------------------


def _install() -> None:
    if not _common.seam(IS_CUDA)():
        return
    plugin.take(GDN, lambda: _put_in_front(GdnBackend, GDN))
    plugin.take(KDA, lambda: _put_in_front(KdaBackend, KDA, kda_config=_common.seam(KDA_CONFIG)))


def _put_in_front(ours: type[CubineryBackend], place: Place, **more: Any) -> None:
    import torch

    needed = SimpleNamespace(
        get_exec=_common.seam(EXECUTION),
        pp_spec_stable_rows_enabled=_common.seam(STABLE_ROWS),
        f32=torch.float32,
        i32=torch.int32,
        conv_update=_common.seam(CONV_UPDATE),
        is_captured=torch.cuda.is_current_stream_capturing,
        **more,
    )
    behind = _common.seam(place.path)
    made = type(f"Cubinery{behind.__name__}", (ours, behind), {"_cubinery_sglang": needed})
    kind = _common.seam(f"{HOOKS}:HookType.REPLACE")
    _common.seam(f"{HOOKS}:HookRegistry").register(place.path.replace(":", "."), made, kind)
