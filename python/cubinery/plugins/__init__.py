"""Plugins by which inference engines serve Gated DeltaNet layers on cubinery.

vLLM and SGLang find them by the package's entry points: to install cubinery is to use it there.
CUBINERY_PLUGIN says how, to both: "auto" (the default: what cubinery cannot do stays with the
engine's own kernels, which the engine's log says once, with the reason), "force" (it is an error
instead) or "off".  Importing these modules imports neither torch nor an engine.
"""
