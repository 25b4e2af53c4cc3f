"""Contexts and operators: what is prepared when a model is loaded, and called for every step."""

from cubinery._context import CacheStats as CacheStats
from cubinery._context import Context as Context
from cubinery._options import StrPath as StrPath
from cubinery.conv import *
from cubinery.gdn import *
