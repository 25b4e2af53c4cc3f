"""SGLang's Gated DeltaNet layers (Qwen3-Next, Qwen3.5) on cubinery.

Tried with SGLang 0.5.23.  The plugin takes the place of one class, GDNAttnBackend, through SGLang's
registry of hooks, and of that class what it computes.  Decodes are one launch, with the convolution
in front; prefills are two; of draft tokens the recurrence is one, behind SGLang's own convolution,
whose windows after each draft overlap in memory.  Pools, slots, schedules, graphs and what the radix
cache keeps stay SGLang's.  ReplaySSM, trees of drafts and multi-item scoring stay with its kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cubinery._errors import Error, UnsupportedError
from cubinery.plugins import _common
from cubinery.plugins._common import Kernels
from cubinery.plugins._sglang_layer import (
    ATTRIBUTES, CHUNK, CLASS, GDN, HOOKS, KINDS, PAD, SEAMS, SglangLayer, problems,
)  # fmt: skip

__all__ = ["ATTRIBUTES", "SEAMS", "calls", "plugin", "register"]

plugin = _common.Plugin("SGLang", "SGLang 0.5.23", "sglang.srt.cubinery")
calls = plugin.calls
_MOST_DRAFTS = 16


def register() -> None:
    """SGLang calls this in each of its processes, before a model is built; maybe more than once."""
    plugin.register(SEAMS, _install)


# ---- A layer -------------------------------------------------------------------------------------


def _describe(layer: Any, cache: Any, slots: Any, batch_invariant: bool) -> SglangLayer:
    """A layer of SGLang (RadixLinearAttention, or what is known of one before there is any), on its
    pools."""
    conv, state = cache.conv[0], cache.temporal
    if layer.num_q_heads != layer.num_k_heads or layer.head_q_dim != layer.head_k_dim:
        raise UnsupportedError("q and k have different heads")
    if layer.activation not in (None, "silu", "swish"):
        raise UnsupportedError(f"hidden_act = {layer.activation!r}; supported: 'silu'")
    short = _common.dtype_short
    steps = getattr(cache, "intermediate_ssm", None)
    strides = conv.stride()
    described = SglangLayer(
        k_heads=layer.num_k_heads,
        v_heads=layer.num_v_heads,
        key_dim=layer.head_k_dim,
        value_dim=layer.head_v_dim,
        dtype=short(layer.conv_weights.dtype),
        a_log_dtype=short(layer.A_log.dtype),
        dt_bias_dtype=short(layer.dt_bias.dtype),
        state_dtype=short(state.dtype),
        conv_width=layer.conv_weights.shape[1],
        conv_weight_dtype=short(layer.conv_weights.dtype),
        conv_state_dtype=short(conv.dtype),
        conv_state_layout="channels" if strides[1] == 1 and strides[2] != 1 else "columns",
        conv_has_bias=layer.bias is not None,
        drafts=0 if steps is None else steps.shape[1],
        batch_invariant=batch_invariant,
        activation="none" if layer.activation is None else "silu",
        index_dtype=short(slots),
    )
    context = plugin.context_of(conv.device.index or 0)
    if _common.without_path(context, {"decode": problems(described)["decode"]}):
        return replace(described, joins_conv=False)
    return described


# ---- The back end --------------------------------------------------------------------------------


@dataclass
class _Served:
    """What serves a layer."""

    kernels: Kernels
    can: frozenset[str]  # kinds of work
    f32: Any  # torch's
    steps: Any = None  # [rows, steps]: the slots of steps in the pool that they are


if TYPE_CHECKING:
    _Behind = Any
else:
    _Behind = object


class CubineryBackend(_Behind):  # type: ignore[misc]
    """What goes in front of SGLang's class: what it computes on cubinery, else on what is behind."""

    _cubinery_sglang: Any  # what of SGLang it needs
    _cubinery_served: dict[int, _Served | None]

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        self._cubinery_served = {}
        self._cubinery_invariant = bool(
            self._cubinery_sglang.get_exec().deterministic.enable_deterministic_inference
        )
        try:
            self._cubinery_begin()
        except (Error, AttributeError, StopIteration):
            # Another pool than those of today: the layers say later what they are.
            plugin.log.debug("cubinery's plugin", exc_info=True)

    def _cubinery_begin(self) -> None:
        """Operators for layers as the pools have them, before there is a model."""
        pool = self.req_to_token_pool
        cache = pool.mamba2_layer_cache(next(iter(pool.mamba_map)))
        conv, state = cache.conv[0], cache.temporal
        heads, value_dim, key_dim = state.shape[1:]
        k_heads = (conv.shape[1] - heads * value_dim) // (2 * key_dim)
        weight = SimpleNamespace(dtype=conv.dtype, shape=(conv.shape[1], conv.shape[2] + 1))
        guessed = SimpleNamespace(
            num_q_heads=k_heads, num_k_heads=k_heads, num_v_heads=heads, head_q_dim=key_dim,
            head_k_dim=key_dim, head_v_dim=value_dim, activation="silu", bias=None,
            conv_weights=weight, dt_bias=weight,
            A_log=SimpleNamespace(dtype=self._cubinery_sglang.f32),
        )  # fmt: skip
        described = _describe(guessed, cache, self._cubinery_sglang.i32, self._cubinery_invariant)
        plugin.kernels_of(conv.device.index or 0, described, problems)

    def _cubinery_for(self, layer: Any, cache: Any) -> _Served | None:
        """What serves a layer: known after its first call."""
        if layer.layer_id not in self._cubinery_served:
            served = None
            try:
                served = self._cubinery_prepare(layer, cache)
            except (Error, AttributeError) as error:
                plugin.fall_back("a layer", error)
            self._cubinery_served[layer.layer_id] = served
        return self._cubinery_served[layer.layer_id]

    def _cubinery_prepare(self, layer: Any, cache: Any) -> _Served:
        slots = self.forward_metadata.mamba_cache_indices
        described = _describe(layer, cache, slots.dtype, self._cubinery_invariant)
        kernels = plugin.kernels_of(slots.device.index or 0, described, problems).ready()
        can = kernels.able(KINDS, plugin.fall_back)
        served = _Served(kernels, can, self._cubinery_sglang.f32)
        if "verify" in can:
            self._cubinery_steps(cache, served, described.drafts)
        self._cubinery_rehearse(layer, cache, served)
        plugin.announce(kernels, described, _common.sizes_asked(max(described.drafts, 1)))
        return served

    def _cubinery_steps(self, cache: Any, served: _Served, drafts: int) -> None:
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

    def _cubinery_rehearse(self, layer: Any, cache: Any, served: _Served) -> None:
        """Launches what there is on rows of padding, which touch no state: what the pools of this
        engine cannot have is refused now."""
        import torch

        like = self.forward_metadata.mamba_cache_indices
        rows = 1 if served.steps is None else int(served.steps.shape[1])
        heads, channels = layer.num_v_heads, cache.conv[0].shape[1]
        dtype, device = layer.conv_weights.dtype, like.device
        x = torch.zeros((rows, channels), dtype=dtype, device=device)
        gate = torch.zeros((rows, heads), dtype=dtype, device=device)
        out = torch.zeros((rows, heads, layer.head_v_dim), dtype=dtype, device=device)
        padding = torch.zeros((1,), dtype=like.dtype, device=device) - 1
        bounds = torch.arange(2, dtype=torch.int32, device=device)
        has_state = torch.zeros((1,), dtype=torch.bool, device=device)
        one = slice(0, 1)
        if "decode" in served.can:
            _decode(served, layer, cache, x[one], gate[one], gate[one], out[one], padding)
        for kind in ("prefill", "prefill_kept"):
            if kind in served.can:
                _prefill(
                    served, layer, cache, x[one], gate[one], gate[one], out[one], padding, bounds,
                    has_state, bounds if kind == "prefill_kept" else None,
                )  # fmt: skip
        if "verify" in served.can:
            _verify(served, layer, cache, x[None], gate[None], gate[None], out[None], padding)

    # ---- While it serves ----

    def forward_decode(
        self, layer: Any, forward_batch: Any, mixed_qkv: Any, a: Any, b: Any, **kwargs: Any
    ) -> Any:
        cache = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        served = self._cubinery_for(layer, cache)
        if served is None or "decode" not in served.can or cache.replayssm_d is not None:
            if cache.replayssm_d is not None:
                plugin.fall_back("decoding", "ReplaySSM")
            plugin.left("decode")
            return super().forward_decode(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        z = None
        if isinstance(mixed_qkv, tuple):  # what the projections give, undivided
            qkvz, ba = mixed_qkv
            width = qkvz.shape[1] - layer.num_v_heads * layer.head_v_dim
            mixed_qkv, z = qkvz[:, :width], qkvz[:, width:].unflatten(-1, (-1, layer.head_v_dim))
            b, a = ba[:, : layer.num_v_heads], ba[:, layer.num_v_heads :]
        count = mixed_qkv.shape[0]
        slots = self.forward_metadata.mamba_cache_indices
        out = mixed_qkv.new_empty((1, count, layer.num_v_heads, layer.head_v_dim))
        plugin.ran("decode")
        _decode(served, layer, cache, mixed_qkv, a, b, out[0], slots[:count])
        self._track_mamba_state_decode(
            forward_batch, cache.conv[0], cache.temporal, slots, layer.layer_id
        )
        return out if z is None else (out, z)

    def forward_extend(
        self, layer: Any, forward_batch: Any, mixed_qkv: Any, a: Any, b: Any, **kwargs: Any
    ) -> Any:
        cache = self.req_to_token_pool.mamba2_layer_cache(layer.layer_id)
        served = self._cubinery_for(layer, cache)
        verifies = forward_batch.forward_mode.is_target_verify()
        why = None if served is None else self._cubinery_cannot(served, cache, verifies)
        if why:
            plugin.fall_back(KINDS["verify" if verifies else "prefill"].words, why)
        if served is None or why:
            plugin.left("verify" if verifies else "prefill")
            return super().forward_extend(layer, forward_batch, mixed_qkv, a, b, **kwargs)
        tokens = mixed_qkv.shape[0]
        out = mixed_qkv.new_empty((1, tokens, layer.num_v_heads, layer.head_v_dim))
        a, b = (each.view(tokens, layer.num_v_heads) for each in (a, b))
        if verifies:
            plugin.ran("verify")
            drafts = forward_batch.spec_info.draft_token_num
            self._cubinery_verify(served, layer, cache, mixed_qkv, a, b, out[0], drafts)
        else:
            plugin.ran("prefill")
            self._cubinery_extend(served, layer, cache, forward_batch, mixed_qkv, a, b, out[0])
        return out

    def _cubinery_cannot(self, served: _Served, cache: Any, verifies: bool) -> str:
        """Why a batch stays with SGLang's kernels, or nothing."""
        if self.mis_metadata is not None:
            return "multi-item scoring"
        if not verifies:
            return "" if {"prefill", "prefill_kept"} <= served.can else "it cannot"
        metadata = self.forward_metadata
        if metadata.retrieve_next_token is not None or metadata.retrieve_parent_token is not None:
            return "drafts are a tree"
        if cache.replayssm_rawv is not None or cache.replayssm_d is not None:
            return "ReplaySSM"
        if self._cubinery_sglang.pp_spec_stable_rows_enabled():
            return "rows of requests, with pipelines"
        return "" if "verify" in served.can else "it cannot"

    def _cubinery_verify(
        self, served: _Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, drafts: int
    ) -> None:
        lead = (x.shape[0] // drafts, drafts)
        slots = self.forward_metadata.mamba_cache_indices[: lead[0]]
        convolved = self._cubinery_sglang.conv_update(
            x.unflatten(0, lead).transpose(1, 2), cache.conv[0], layer.conv_weights, layer.bias,
            layer.activation, conv_state_indices=slots,
            intermediate_conv_window=cache.intermediate_conv_window[0],
            intermediate_state_indices=self.verify_intermediate_state_indices[: lead[0]],
        )  # fmt: skip
        a, b, out = (each.unflatten(0, lead) for each in (a, b, out))
        _verify(served, layer, cache, convolved.transpose(1, 2), a, b, out, slots)

    def _cubinery_extend(
        self, served: _Served, layer: Any, cache: Any, forward_batch: Any, x: Any, a: Any, b: Any,
        out: Any,
    ) -> None:  # fmt: skip
        metadata = self.forward_metadata
        tracks = metadata.has_mamba_track_mask
        if tracks:  # windows for the radix cache
            windows = x[metadata.track_conv_indices].transpose(1, 2)
            cache.conv[0][metadata.conv_states_mask_indices] = windows
        bounds = metadata.query_start_loc
        count = bounds.shape[0] - 1
        has_state, starts = self._cubinery_shared(metadata, forward_batch)
        kept = _prefill(
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
                starts = _starts(bounds)
            shared = has_state, starts
            if not is_captured:
                metadata._cubinery = shared
        return shared


# ---- Launches ------------------------------------------------------------------------------------


def _outputs(x: Any, layer: Any, *lead: int) -> tuple[Any, ...]:
    """Room for what a convolution makes of x: q, k and v."""
    return (
        x.new_empty((*lead, layer.num_k_heads, layer.head_k_dim)),
        x.new_empty((*lead, layer.num_k_heads, layer.head_k_dim)),
        x.new_empty((*lead, layer.num_v_heads, layer.head_v_dim)),
    )


def _starts(bounds: Any) -> Any:
    starts = bounds.new_zeros((bounds.shape[0],))
    starts[1:] = ((bounds[1:] - bounds[:-1] + (CHUNK - 1)) // CHUNK).cumsum(0)
    return starts


def _decode(
    served: _Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, slots: Any
) -> None:
    operators = served.kernels.operators
    conv = operators.get("conv_decode")
    if conv is None:
        given = {
            "x": x, "conv_weight": layer.conv_weights, "conv_bias": layer.bias,
            "conv_state": cache.conv[0],
        }  # fmt: skip
    else:
        q, k, v = _outputs(x, layer, x.shape[0])
        # One token of each request: [N, 1, ..].
        conv(
            x[:, None], layer.conv_weights, layer.bias, q=q[:, None], k=k[:, None], v=v[:, None],
            state=cache.conv[0], state_indices=slots, pad_slot_id=PAD,
        )  # fmt: skip
        given = {"q": q, "k": k, "v": v, "enable_pdl": served.kernels.has_pdl}
    operators["decode"](
        g=a, beta=b, A_log=layer.A_log, dt_bias=layer.dt_bias, out=out, state=cache.temporal,
        state_indices=slots, pad_slot_id=PAD, zero_padding=True, **given,
    )  # fmt: skip


def _prefill(
    served: _Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, slots: Any,
    bounds: Any, has_state: Any, starts: Any,
) -> Any:  # fmt: skip
    """Returns the states in front of each 64 tokens of each sequence, [1, ..]; without `starts`,
    where those of each begin, it keeps none."""
    operators = served.kernels.operators
    tokens = x.shape[0]
    q, k, v = _outputs(x, layer, tokens)
    g, beta = (x.new_empty((tokens, layer.num_v_heads), dtype=served.f32) for _ in range(2))
    operators["conv"](
        x, layer.conv_weights, layer.bias, q=q, k=k, v=v, a=a, b=b, A_log=layer.A_log,
        dt_bias=layer.dt_bias, g=g, beta=beta, cu_seqlens=bounds, has_initial_state=has_state,
        state=cache.conv[0], state_indices=slots, pad_slot_id=PAD,
    )  # fmt: skip
    shared = {
        "out": out, "state": cache.temporal, "state_indices": slots, "cu_seqlens": bounds,
        "pad_slot_id": PAD, "zero_padding": True, "enable_pdl": served.kernels.has_pdl,
    }  # fmt: skip
    if starts is None:
        operators["prefill"](q, k, v, g, beta, **shared)
        return None
    # As many rows as there may be: the host does not know how the tokens are shared out.
    rows = tokens // CHUNK + bounds.shape[0] - 1
    kept = cache.temporal.new_empty((rows, *cache.temporal.shape[1:]))
    operators["prefill_kept"](
        q, k, v, g, beta, checkpoints=kept, checkpoint_cu_starts=starts, **shared
    )
    return kept[None]


def _verify(
    served: _Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, slots: Any
) -> None:
    """Chains of drafts, convolved, [N, T, ..]: the states after each of them go to SGLang's buffer,
    which commits those that it accepts."""
    count, drafts = x.shape[:2]
    q, k = layer.q_dim, layer.q_dim + layer.k_dim
    served.kernels.operators["verify"](
        x[:, :, :q].unflatten(-1, (-1, layer.head_q_dim)),
        x[:, :, q:k].unflatten(-1, (-1, layer.head_k_dim)),
        x[:, :, k:].unflatten(-1, (-1, layer.head_v_dim)),
        a, b, A_log=layer.A_log, dt_bias=layer.dt_bias, out=out, state=cache.temporal,
        state_indices=slots, state_out=_pool(cache.intermediate_ssm, served.steps),
        state_out_indices=served.steps[:count, :drafts], pad_slot_id=PAD, zero_padding=True,
    )  # fmt: skip


def _pool(buffer: Any, slots: Any) -> Any:
    """A buffer [rows, steps, ..] as slots [slots, ..]."""
    strides = buffer.stride()
    apart = strides[0] // strides[1]
    count = (buffer.shape[0] - 1) * apart + slots.shape[1]
    return buffer.as_strided((count, *buffer.shape[2:]), strides[1:])


# ---- The seam ------------------------------------------------------------------------------------


def _install() -> None:
    if not _common.seam(f"{GDN}:is_cuda")():
        return
    behind = _common.seam(CLASS)
    import torch

    needed = SimpleNamespace(
        get_exec=_common.seam(f"{GDN}:get_exec"),
        pp_spec_stable_rows_enabled=_common.seam(f"{GDN}:pp_spec_stable_rows_enabled"),
        f32=torch.float32,
        i32=torch.int32,
        conv_update=_common.seam(f"{GDN}:causal_conv1d_update"),
        is_captured=torch.cuda.is_current_stream_capturing,
    )
    ours = type("CubineryGDNBackend", (CubineryBackend, behind), {"_cubinery_sglang": needed})
    hooks = _common.seam(f"{HOOKS}:HookRegistry")
    kind = _common.seam(f"{HOOKS}:HookType.REPLACE")
    hooks.register(CLASS.replace(":", "."), ours, kind)
