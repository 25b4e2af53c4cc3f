"""The launches of the operators: what gdn.py and conv.py derive from."""

# Written by scripts/print_fields.py: change the tables, tables.h in the operators' folders under
# runtime/gdn, instead.

from __future__ import annotations

from typing import Any

from cubinery import _core
from cubinery._operator import Operator, WorkspaceOperator
from cubinery.problems import (
    CommitProblem,
    ConvProblem,
    DecodeProblem,
    PrefillProblem,
    VerifyProblem,
)


class DecodeLaunch(Operator[DecodeProblem]):
    """One decode step: one token per request."""

    def __call__(
        self,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        z: Any = None,
        norm_weight: Any = None,
        x: Any = None,
        conv_weight: Any = None,
        conv_bias: Any = None,
        conv_state: Any = None,
        conv_state_out: Any = None,
        pad_slot_id: int | None = None,
        zero_padding: bool = False,
        scratch_slot: int | None = None,
        scale: float | None = None,
        lower_bound: float | None = None,
        norm_eps: float | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one launch on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        heads is the largest of the head counts. rows x columns of a state is value_dim x key_dim
        (vk) or key_dim x value_dim (kv). [B, 1, ...] will do for [B, ...].

        Args:
            q: [B, q_heads, key_dim], dtype; None: with conv_width they come from x.
            k: [B, k_heads, key_dim], dtype; None: with conv_width they come from x.
            v: [B, v_heads, value_dim], dtype; None: with conv_width they come from x.
            g: [B, heads], with decay channel [..., key_dim], gate_dtype; g, alpha or a, as
                gate_mode says; None: gate_mode is none.
            beta: [B, heads], beta_dtype; beta or its logit, as beta_mode says; None: beta_mode is
                one.
            A_log: [heads], a_log_dtype; None: zeros, where gate_mode is lower_bound, or gate_mode
                is neither computed nor lower_bound.
            dt_bias: [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel
                also [heads * key_dim]; None: zeros, where decay is channel, or gate_mode is neither
                computed nor lower_bound.
            out: [B, heads, value_dim], output_dtype; written.
            state: [B or slots, heads, rows, columns], state_dtype; read and written; None:
                has_initial_state and store_state are false.
            state_out: [B or slots, heads, rows, columns], state_dtype; written; where new states
                go; None: in place, or store_state is false.
            state_indices: [B], index_dtype; the slots to read; None: state_location is dense.
            state_out_indices: [B], index_dtype; the slots to write; None: those that are read, or
                state_location is dense.
            z: [B, heads, value_dim], dtype; the gate of the norm; None: output_norm is none.
            norm_weight: [value_dim], norm_weight_dtype; None: output_norm is none.
            x: [B, channels], dtype; None: conv_width is 0.
            conv_weight: [channels, width], conv_weight_dtype; None: conv_width is 0.
            conv_bias: [channels], conv_weight_dtype; None: conv_width is 0, or has_bias is false.
            conv_state: [B or slots, channels, columns], conv_state_dtype; read and written; as
                conv_state_layout says, without gaps; None: conv_width is 0, or has_initial_state
                and store_state are false.
            conv_state_out: [B or slots, channels, columns], conv_state_dtype; written; where new
                ones go; None: in place, or conv_width is 0, or store_state is false.
            pad_slot_id: the index that means that a row is padding, or, negative, that every
                negative one does; state_location pool only; None: no index is padding.
            zero_padding: outputs of rows of padding are set to zero, not left alone; needs
                pad_slot_id.
            scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
                zero_padding; None: they are not computed.
            scale: q is multiplied by it; None: key_dim^-1/2.
            lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
                lower_bound.
            norm_eps: with output_norm only; None: 1e-6.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of the library of q or x
                (torch and cupy; for others the legacy default stream).

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle, stream, q, k, v, g, beta, A_log, dt_bias, out, state, state_out,
            state_indices, state_out_indices, z, norm_weight, x, conv_weight, conv_bias, conv_state,
            conv_state_out, pad_slot_id, zero_padding, scratch_slot, scale, lower_bound, norm_eps,
            enable_pdl,
        )  # fmt: skip
        return out

    def choice(self, batch: int) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
            batch: requests.
        """
        return self._choice(batch)


class PrefillLaunch(WorkspaceOperator[PrefillProblem]):
    """A prefill: whole sequences."""

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        cu_seqlens: Any = None,
        has_initial_state: Any = None,
        checkpoints: Any = None,
        checkpoint_cu_starts: Any = None,
        checkpoint_offsets: Any = None,
        checkpoint_slots: Any = None,
        pad_slot_id: int | None = None,
        zero_padding: bool = False,
        scratch_slot: int | None = None,
        checkpoint_every: int | None = None,
        scale: float | None = None,
        lower_bound: float | None = None,
        max_seqlen: int | None = None,
        enable_pdl: bool = False,
        step: int | None = None,
        continues: bool = False,
        workspace: Any = None,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one launch on `stream`; allocates nothing but a missing workspace.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        heads is the largest of the head counts. rows x columns of a state is value_dim x key_dim
        (vk) or key_dim x value_dim (kv). Packed arrays are those of varlen, and may have a
        dimension of 1 in front.

        Args:
            q: [B, T, q_heads, key_dim], packed [total, q_heads, key_dim], dtype.
            k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype.
            v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype.
            g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype;
                g, alpha or a, as gate_mode says; None: gate_mode is none.
            beta: [B, T, heads], packed [total, heads], beta_dtype; beta or its logit, as beta_mode
                says; None: beta_mode is one.
            A_log: [heads], a_log_dtype; None: zeros, where gate_mode is lower_bound, or gate_mode
                is neither computed nor lower_bound.
            dt_bias: [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel
                also [heads * key_dim]; None: zeros, where decay is channel, or gate_mode is neither
                computed nor lower_bound.
            out: [B, T, heads, value_dim], packed [total, heads, value_dim], output_dtype; written.
            state: [N or slots, heads, rows, columns], state_dtype; read and written; None:
                has_initial_state and store_state are false.
            state_out: [N or slots, heads, rows, columns], state_dtype; written; where new states
                go; None: in place, or store_state is false.
            state_indices: [N], index_dtype; the slots to read; None: state_location is dense.
            state_out_indices: [N], index_dtype; the slots to write; None: those that are read, or
                state_location is dense.
            cu_seqlens: [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1; None: varlen is false.
            has_initial_state: [N], bool; whether a sequence starts from its state, or from zero;
                None: all do, or the problem's has_initial_state is false.
            checkpoints: [checkpoints, heads, rows, columns], state_dtype; written; states that are
                kept besides the last; None: checkpoints is none.
            checkpoint_cu_starts: [N + 1], cu_seqlens_dtype; where the checkpoints of each sequence
                begin; None: checkpoints is none, or checkpoints is at, or varlen is false.
            checkpoint_offsets: [N, K], i32; tokens of the sequence that each of its checkpoints has
                taken in, ascending; 0 or less: there is none; None: the launch keeps none, or
                checkpoints is not at.
            checkpoint_slots: [N, K], index_dtype; the rows of checkpoints that they go to; negative
                or padding: there is none; None: the launch keeps none, or checkpoints is not at.
            pad_slot_id: the index that means that a row is padding, or, negative, that every
                negative one does; state_location pool only; None: no index is padding.
            zero_padding: outputs of rows of padding are set to zero, not left alone; needs
                pad_slot_id.
            scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
                zero_padding; None: they are not computed.
            checkpoint_every: tokens from one checkpoint to the next, a multiple of the problem's;
                None: the problem's.
            scale: q is multiplied by it; None: key_dim^-1/2.
            lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
                lower_bound.
            max_seqlen: tokens of the longest sequence, a hint; varlen only; None: not known.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            step: 1, 2 or 3: start, carry or finish; context_parallel only; None: all of them.
            continues: the first sequence goes on from the GPU in front, so its initial state is
                read by step 2; context_parallel only.
            workspace: one dimension without gaps, 256-byte aligned, of workspace_bytes() or more;
                nothing is kept in it between launches, launches that may overlap need one each.
                None: torch or cupy allocates it, tied to the launch's stream.
            stream: a cudaStream_t as a number; None: the current stream of the library of q (torch
                and cupy; for others the legacy default stream).

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        if workspace is None:
            workspace = self._new_workspace(q, cu_seqlens, stream, step)
        _core.operator_launch(
            self._handle, stream, workspace, q, k, v, g, beta, A_log, dt_bias, out, state,
            state_out, state_indices, state_out_indices, cu_seqlens, has_initial_state, checkpoints,
            checkpoint_cu_starts, checkpoint_offsets, checkpoint_slots, pad_slot_id, zero_padding,
            scratch_slot, checkpoint_every, scale, lower_bound, max_seqlen or 0, enable_pdl, step or
            0, continues,
        )  # fmt: skip
        return out

    def choice(self, tokens: int, sequences: int, max_seqlen: int | None = None) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
            tokens: of all sequences: B T, or the packed total.
            sequences: B, or N.
            max_seqlen: tokens of the longest sequence; None: not known.
        """
        return self._choice(tokens, sequences, max_seqlen or 0)


class VerifyLaunch(Operator[VerifyProblem]):
    """A verification: the draft tokens of each request."""

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        cu_seqlens: Any = None,
        accepted: Any = None,
        parents: Any = None,
        z: Any = None,
        norm_weight: Any = None,
        pad_slot_id: int | None = None,
        zero_padding: bool = False,
        scratch_slot: int | None = None,
        scale: float | None = None,
        lower_bound: float | None = None,
        norm_eps: float | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one launch on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        heads is the largest of the head counts. rows x columns of a state is value_dim x key_dim
        (vk) or key_dim x value_dim (kv). Packed arrays are those of varlen, and may have a
        dimension of 1 in front.

        Args:
            q: [B, T, q_heads, key_dim], packed [total, q_heads, key_dim], dtype.
            k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype.
            v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype.
            g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype;
                g, alpha or a, as gate_mode says; None: gate_mode is none.
            beta: [B, T, heads], packed [total, heads], beta_dtype; beta or its logit, as beta_mode
                says; None: beta_mode is one.
            A_log: [heads], a_log_dtype; None: zeros, where gate_mode is lower_bound, or gate_mode
                is neither computed nor lower_bound.
            dt_bias: [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel
                also [heads * key_dim]; None: zeros, where decay is channel, or gate_mode is neither
                computed nor lower_bound.
            out: [B, T, heads, value_dim], packed [total, heads, value_dim], output_dtype; written.
            state: [N or slots, heads, rows, columns], state_dtype; read and written; None:
                has_initial_state and store_state are false.
            state_out: [N or slots, heads, rows, columns], state_dtype; written; where new states
                go; None: in place, or store_state is false.
            state_indices: [N], index_dtype; the slots to read; None: state_location is dense.
            state_out_indices: [N], index_dtype; the slots to write; None: those that are read, or
                state_location is dense.
            cu_seqlens: [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1; None: varlen is false.
            accepted: [N], accepted_dtype; so many tokens of the launch before were accepted; 0 is
                taken as 1; None: from_accepted is false.
            parents: [B, T], packed [total], parents_dtype; the token of its request that each
                follows, from 0, in front of it; -1: the initial state; None: tree is false.
            z: [B, T, heads, value_dim], packed [total, heads, value_dim], dtype; the gate of the
                norm; None: output_norm is none.
            norm_weight: [value_dim], norm_weight_dtype; None: output_norm is none.
            pad_slot_id: the index that means that a row is padding, or, negative, that every
                negative one does; state_location pool only; None: no index is padding.
            zero_padding: outputs of rows of padding are set to zero, not left alone; needs
                pad_slot_id.
            scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
                zero_padding; None: they are not computed.
            scale: q is multiplied by it; None: key_dim^-1/2.
            lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
                lower_bound.
            norm_eps: with output_norm only; None: 1e-6.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of the library of q (torch
                and cupy; for others the legacy default stream).

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle, stream, q, k, v, g, beta, A_log, dt_bias, out, state, state_out,
            state_indices, state_out_indices, cu_seqlens, accepted, parents, z, norm_weight,
            pad_slot_id, zero_padding, scratch_slot, scale, lower_bound, norm_eps, enable_pdl,
        )  # fmt: skip
        return out

    def choice(self, requests: int, tokens: int) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
            requests: B, or N.
            tokens: of all requests: B T, or the packed total.
        """
        return self._choice(requests, tokens)


class CommitLaunch(Operator[CommitProblem]):
    """A commit: the states after the accepted tokens of a verification, in all layers."""

    _layer_arrays = ("k", "v", "g", "beta", "A_log", "dt_bias", "state", "state_out")

    def __call__(
        self,
        k: Any = None,
        v: Any = None,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        state: Any = None,
        state_out: Any = None,
        layers: Any = None,
        accepted: Any = None,
        cu_seqlens: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        pad_slot_id: int | None = None,
        scratch_slot: int | None = None,
        lower_bound: float | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> None:
        """Enqueues one launch on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        heads is the largest of the head counts. rows x columns of a state is value_dim x key_dim
        (vk) or key_dim x value_dim (kv). Packed arrays are those of varlen, and may have a
        dimension of 1 in front.

        Args:
            k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype.
            v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype.
            g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype;
                g, alpha or a, as gate_mode says; None: gate_mode is none.
            beta: [B, T, heads], packed [total, heads], beta_dtype; beta or its logit, as beta_mode
                says; None: beta_mode is one.
            A_log: [heads], a_log_dtype; None: zeros, where gate_mode is lower_bound, or gate_mode
                is neither computed nor lower_bound.
            dt_bias: [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel
                also [heads * key_dim]; None: zeros, where decay is channel, or gate_mode is neither
                computed nor lower_bound.
            state: [N or slots, heads, rows, columns], state_dtype; read and written; None:
                has_initial_state and store_state are false.
            state_out: [N or slots, heads, rows, columns], state_dtype; written; where new states
                go; None: in place, or store_state is false.
            layers: [layers, 32], i64; what table() made, without gaps.
            accepted: [N], accepted_dtype; so many tokens of each request are accepted; None: all of
                them.
            cu_seqlens: [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1; None: varlen is false.
            state_indices: [N], index_dtype; the slots to read; None: state_location is dense.
            state_out_indices: [N], index_dtype; the slots to write; None: those that are read, or
                state_location is dense.
            pad_slot_id: the index that means that a row is padding, or, negative, that every
                negative one does; state_location pool only; None: no index is padding.
            scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
                zero_padding; None: they are not computed.
            lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
                lower_bound.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of the library of k or
                layers (torch and cupy; for others the legacy default stream).

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle, stream, k, v, g, beta, A_log, dt_bias, state, state_out, layers, accepted,
            cu_seqlens, state_indices, state_out_indices, pad_slot_id, scratch_slot, lower_bound,
            enable_pdl,
        )  # fmt: skip

    def choice(self, layers: int, requests: int) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
            layers: those of the table, or 1.
            requests: N.
        """
        return self._choice(layers, requests)


class ConvLaunch(Operator[ConvProblem]):
    """A causal convolution in front of the others: its sums, SiLU, the split into q, k and v."""

    def __call__(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        *,
        y: Any = None,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        a: Any = None,
        b: Any = None,
        A_log: Any = None,
        dt_bias: Any = None,
        g: Any = None,
        beta: Any = None,
        cu_seqlens: Any = None,
        has_initial_state: Any = None,
        accepted: Any = None,
        cache_seqlens: Any = None,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        checkpoints: Any = None,
        checkpoint_cu_starts: Any = None,
        checkpoint_offsets: Any = None,
        checkpoint_slots: Any = None,
        pad_slot_id: int | None = None,
        zero_padding: bool = False,
        scratch_slot: int | None = None,
        checkpoint_every: int | None = None,
        scale: float | None = None,
        lower_bound: float | None = None,
        max_seqlen: int | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> None:
        """Enqueues one launch on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        heads is the largest of the head counts. Packed arrays are those of varlen, and may have a
        dimension of 1 in front.

        Args:
            x: [B, T, channels], packed [total, channels], dtype.
            weight: [channels, width], weight_dtype.
            bias: [channels], weight_dtype; None: has_bias is false.
            y: [B, T, channels], packed [total, channels], dtype; written; None: split_qkv is true.
            q: [B, T, q_heads, key_dim], packed [total, q_heads, key_dim], dtype; written; None:
                split_qkv is false.
            k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype; written; None:
                split_qkv is false.
            v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype; written; None:
                split_qkv is false.
            a: [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype;
                the decay's input; None: gate_mode is none.
            b: [B, T, heads], packed [total, heads], beta_dtype; beta's logit; None: beta_mode is
                one.
            A_log: [heads], a_log_dtype; None: zeros, where gate_mode is lower_bound, or gate_mode
                is none.
            dt_bias: [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel
                also [heads * key_dim]; None: zeros, where decay is channel, or gate_mode is none.
            g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim], f32;
                written; the decay's logarithm; None: gate_mode is none.
            beta: [B, T, heads], packed [total, heads], f32; written; None: beta_mode is one.
            cu_seqlens: [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1; None: varlen is false.
            has_initial_state: [N], bool; whether a sequence starts from its state, or from zero;
                None: all do, or the problem's has_initial_state is false.
            accepted: [N], accepted_dtype; so many tokens of the launch before were accepted; 0 is
                taken as 1; None: from_accepted is false.
            cache_seqlens: [N], i32; the inputs that a sequence has had: input i is in column i mod
                columns; None: circular_state is false.
            state: [N or slots, channels, columns], state_dtype; read and written; None:
                has_initial_state and store_state are false.
            state_out: [N or slots, channels, columns], state_dtype; written; where new states go;
                None: in place, or store_state is false, or circular_state is true.
            state_indices: [N], index_dtype; the slots to read; None: state_location is dense.
            state_out_indices: [N], index_dtype; the slots to write; None: those that are read, or
                state_location is dense, or circular_state is true.
            checkpoints: [checkpoints, channels, columns], state_dtype; written; states that are
                kept besides the last; None: checkpoints is none.
            checkpoint_cu_starts: [N + 1], cu_seqlens_dtype; where the checkpoints of each sequence
                begin; None: checkpoints is none, or checkpoints is at, or varlen is false.
            checkpoint_offsets: [N, K], i32; tokens of the sequence that each of its checkpoints has
                taken in, ascending; 0 or less: there is none; None: the launch keeps none, or
                checkpoints is not at.
            checkpoint_slots: [N, K], index_dtype; the rows of checkpoints that they go to; negative
                or padding: there is none; None: the launch keeps none, or checkpoints is not at.
            pad_slot_id: the index that means that a row is padding, or, negative, that every
                negative one does; state_location pool only; None: no index is padding.
            zero_padding: outputs of rows of padding are set to zero, not left alone; needs
                pad_slot_id.
            scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
                zero_padding; None: they are not computed.
            checkpoint_every: tokens from one checkpoint to the next, a multiple of the problem's;
                None: the problem's.
            scale: q is multiplied by it; split_qkv only; None: 1.
            lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
                lower_bound.
            max_seqlen: tokens of the longest sequence, a hint; varlen only; None: not known.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of the library of x (torch
                and cupy; for others the legacy default stream).

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle, stream, x, weight, bias, y, q, k, v, a, b, A_log, dt_bias, g, beta,
            cu_seqlens, has_initial_state, accepted, cache_seqlens, state, state_out, state_indices,
            state_out_indices, checkpoints, checkpoint_cu_starts, checkpoint_offsets,
            checkpoint_slots, pad_slot_id, zero_padding, scratch_slot, checkpoint_every, scale,
            lower_bound, max_seqlen or 0, enable_pdl,
        )  # fmt: skip

    def choice(self, sequences: int, tokens: int, channels: int = 0) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
            sequences: B, or N.
            tokens: of all sequences: B T, or the packed total.
            channels: of x; with split_qkv the problem says; None: 0.
        """
        return self._choice(sequences, tokens, channels)
