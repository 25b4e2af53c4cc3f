"""Other libraries' functions of Gated DeltaNet, of Kimi Delta Attention, and causal convolutions, with
their signatures, run by cubinery.

`fla`, `flash_kda`, `flashinfer`, `vllm`, `sglang`, `tensorrt_llm`, `tokenspeed` and `causal_conv1d`
each hold functions named and called as those of the library they are named after; none of them
imports that library.  An argument that cubinery cannot honour raises an error that names it; it is
never ignored.  A keyword that the function does not have raises one too, unless it is None.
docs/switching.md has the conventions side by side.  `transformers` switches the models of Hugging
Face Transformers over, and back.
"""
