"""What is fixed when a model is loaded: the fields and defaults of the C++ problems.

``include/cubinery/gdn_parts.h``, ``gdn_decode.h``, ``gdn_prefill.h``,
``gdn_verify.h``, ``gdn_commit.h`` and ``gdn_conv.h`` are their manual.
"""

# Written by scripts/print_fields.py: change the field tables, tables.h in the operators' folders under
# runtime/gdn, and the list of a model's problems, runtime/gdn/shared/model_forms.h, instead.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from cubinery._problem import Problem, left_out, repr_of_forms

if TYPE_CHECKING:
    from cubinery import Commit, Conv, Decode, Prefill, Verify

__all__ = [
    "ModelProblems",
    "DecodeProblem",
    "PrefillProblem",
    "VerifyProblem",
    "CommitProblem",
    "ConvProblem",
]

Dtype = Literal["f32", "bf16", "f16"]
StateDtype = Literal["f32", "bf16", "f16", "f8e4m3", "f8e5m2"]
IndexDtype = Literal["i32", "i64"]
StateLayout = Literal["kv", "vk"]
StateLocation = Literal["dense", "pool"]
Decay = Literal["head", "channel"]
GateMode = Literal["none", "log", "alpha", "computed", "lower_bound"]
BetaMode = Literal["one", "given", "logit", "doubled_logit"]
OutputNorm = Literal["none", "gated_rms", "sigmoid_gated_rms"]
ConvActivation = Literal["none", "silu"]
ConvStateLayout = Literal["columns", "channels"]
TokenLayout = Literal["bthd", "bhtd"]
Checkpoints = Literal["none", "before", "after", "at"]
Segments = Literal["auto", "never", "always"]
StoredStates = Literal["last", "every"]
CommitDtype = Literal["bf16", "f16"]
ConvGateMode = Literal["none", "computed", "lower_bound"]
ConvBetaMode = Literal["one", "logit", "doubled_logit"]


@dataclass(frozen=True, repr=False)
class DecodeProblem(Problem["Decode"]):
    """One decode step: one token per request.

    Args:
        q_heads: query heads of one GPU.
        k_heads: key heads of one GPU.
        v_heads: value heads of one GPU; value head h has key head h / (v_heads / k_heads),
            contiguous groups (llama.cpp: h mod k_heads).
        key_dim: size of q and k of a head; 16 to 256, a multiple of 16.
        value_dim: size of v of a head; 16 to 256, a multiple of 16.
        dtype: dtype of q, k and v.
        output_dtype: dtype of o.
        gate_dtype: dtype of g, alpha or a.
        beta_dtype: dtype of beta or its logit.
        a_log_dtype: dtype of A_log (gate_mode computed, lower_bound).
        dt_bias_dtype: dtype of dt_bias (gate_mode computed, lower_bound).
        state_dtype: dtype of states as they are stored.
        index_dtype: dtype of state indices (state_location pool).
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        state_location: states lie in the order of the batch (dense) or in slots that indices name
            (pool).
        decay: a token and head has one decay (head: Gated DeltaNet), or one for each of key_dim
            channels (channel: Kimi Delta Attention).
        gate_mode: the decay is given as g (log) or e^g (alpha), or computed from A_log, a and
            dt_bias, by softplus (computed) or above a lower bound (lower_bound).
        beta_mode: the write strength is 1 (one), beta as given, its sigmoid (logit) or twice that
            (doubled_logit).
        use_qk_l2norm: normalise q and k in the kernel.
        has_initial_state: sequences start from a state, not from zero.
        store_state: new states are kept.
        output_norm: o is stored as it is (none), or normalised over value_dim, weighted and gated
            by silu(z) first (gated_rms), or by sigmoid(z) (sigmoid_gated_rms).
        norm_weight_dtype: dtype of norm_weight (output_norm).
        conv_width: taps of the convolution in front, 2 to 4; 0: there is none, q, k and v are
            given.
        conv_activation: what the convolution's sums go through (conv_width).
        conv_has_bias: the convolution has a bias (conv_width).
        conv_weight_dtype: dtype of conv_weight and conv_bias (conv_width).
        conv_state_dtype: dtype of conv_state (conv_width).
        conv_state_layout: of conv_state [channels, columns], columns are neighbours in memory (FLA,
            Transformers, SGLang), or channels (vLLM).
        conv_whole_window: conv_state has conv_width columns (FLA, Transformers), not one less
            (vLLM, SGLang).
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
    """

    op: ClassVar[str] = "gdn_decode"

    q_heads: int = 16
    k_heads: int = 16
    v_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    dtype: Dtype = "bf16"
    output_dtype: Dtype = "bf16"
    gate_dtype: Dtype = "f32"
    beta_dtype: Dtype = "f32"
    a_log_dtype: Dtype = "f32"
    dt_bias_dtype: Dtype = "f32"
    state_dtype: StateDtype = "f32"
    index_dtype: IndexDtype = "i32"
    state_layout: StateLayout = "vk"
    state_location: StateLocation = "dense"
    decay: Decay = "head"
    gate_mode: GateMode = "log"
    beta_mode: BetaMode = "given"
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True
    output_norm: OutputNorm = "none"
    norm_weight_dtype: Dtype = "f32"
    conv_width: int = 0
    conv_activation: ConvActivation = "silu"
    conv_has_bias: bool = False
    conv_weight_dtype: Dtype = "bf16"
    conv_state_dtype: Dtype = "bf16"
    conv_state_layout: ConvStateLayout = "columns"
    conv_whole_window: bool = False
    batch_invariant: bool = False


