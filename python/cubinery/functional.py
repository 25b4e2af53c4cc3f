"""The operators as functions: the problem is inferred from the arrays, outputs are allocated, and
operators are kept in the context that made them.

A first call with new dtypes, head counts or modes loads or compiles kernels; token counts, batch
sizes, strides and pool sizes never do.  For the least host time keep a Decode, Prefill, Verify or
Conv and give it every array.
"""

from cubinery.conv import *
from cubinery.gdn import *
