"""The helpers for arrays of any library, here numpy's, and the import of the package."""

import importlib.metadata
import re
import subprocess
import sys
from types import SimpleNamespace

import cubinery
import pytest
from cubinery import _arrays
from fake_gpu import CUDA, ROOT, FakeArray


def test_dtype_names():
    for name in ("f32", "bf16", "f16", "i32", "i64", "f8e4m3", "f8e5m2", "bool"):
        assert _arrays.dtype_name(FakeArray(1, dtype=name)) == name
    numpy = pytest.importorskip("numpy")
    assert _arrays.dtype_name(numpy.zeros(1, numpy.float32)) == "f32"
    assert _arrays.dtype_name(numpy.zeros(1, numpy.int64)) == "i64"
    assert _arrays.dtype_name(numpy.zeros(1, bool)) == "bool"
    assert _arrays.dtype_name(numpy.zeros(1)) == "float64"


def test_dtype_names_of_torch():
    torch = pytest.importorskip("torch")
    names = {
        torch.float32: "f32",
        torch.bfloat16: "bf16",
        torch.float16: "f16",
        torch.int32: "i32",
        torch.int64: "i64",
        torch.float8_e4m3fn: "f8e4m3",
        torch.float8_e5m2: "f8e5m2",
        torch.bool: "bool",
        torch.float64: "float64",
    }
    for dtype, name in names.items():
        assert _arrays.dtype_name(torch.zeros(1, dtype=dtype)) == name


def test_torch_without_the_exchange_api():
    """What PyTorch before 2.10 is read through."""
    torch = pytest.importorskip("torch")
    assert '"dltensor"' in repr(_arrays.capsule("q", torch.zeros(2), 0))


@pytest.mark.parametrize("dtype", ["f8e4m3", "bool"])
def test_a_torch_that_does_not_hand_on_a_dtype(monkeypatch, dtype):
    def to_dlpack(array):
        raise RuntimeError("such types are not supported by dlpack")

    utils = SimpleNamespace(dlpack=SimpleNamespace(to_dlpack=to_dlpack))
    torch = SimpleNamespace(__name__="torch", __version__="2.4.1", utils=utils)
    monkeypatch.setattr(_arrays, "library", lambda array: torch)
    refused = f"state: has dtype {dtype}, which torch 2.4.1 does not hand on .* a newer PyTorch"
    with pytest.raises(cubinery.InvalidArgumentError, match=refused):
        _arrays.capsule("state", FakeArray(1, dtype=dtype), 0)
    with pytest.raises(RuntimeError, match="not supported by dlpack"):
        _arrays.capsule("state", FakeArray(1, dtype="f32"), 0)


def test_empty_numpy():
    numpy = pytest.importorskip("numpy")
    like = numpy.zeros(3)
    made = _arrays.empty(like, (2, 5), "f16")
    assert (type(made), made.shape, made.dtype) == (numpy.ndarray, (2, 5), numpy.float16)
    assert _arrays.empty(like, (), "i64").dtype == numpy.int64
    assert _arrays.empty(like, (2,), "bool").dtype == bool
    with pytest.raises(cubinery.InvalidArgumentError, match="f64; accepted: f32, bf16"):
        _arrays.empty(like, (1,), "f64")


def test_empty_torch():
    torch = pytest.importorskip("torch")
    made = _arrays.empty(torch.zeros(3), (2, 5), "bf16")
    assert (made.shape, made.dtype, made.device.type) == ((2, 5), torch.bfloat16, "cpu")


def test_strides():
    numpy = pytest.importorskip("numpy")
    assert _arrays.strides_of(numpy.zeros((2, 3, 4), numpy.float16)) == (12, 4, 1)
    assert _arrays.strides_of(numpy.zeros((2, 3, 4)).swapaxes(1, 2)) == (12, 1, 4)
    assert _arrays.strides_of(FakeArray(2, 3)) is None


def test_strides_of_torch():
    torch = pytest.importorskip("torch")
    assert _arrays.strides_of(torch.zeros(2, 3, 4).transpose(1, 2)) == (12, 1, 4)


def test_what_cannot_be_allocated():
    with pytest.raises(cubinery.InvalidArgumentError, match="FakeArray.*out="):
        _arrays.empty(FakeArray(1), (1,), "f32")
    with pytest.raises(cubinery.InvalidArgumentError, match="workspace: None.*4096 bytes"):
        _arrays.workspace(FakeArray(1), 4096, None, 0)


def test_devices():
    assert _arrays.device_of(FakeArray(1, device=(CUDA, 3))) == 3
    assert _arrays.device_of(FakeArray(1, device=(13, 1))) == 1
    with pytest.raises(cubinery.InvalidArgumentError, match="^k: is on device of DLPack type 10"):
        _arrays.device_of(FakeArray(1, device=(10, 0)), "k")


def test_import_takes_the_standard_library_alone():
    program = """
import sys
before = set(sys.modules)
import cubinery
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(tops - {"cubinery"} - sys.stdlib_module_names), "cubinery.compat" in sys.modules)
"""
    shown = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert shown == "[] False\n"


def test_the_package_has_what_it_names():
    assert all(hasattr(cubinery, name) for name in cubinery.__all__)
    cmake = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"project\(cubinery VERSION ([0-9.]+)", cmake)
    assert cubinery.__version__ == version[1]
    assert importlib.metadata.version("cubinery") == version[1]
