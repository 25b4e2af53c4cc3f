"""Parts of benchmarks/compare.py: the same tensors, checks and clock for cubinery and for its peers."""
