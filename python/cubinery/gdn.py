"""The operators of Gated DeltaNet, as objects for one problem; _functions.py has them as functions
that infer it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cubinery import _core
from cubinery._errors import refuse, refuse_type
from cubinery._functions import gdn_decode, gdn_prefill, gdn_verify
from cubinery._launch import CommitLaunch, DecodeLaunch, PrefillLaunch, VerifyLaunch
from cubinery._rules import MOST_TOKENS as MOST_TOKENS
from cubinery.problems import CommitProblem, DecodeProblem, PrefillProblem, VerifyProblem

__all__ = ["Commit", "Decode", "Prefill", "Verify", "gdn_decode", "gdn_prefill", "gdn_verify"]


class Decode(DecodeLaunch, op=DecodeProblem.op):
    """A decode operator on one device: one token per request.  Thread-safe.

    With conv_width channels of x lie next to each other, those of q's heads in front of k's and
    v's; requests of x and slots of conv_state are at multiples of four elements.

    Raises: as Context.prepare().
    """


class Prefill(PrefillLaunch, op=PrefillProblem.op):
    """A prefill operator on one device: whole sequences.  Thread-safe.

    Shapes are those of token_layout "bthd"; "bhtd" has the heads before the tokens everywhere.
    Sequence n of packed ones has rows checkpoint_cu_starts[n] to checkpoint_cu_starts[n + 1] - 1 of
    the checkpoints; max_seqlen is a hint: with batch_invariant results do not depend on it.

    Raises: as Context.prepare().
    """


class Verify(VerifyLaunch, op=VerifyProblem.op):
    """A verification operator on one device: the draft tokens of each request.  Thread-safe.

    With stored_states "every" step t has the state after token t: a dense state_out is
    [N, steps, heads, rows, columns], state_out_indices [N, steps].  With from_accepted a dense
    state is [N, S, ...] and state_indices [N, S]: request n starts from step accepted[n] - 1.  With
    a tree that is the token to go on from, so accepted is that token plus 1.

    Raises: as Context.prepare().
    """


def _arrays_of(names: tuple[str, ...], index: int, layer: Mapping[str, Any]) -> list[Any]:
    if not isinstance(layer, Mapping):
        refuse_type(f"layers[{index}]", layer, "a dict of arrays")
    for name in layer:
        if name not in names:
            refuse(f"layers[{index}]", name, ", ".join(map(repr, names)))
    return [layer.get(name) for name in names]


class Commit(CommitLaunch, op=CommitProblem.op):
    """A commit operator on one device: the states after the accepted tokens of a verification that
    kept none (store_state False), from the same arrays.  Thread-safe.

    Of all layers of a table, or of one that is given by its arrays.  With accepted[n] = 0 the state
    of request n stays what it was.

    Raises: as Context.prepare().
    """

    def table(self, layers: Sequence[Mapping[str, Any]]) -> list[int]:
        """The layers of a model for one launch: 32 numbers for each, which an array of i64 on the
        device holds from then on, until one of their arrays moves:

            table = torch.tensor(commit.table(layers), device="cuda").view(-1, 32)

        Args:
            layers: of each layer the arrays that a launch of it alone takes, k to state_out, by
                name; those that are None may be missing.  They may have room for more requests and
                tokens than a launch has.

        Raises:
            InvalidArgumentError: names the layer and the array, what it is and what is accepted.
        """
        names = self._layer_arrays
        given = [a for i, layer in enumerate(layers) for a in _arrays_of(names, i, layer)]
        return _core.operator_table(self._handle, *given)
