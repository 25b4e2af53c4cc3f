"""What of vLLM its plugin works on: a layer with its problems, a batch, the pools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cubinery._context import Context
from cubinery._problem import Problem
from cubinery.plugins import _common
from cubinery.plugins._common import Kind, Layer
from cubinery.problems import ConvProblem, DecodeProblem, PrefillProblem, VerifyProblem

NULL_BLOCK = 0  # the slot of rows of padding
CHUNK = 64  # what the tokens in front of a state inside a prefill are a multiple of
NORMS = {"silu": "gated_rms", "swish": "gated_rms", "sigmoid": "sigmoid_gated_rms"}


# ---- A layer -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VllmLayer(Layer):
    """A layer as vLLM has it."""

    output_norm: str = "none"  # what is behind the recurrence, in its launch
    norm_weight_dtype: str = "f32"
    keeps_states: bool = False  # inside a prefill, for prefix caching
    verifies: bool = True  # drafts, where there are any

    @property
    def norm(self) -> dict[str, Any]:
        if self.output_norm == "none":
            return {}
        return {"output_norm": self.output_norm, "norm_weight_dtype": self.norm_weight_dtype}

    @property
    def decodes_in_one_launch(self) -> bool:
        """That takes windows without gaps, which those of columns have beside drafts'."""
        has_gaps = self.drafts > 0 and self.conv_state_layout == "columns"
        return self.joins_conv and not has_gaps


def problems(layer: VllmLayer) -> dict[str, Problem[Any]]:
    """What a layer launches, by the names of its forms: all of it, and nothing else."""
    decode = DecodeProblem(**layer.heads, **layer.gates, **layer.states, **layer.norm)
    conv = ConvProblem(**layer.conv, **layer.gates_of_conv, varlen=True)
    prefill = PrefillProblem(**layer.heads, **layer.gates_of_prefill, **layer.states, varlen=True)
    found: dict[str, Problem[Any]]
    if layer.keeps_states:  # where a launch has none to keep, too
        prefill = replace(prefill, checkpoints="at", checkpoint_every=CHUNK)
        found = {"conv_kept": replace(conv, checkpoints="at"), "prefill_kept": prefill}
    else:
        found = {"conv": conv, "prefill": prefill}
    if layer.decodes_in_one_launch:
        found["decode"] = replace(decode, **layer.conv_of_decode)
    else:
        found["decode"] = decode
        found["conv_decode"] = ConvProblem(**layer.conv)
    if layer.drafts > 0 and layer.verifies:
        found["conv_verify"] = ConvProblem(**layer.conv, varlen=True, from_accepted=True)
        found["verify"] = VerifyProblem(
            **layer.heads, **layer.gates, **layer.states, **layer.norm, varlen=True,
            draft_tokens=layer.drafts + 1, stored_states="every", from_accepted=True,
        )  # fmt: skip
    return found


@cache
def supported(context: Context, layer: VllmLayer) -> VllmLayer:
    """With the convolution and the norm in launches of their own where no kernel has them inside.
    The norm is then vLLM's."""
    plain = replace(layer, output_norm="none")
    wished = (layer, replace(layer, joins_conv=False), plain, replace(plain, joins_conv=False))
    return min(wished, key=lambda each: len(_common.without_path(context, problems(each))))


KINDS = {
    "decode": Kind("decoding", ("conv_decode", "decode")),
    "prefill": Kind("prefill", ("conv", "prefill", "conv_kept", "prefill_kept")),
    "verify": Kind("the verification of drafts", ("conv_verify", "verify")),
}


# ---- A batch -------------------------------------------------------------------------------------


@dataclass
class Step:
    """What the layers of a batch share: its kinds of work, and views of vLLM's metadata."""

    tokens: int
    kinds: tuple[str, ...]
    decoded: int = 0  # so many tokens, in front of those that are prefilled
    slots_decoded: Any = None
    slots: Any = None  # of what is prefilled
    bounds: Any = None
    has_state: Any = None
    longest: int | None = None
    verified: tuple[Any, ...] = ()  # slots of steps, first slots, accepted, bounds
    drafts: Any = None  # which tokens are drafts, and which are not, where a batch has both
    others: Any = None
    kept: tuple[Any, ...] = ()  # of each prefill a state inside: its offset, its slot

    @classmethod
    def of(cls, m: Any) -> Step:
        step = cls(tokens=m.num_actual_tokens, kinds=(), decoded=m.num_decode_tokens)
        if m.num_spec_decodes > 0:
            step._verify(m)
        elif m.num_prefills == 0:
            step.decoded = step.tokens  # with padding
        if step.decoded > 0:
            step.kinds += ("decode",)
            step.slots_decoded = m.non_spec_state_indices_tensor[: step.decoded]
        if m.num_prefills > 0:
            step._prefill(m)
        return step

    def _verify(self, m: Any) -> None:
        count = m.num_spec_decodes
        slots = m.spec_state_indices_tensor[:count]
        bounds = m.spec_query_start_loc[: count + 1]
        self.kinds += ("verify",)
        self.verified = (slots, slots[:, 0], m.num_accepted_tokens[:count], bounds)
        others = m.num_prefill_tokens + m.num_decode_tokens
        if others == 0:
            return
        first = getattr(m, "spec_token_start", None)
        if first is None:
            self.drafts, self.others = m.spec_token_indx, m.non_spec_token_indx
        else:  # both lie together
            behind = m.non_spec_token_start
            self.drafts = slice(first, first + m.num_spec_decode_tokens)
            self.others = slice(behind, behind + others)

    def _prefill(self, m: Any) -> None:
        count, front = m.num_prefills, m.num_decodes
        rows = slice(front, front + count)
        if m.prefill_query_start_loc is not None:
            self.bounds = m.prefill_query_start_loc[: count + 1]
            self.slots = m.prefill_state_indices[:count]
            self.has_state = m.prefill_has_initial_state[:count]
        else:  # Kimi-K3's are of the decodes in front, too
            self.bounds = m.non_spec_query_start_loc[front : front + count + 1]
            if front > 0:
                self.bounds = self.bounds - m.num_decode_tokens
            self.slots = m.non_spec_state_indices_tensor[rows]
            self.has_state = m.has_initial_state[rows]
        if m.nums_dict is not None:  # of each sequence its blocks of 8 tokens, on the host
            blocks = int(m.nums_dict[8]["nums"].max())
            self.longest = max(1, min(8 * blocks, m.num_prefill_tokens))
        self.kinds += ("prefill",)
        if m.checkpoint is not None:  # of the decodes in front, too
            kept = (m.checkpoint.checkpoint_offsets, m.checkpoint.state_indices)
            self.kept = tuple(row[rows, None] for row in kept)


def step_of(m: Any) -> Step:
    step = m.__dict__.get("_cubinery")
    if step is None:
        step = m._cubinery = Step.of(m)
    found: Step = step
    return found


# ---- Its pools -----------------------------------------------------------------------------------


class Pools(tuple[Any, ...]):
    """A layer's kv_cache, with the views of it that launches take.  They live as long as it."""

    conv: Any  # [slots, channels, columns]
    window: Any  # its first columns, in front of those of drafts
    state: Any

    @classmethod
    def of(cls, kv_cache: Any, layer: VllmLayer) -> Pools:
        pools = cls(kv_cache)
        conv, pools.state = kv_cache[:2]
        pools.conv = conv if layer.conv_state_layout == "columns" else conv.transpose(-1, -2)
        pools.window = pools.conv[:, :, : layer.conv_width - 1]
        return pools