@dataclass(frozen=True, repr=False)
class PrefillProblem(Problem["Prefill"]):
    """A prefill: whole sequences.

    Args:
        q_heads: query heads of one GPU.
        k_heads: key heads of one GPU.
        v_heads: value heads of one GPU; value head h has key head h / (v_heads / k_heads),
            contiguous groups (llama.cpp: h mod k_heads).
        key_dim: size of q and k of a head; 16 to 256, a multiple of 16.
        value_dim: size of v of a head; 16 to 256, a multiple of 16.
        dtype: dtype of q, k and v.
        output_dtype: dtype of o.
        gate_dtype: dtype of g, alpha or a.
        beta_dtype: dtype of beta or its logit.
        a_log_dtype: dtype of A_log (gate_mode computed, lower_bound).
        dt_bias_dtype: dtype of dt_bias (gate_mode computed, lower_bound).
        state_dtype: dtype of states as they are stored.
        index_dtype: dtype of state indices (state_location pool) and checkpoint_slots.
        cu_seqlens_dtype: dtype of cu_seqlens and checkpoint_cu_starts (varlen).
        token_layout: heads come after the tokens (bthd) or before them (bhtd).
        varlen: sequences are packed behind each other, their bounds in cu_seqlens.
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        state_location: states lie in the order of the batch (dense) or in slots that indices name
            (pool).
        decay: a token and head has one decay (head: Gated DeltaNet), or one for each of key_dim
            channels (channel: Kimi Delta Attention).
        gate_mode: the decay is given as g (log) or e^g (alpha), or computed from A_log, a and
            dt_bias, by softplus (computed) or above a lower bound (lower_bound).
        beta_mode: the write strength is 1 (one), beta as given, its sigmoid (logit) or twice that
            (doubled_logit).
        use_qk_l2norm: normalise q and k in the kernel.
        has_initial_state: sequences start from a state, not from zero.
        store_state: new states are kept.
        checkpoints: states are also kept from before tokens 0, N, 2N... (before), after tokens N,
            2N... (after), or after as many tokens as checkpoint_offsets says (at); N is
            checkpoint_every.
        checkpoint_every: tokens from one checkpoint to the next, or what offsets are multiples of
            (at), a multiple of 16; launches may have any multiple of it.
        segments: long sequences are cut into segments that run side by side: where that is faster
            (auto), never, or always; with batch_invariant, auto means never.
        context_parallel: sequences may be spread over several GPUs, which launch a prefill in three
            steps.
        segment_tokens: tokens of the segments that sequences are cut into, a multiple of 64
            (context_parallel).
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
    """

    op: ClassVar[str] = "gdn_prefill"

    q_heads: int = 16
    k_heads: int = 16
    v_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    dtype: Dtype = "bf16"
    output_dtype: Dtype = "bf16"
    gate_dtype: Dtype = "f32"
    beta_dtype: Dtype = "f32"
    a_log_dtype: Dtype = "f32"
    dt_bias_dtype: Dtype = "f32"
    state_dtype: Dtype = "f32"
    index_dtype: IndexDtype = "i32"
    cu_seqlens_dtype: IndexDtype = "i32"
    token_layout: TokenLayout = "bthd"
    varlen: bool = False
    state_layout: StateLayout = "vk"
    state_location: StateLocation = "dense"
    decay: Decay = "head"
    gate_mode: GateMode = "log"
    beta_mode: BetaMode = "given"
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True
    checkpoints: Checkpoints = "none"
    checkpoint_every: int = 64
    segments: Segments = "auto"
    context_parallel: bool = False
    segment_tokens: int = 8192
    batch_invariant: bool = False


