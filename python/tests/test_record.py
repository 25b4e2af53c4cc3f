"""What a context was asked for, in a file for ``cubinery prewarm``."""

import json

import cubinery
import pytest

SOURCE = "__global__ void scale(float* x) { *x *= 2; }"


def test_what_is_asked_for_is_recorded(tmp_path):
    path = tmp_path / "kernels.json"
    context = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir=tmp_path, record=path)
    problem = cubinery.DecodeProblem(key_dim=64)
    for _ in range(2):
        with pytest.raises(cubinery.NotCachedError):
            context.compile_source(SOURCE, name="scale")
        with pytest.raises(cubinery.NotCachedError):
            context.compile(problem)
    source, decode = map(json.loads, path.read_text().splitlines())
    assert source == {"source": {"name": "scale", "source": SOURCE}}
    assert decode.pop("op") == "gdn_decode"
    assert cubinery.DecodeProblem(**decode) == problem


def test_the_environment_says_where(tmp_path, monkeypatch):
    path = tmp_path / "kernels.json"
    monkeypatch.setenv("CUBINERY_RECORD", str(path))
    context = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir=tmp_path)
    with pytest.raises(cubinery.NotCachedError):
        context.compile_source(SOURCE, name="scale")
    assert len(path.read_text().splitlines()) == 1
