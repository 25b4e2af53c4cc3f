"""Exceptions: each code has its class, and the message stays."""

import pickle

import cubinery
import pytest
from cubinery import _errors


@pytest.mark.parametrize(
    ("code", "cls", "builtin"),
    [
        ("InvalidArgument", cubinery.InvalidArgumentError, ValueError),
        ("InvalidKey", cubinery.InvalidKeyError, ValueError),
        ("CompileFailed", cubinery.CompileError, RuntimeError),
        ("NotCached", cubinery.NotCachedError, LookupError),
        ("Unsupported", cubinery.UnsupportedError, NotImplementedError),
        ("Driver", cubinery.DriverError, RuntimeError),
        ("Io", cubinery.CacheIOError, OSError),
        ("Internal", cubinery.InternalError, RuntimeError),
    ],
)
def test_each_code_is_a_class(code, cls, builtin):
    error = _errors.from_code(code, "q: what and why", "the log")
    assert type(error) is cls
    assert isinstance(error, cubinery.Error) and isinstance(error, builtin)
    assert (error.code, str(error), error.log) == (code, "q: what and why", "the log")


def test_an_unknown_code_is_internal():
    assert type(_errors.from_code("Later", "message", "")) is cubinery.InternalError


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(_errors.from_code("CompileFailed", "message", "the log")))
    assert type(error) is cubinery.CompileError
    assert (str(error), error.log) == ("message", "the log")


def test_library_errors_arrive():
    with pytest.raises(cubinery.InvalidArgumentError) as caught:
        cubinery.DecodeProblem(key_dim=100).check()
    message = "gdn_decode: key_dim = 100; accepted: multiples of 16 from 16 to 256"
    assert str(caught.value) == message
    assert caught.value.code == "InvalidArgument"


def test_compile_errors_carry_the_log(compiler, cache_dir, tmp_path):
    folder = tmp_path / "gdn_decode"
    folder.mkdir()
    (folder / "gdn_decode.cu").write_text("this is no CUDA\n")
    (folder / "key.h").write_text("")
    context = cubinery.Context(
        -1, arch="sm_90a", cache_dir=str(cache_dir), template_dirs=[str(tmp_path)]
    )
    with pytest.raises(cubinery.CompileError) as caught:
        context.compile(cubinery.DecodeProblem())
    assert "gdn_decode.cu" in caught.value.log


def test_offline_is_not_cached(tmp_path):
    context = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir=str(tmp_path))
    with pytest.raises(cubinery.NotCachedError, match="gdn_decode"):
        context.compile(cubinery.DecodeProblem())
    with pytest.raises(cubinery.UnsupportedError, match="offline"):
        context.nvrtc_version