@dataclass(frozen=True, repr=False)
class VerifyProblem(Problem["Verify"]):
    """A verification: the draft tokens of each request.

    Args:
        q_heads: query heads of one GPU.
        k_heads: key heads of one GPU.
        v_heads: value heads of one GPU; value head h has key head h / (v_heads / k_heads),
            contiguous groups (llama.cpp: h mod k_heads).
        key_dim: size of q and k of a head; 16 to 256, a multiple of 16.
        value_dim: size of v of a head; 16 to 256, a multiple of 16.
        dtype: dtype of q, k and v.
        output_dtype: dtype of o.
        gate_dtype: dtype of g, alpha or a.
        beta_dtype: dtype of beta or its logit.
        a_log_dtype: dtype of A_log (gate_mode computed, lower_bound).
        dt_bias_dtype: dtype of dt_bias (gate_mode computed, lower_bound).
        state_dtype: dtype of states as they are stored.
        index_dtype: dtype of state indices (state_location pool).
        cu_seqlens_dtype: dtype of cu_seqlens (varlen).
        varlen: requests are packed behind each other, their bounds in cu_seqlens.
        draft_tokens: the most tokens of a request: its drafts and the token in front of them; 1 to
            16.
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        state_location: states lie in the order of the batch (dense) or in slots that indices name
            (pool).
        decay: a token and head has one decay (head: Gated DeltaNet), or one for each of key_dim
            channels (channel: Kimi Delta Attention).
        gate_mode: the decay is given as g (log) or e^g (alpha), or computed from A_log, a and
            dt_bias, by softplus (computed) or above a lower bound (lower_bound).
        beta_mode: the write strength is 1 (one), beta as given, its sigmoid (logit) or twice that
            (doubled_logit).
        use_qk_l2norm: normalise q and k in the kernel.
        has_initial_state: sequences start from a state, not from zero.
        store_state: new states are kept.
        stored_states: new states are those after a request's last token (last) or after each of its
            tokens (every).
        from_accepted: the number of accepted tokens chooses which step's state a request starts
            from; needs has_initial_state.
        accepted_dtype: dtype of accepted (from_accepted).
        tree: a request's tokens are a tree, each follows the one that parents names; needs
            stored_states every or store_state false.
        parents_dtype: dtype of parents (tree).
        round_each_token: the state is rounded to state_dtype after each token, as by decode steps.
        output_norm: o is stored as it is (none), or normalised over value_dim, weighted and gated
            by silu(z) first (gated_rms), or by sigmoid(z) (sigmoid_gated_rms).
        norm_weight_dtype: dtype of norm_weight (output_norm).
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
    """

    op: ClassVar[str] = "gdn_verify"

    q_heads: int = 16
    k_heads: int = 16
    v_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    dtype: Dtype = "bf16"
    output_dtype: Dtype = "bf16"
    gate_dtype: Dtype = "f32"
    beta_dtype: Dtype = "f32"
    a_log_dtype: Dtype = "f32"
    dt_bias_dtype: Dtype = "f32"
    state_dtype: Dtype = "f32"
    index_dtype: IndexDtype = "i32"
    cu_seqlens_dtype: IndexDtype = "i32"
    varlen: bool = False
    draft_tokens: int = 4
    state_layout: StateLayout = "vk"
    state_location: StateLocation = "dense"
    decay: Decay = "head"
    gate_mode: GateMode = "log"
    beta_mode: BetaMode = "given"
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True
    stored_states: StoredStates = "last"
    from_accepted: bool = False
    accepted_dtype: IndexDtype = "i32"
    tree: bool = False
    parents_dtype: IndexDtype = "i32"
    round_each_token: bool = False
    output_norm: OutputNorm = "none"
    norm_weight_dtype: Dtype = "f32"
    batch_invariant: bool = False


