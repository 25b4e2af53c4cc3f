"""Your own kernels, from texts."""

from __future__ import annotations

from typing import Unpack

from cubinery import _arrays
from cubinery._context import Context, checked_context, context_of
from cubinery._kernel import Kernel, KernelInfo, SourceOptions
from cubinery._tunable import TunableKernel, TunedKernel

__all__ = ["Kernel", "KernelInfo", "SourceOptions", "TunableKernel", "TunedKernel", "compile"]


def compile(
    source: str, *, context: Context | None = None, **given: Unpack[SourceOptions]
) -> Kernel:
    """A kernel from a text, loaded or compiled: Context.kernel() of a context that is kept.

        kernel = cubinery.compile(source, name="scale")
        kernel[grid, block](x, 2.0, n)

    To compile without a GPU use Context.compile_source(), for the library's own operators
    Context.compile().

    Args:
        source, given: as for Context.kernel().
        context: None: that of the current device (torch's or cupy's, where one of them has been
            imported and uses CUDA, else 0): one per device, made at first use from the environment.

    Raises: as Context.kernel().  May be called from any thread.
    """
    if context is None:
        context = context_of(_arrays.current_device())
    return checked_context(context).kernel(source, **given)
