"""FLA's contexts of context parallelism: what one says of a rank, as cubinery.ranks has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubinery import _arrays
from cubinery._errors import InvalidArgumentError, refuse
from cubinery.compat import _arguments as arguments
from cubinery.ranks import Share, TorchRanks

_READ = ("group", "cu_seqlens", "is_first_rank", "is_last_rank")
_OF_FLASH_QLA = "intra_cp_cu_seqlens"  # its contexts have FLA's attributes, too
_ACCEPTED = f"accepted: an FLACPContext of FLA, with {', '.join(_READ[:-1])} and {_READ[-1]}"


@dataclass(frozen=True)
class RankContext:
    """A context whose group is there."""

    function: str
    group: Any
    cu_seqlens: Any  # of the rank's sequences in its tokens
    cu_seqlens_cpu: Any  # or None
    is_first_rank: bool  # the first sequence begins here
    is_last_rank: bool  # the last one ends here

    def options(self, tokens: int) -> dict[str, Any]:
        """Options of functional's for a rank of so many tokens."""
        ranks = TorchRanks(self.group)
        rank = ranks.rank
        if rank == 0 and not self.is_first_rank:
            refuse(f"{self.function}: cp_context.is_first_rank", False, "True, on rank 0")
        share = Share(
            first=0,
            end=tokens,
            first_sequence=0,
            cu_seqlens=self._bounds(tokens),
            source=None if self.is_first_rank else rank - 1,
            target=None if self.is_last_rank else rank + 1,
        )
        return {"share": share, "ranks": ranks}

    def _bounds(self, tokens: int) -> tuple[int, ...]:
        """cu_seqlens, which waits for the device where only that has them."""
        sequences = self.cu_seqlens.shape[0] - 1
        if sequences == 1:
            return (0, tokens)
        bounds = self.cu_seqlens if self.cu_seqlens_cpu is None else self.cu_seqlens_cpu
        return tuple(int(bound) for bound in bounds.tolist())


def rank_context(function: str, cp_context: Any) -> RankContext | None:
    """What a context says; None: there is none, or none with a group.

    Raises InvalidArgumentError for an object that is no context of FLA's, and for one that lacks what
    has to be known.
    """
    if cp_context is None:
        return None
    missing = [name for name in _READ if not hasattr(cp_context, name)]
    if missing or hasattr(cp_context, _OF_FLASH_QLA):
        why = f"without {missing[0]}" if missing else f"with {_OF_FLASH_QLA}"
        raise InvalidArgumentError(
            f"{function}: cp_context is of type {type(cp_context).__name__}, {why}; {_ACCEPTED}"
        )
    if cp_context.group is None:
        return None
    for name in _READ:
        if getattr(cp_context, name) is None:
            raise InvalidArgumentError(f"{function}: cp_context.{name} is None; {_ACCEPTED}")
    flags = {
        name: arguments.flag(function, f"cp_context.{name}", getattr(cp_context, name))
        for name in _READ[2:]
    }
    return RankContext(
        function,
        cp_context.group,
        cp_context.cu_seqlens,
        getattr(cp_context, "cu_seqlens_cpu", None),
        **flags,
    )


def new_states(
    like: Any, initial_state: Any, shape: tuple[int, ...], wanted: bool
) -> tuple[Any, dict[str, Any]]:
    """f32 final states (None unless `wanted`), and functional's options of states on a rank:
    `initial_state`, which is not written, is copied, and ranks have the same problem with and
    without it."""
    state = arguments.zeros(like, shape)
    if initial_state is not None:
        state[...] = initial_state
    final = _arrays.empty(like, shape, "f32")
    return final if wanted else None, {"state": state, "state_out": final}