@dataclass(frozen=True, repr=False)
class CommitProblem(Problem["Commit"]):
    """A commit: the states after the accepted tokens of a verification, in all layers.

    Args:
        q_heads: query heads of one GPU.
        k_heads: key heads of one GPU.
        v_heads: value heads of one GPU; value head h has key head h / (v_heads / k_heads),
            contiguous groups (llama.cpp: h mod k_heads).
        key_dim: size of q and k of a head; 16 to 256, a multiple of 16.
        value_dim: size of v of a head; 16 to 256, a multiple of 16.
        dtype: dtype of q, k and v.
        gate_dtype: dtype of g, alpha or a.
        beta_dtype: dtype of beta or its logit.
        a_log_dtype: dtype of A_log (gate_mode computed, lower_bound).
        dt_bias_dtype: dtype of dt_bias (gate_mode computed, lower_bound).
        state_dtype: dtype of states as they are stored.
        index_dtype: dtype of state indices (state_location pool).
        cu_seqlens_dtype: dtype of cu_seqlens (varlen).
        varlen: requests are packed behind each other, their bounds in cu_seqlens.
        draft_tokens: the most tokens of a request: its drafts and the token in front of them; 1 to
            16.
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        state_location: states lie in the order of the batch (dense) or in slots that indices name
            (pool).
        decay: a token and head has one decay (head: Gated DeltaNet), or one for each of key_dim
            channels (channel: Kimi Delta Attention).
        gate_mode: the decay is given as g (log) or e^g (alpha), or computed from A_log, a and
            dt_bias, by softplus (computed) or above a lower bound (lower_bound).
        beta_mode: the write strength is 1 (one), beta as given, its sigmoid (logit) or twice that
            (doubled_logit).
        use_qk_l2norm: normalise q and k in the kernel.
        has_initial_state: sequences start from a state, not from zero.
        store_state: new states are kept.
        accepted_dtype: dtype of accepted.
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
    """

    op: ClassVar[str] = "gdn_commit"

    q_heads: int = 16
    k_heads: int = 16
    v_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    dtype: CommitDtype = "bf16"
    gate_dtype: Dtype = "f32"
    beta_dtype: Dtype = "f32"
    a_log_dtype: Dtype = "f32"
    dt_bias_dtype: Dtype = "f32"
    state_dtype: Dtype = "f32"
    index_dtype: IndexDtype = "i32"
    cu_seqlens_dtype: IndexDtype = "i32"
    varlen: bool = False
    draft_tokens: int = 4
    state_layout: StateLayout = "vk"
    state_location: StateLocation = "dense"
    decay: Decay = "head"
    gate_mode: GateMode = "log"
    beta_mode: BetaMode = "given"
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True
    accepted_dtype: IndexDtype = "i32"
    batch_invariant: bool = False


