"""The causal convolution in front of a Gated DeltaNet layer, as an object for one problem;
_functions.py has it as a function that infers it.
"""

from __future__ import annotations

from cubinery._functions import gdn_conv
from cubinery._launch import ConvLaunch
from cubinery._rules import ConvOutputs
from cubinery.problems import ConvProblem

__all__ = ["Conv", "ConvOutputs", "gdn_conv"]


class Conv(ConvLaunch, op=ConvProblem.op):
    """A convolution on one device, for prefills, decode steps and verifications.  Thread-safe.

    A state has the last inputs of its sequence, the newest last: width - 1, or width with
    whole_window.  With from_accepted more: a launch may have columns - width + 2 tokens of a
    request.  With stored_states "every" step t has the window after token t: a dense state_out is
    [N, steps, channels, columns], state_out_indices [N, steps]; with from_accepted a dense state is
    [N, S, ...] and state_indices [N, S], and request n starts from step accepted[n] - 1.

    Raises: as Context.prepare().
    """