@dataclass(frozen=True, repr=False)
class ConvProblem(Problem["Conv"]):
    """A causal convolution in front of the others: its sums, SiLU, the split into q, k and v.

    Args:
        q_heads: query heads of one GPU.
        k_heads: key heads of one GPU.
        v_heads: value heads of one GPU; value head h has key head h / (v_heads / k_heads),
            contiguous groups (llama.cpp: h mod k_heads).
        key_dim: size of q and k of a head; 8 to 256, a multiple of 8.
        value_dim: size of v of a head; 8 to 256, a multiple of 8.
        dtype: dtype of x, y, q, k and v.
        weight_dtype: dtype of weight and bias.
        width: taps of the convolution; 2 to 4.
        activation: what the sums go through.
        has_bias: there is a bias.
        split_qkv: q, k and v are written, not y.
        gate_dtype: dtype of g, alpha or a.
        beta_dtype: dtype of beta or its logit.
        a_log_dtype: dtype of A_log (gate_mode computed, lower_bound).
        dt_bias_dtype: dtype of dt_bias (gate_mode computed, lower_bound).
        state_dtype: dtype of states as they are stored.
        index_dtype: dtype of state indices (state_location pool) and checkpoint_slots.
        cu_seqlens_dtype: dtype of cu_seqlens and checkpoint_cu_starts (varlen).
        varlen: sequences are packed behind each other, their bounds in cu_seqlens.
        state_layout: of a state [channels, columns], columns are neighbours in memory (FLA,
            Transformers, SGLang), or channels (vLLM).
        state_location: states lie in the order of the batch (dense) or in slots that indices name
            (pool).
        decay: g of a token and head is one number (head: Gated DeltaNet), or one for each of
            key_dim channels (channel: Kimi Delta Attention).
        gate_mode: g is computed from A_log, a and dt_bias, by softplus (computed) or above a lower
            bound (lower_bound); needs split_qkv.
        beta_mode: beta is computed: the sigmoid of b (logit) or twice that (doubled_logit); needs
            split_qkv.
        use_qk_l2norm: q and k are normalised; needs split_qkv.
        has_initial_state: sequences start from a state, not from zero.
        store_state: new states are kept.
        whole_window: states have width columns (FLA, Transformers), not width - 1 (vLLM, SGLang).
        stored_states: new states are those after a sequence's last token (last) or after each of up
            to 16 tokens (every).
        from_accepted: the number of accepted tokens says from which column of its state a request
            goes on, or with stored_states every from which state; needs has_initial_state and
            store_state.
        accepted_dtype: dtype of accepted (from_accepted).
        circular_state: states are circular buffers, and cache_seqlens says where in its own a
            sequence goes on; needs has_initial_state and store_state.
        checkpoints: states are also kept from before tokens 0, N, 2N... (before), after tokens N,
            2N... (after), or after as many tokens as checkpoint_offsets says (at); N is
            checkpoint_every.
        checkpoint_every: tokens from one checkpoint to the next; launches may have any multiple of
            it (before, after).
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
    """

    op: ClassVar[str] = "gdn_conv"

    q_heads: int = 16
    k_heads: int = 16
    v_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    dtype: Dtype = "bf16"
    weight_dtype: Dtype = "bf16"
    width: int = 4
    activation: ConvActivation = "silu"
    has_bias: bool = False
    split_qkv: bool = False
    gate_dtype: Dtype = "f32"
    beta_dtype: Dtype = "f32"
    a_log_dtype: Dtype = "f32"
    dt_bias_dtype: Dtype = "f32"
    state_dtype: Dtype = "bf16"
    index_dtype: IndexDtype = "i32"
    cu_seqlens_dtype: IndexDtype = "i32"
    varlen: bool = False
    state_layout: ConvStateLayout = "columns"
    state_location: StateLocation = "dense"
    decay: Decay = "head"
    gate_mode: ConvGateMode = "none"
    beta_mode: ConvBetaMode = "one"
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True
    whole_window: bool = False
    stored_states: StoredStates = "last"
    from_accepted: bool = False
    accepted_dtype: IndexDtype = "i32"
    circular_state: bool = False
    checkpoints: Checkpoints = "none"
    checkpoint_every: int = 64
    batch_invariant: bool = False


@dataclass(frozen=True, repr=False)
class ModelProblems:
    """The problems of a model: one for each form in which it needs an operator.

    Args:
        decode: one token of each request.
        decode_with_conv: decode and conv_decode in one launch.
        prefill: packed sequences.
        verify: packed draft tokens.
        commit: those that were accepted.
        conv: in front of prefill: packed sequences.
        conv_decode: in front of decode: dense, one token of each request.
        conv_verify: in front of verify: packed draft tokens behind those accepted.
    """

    decode: DecodeProblem
    decode_with_conv: DecodeProblem
    prefill: PrefillProblem
    verify: VerifyProblem
    commit: CommitProblem
    conv: ConvProblem
    conv_decode: ConvProblem
    conv_verify: ConvProblem

    def left_out(self) -> dict[str, str]:
        """The forms that the model cannot have, and why: their problems do not pass check()."""
        return left_out(self)

    def __repr__(self) -> str:
        """A line for each form."""
        return repr_of_forms(self)
