"""Paths are any bytes: those that are no UTF-8 go through the module as `os.fsencode()` has them."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import cubinery
import pytest

# Latin-1, a byte that is in no character, half of one, and a surrogate in UTF-8.
NAMES = [b"caf\xe9", b"\xff", b"a\xc3", b"\xed\xa0\x80", "caf\u00e9".encode()]
PROBLEM = cubinery.DecodeProblem(key_dim=64, value_dim=64)


def _folder(tmp_path: Path, name: bytes) -> bytes:
    folder = os.path.join(os.fsencode(tmp_path), name)
    os.mkdir(folder)
    return folder


def _printable(text: str) -> str:
    """The text, which a strict stdout prints."""
    text.encode("utf-8")
    return text


class _Path:
    """A path that is neither str nor bytes nor pathlib's."""

    def __init__(self, path: bytes) -> None:
        self.path = path

    def __fspath__(self) -> bytes:
        return self.path


@pytest.mark.parametrize("name", NAMES)
def test_a_cache_may_have_any_name(tmp_path, compiler, name):
    cache = _folder(tmp_path, name)
    made = cubinery.Context(-1, arch="sm_90a", cache_dir=cache).compile(PROBLEM)
    entries = os.path.join(cache, b"entries")
    assert sorted(os.fsencode(kernel["path"]) for kernel in made) == sorted(
        os.path.join(entries, entry) for entry in os.listdir(entries)
    )
    # As str, as a path object, as bytes in one, and as a layer.
    for given in (os.fsdecode(cache), Path(os.fsdecode(cache)), _Path(cache)):
        context = cubinery.Context(-1, arch="sm_90a", cache_dir=given, offline=True)
        assert [kernel["source"] for kernel in context.compile(PROBLEM)] == ["disk", "disk"]
        assert all(os.path.exists(kernel["path"]) for kernel in context.explain(PROBLEM))
    layered = cubinery.Context(
        -1, arch="sm_90a", cache_dir=tmp_path / "own", cache_layers=[cache], offline=True
    )
    assert [kernel["path"] for kernel in layered.compile(PROBLEM)] == [
        kernel["path"] for kernel in made
    ]
    [nearest] = {
        os.path.dirname(os.fsencode(kernel["nearest_path"]))
        for kernel in layered.explain(cubinery.DecodeProblem(key_dim=32, value_dim=64))
    }
    assert nearest == entries


def test_every_path_option_may_have_any_name(tmp_path):
    odd = os.path.join(os.fsencode(tmp_path), b"\xff")
    message = r"\\xff"

    def compiling(**options: object) -> None:
        cubinery.Context(-1, arch="sm_90a", cache_dir=tmp_path, **options).compile(PROBLEM)

    with pytest.raises(cubinery.NotCachedError, match=message) as not_cached:
        cubinery.Context(-1, arch="sm_90a", cache_dir=odd, offline=True).compile(PROBLEM)
    with pytest.raises(cubinery.NotCachedError, match=message) as layer:
        compiling(cache_layers=[odd], offline=True)
    with pytest.raises(cubinery.UnsupportedError, match=message) as nvrtc:
        compiling(nvrtc_path=odd)
    with pytest.raises(cubinery.Error, match=message) as driver:
        cubinery.Context(0, driver_path=odd)
    with pytest.raises(cubinery.CacheIOError, match=message) as config:
        cubinery.problems_for_model(odd)
    os.mkdir(odd)
    with pytest.raises(cubinery.CacheIOError, match=message) as folder:
        cubinery.problems_for_model(_Path(odd))
    for caught in (not_cached, layer, nvrtc, driver, config, folder):
        _printable(str(caught.value))
    assert "no settings" in str(_error_of(lambda: cubinery.tuning_report(odd)))
    assert "has no GPU" in str(_error_of(lambda: _tune(odd)))


def _error_of(call: Callable[[], object]) -> cubinery.Error:
    with pytest.raises(cubinery.Error) as caught:
        call()
    return caught.value


def _tune(directory: bytes) -> object:
    return cubinery.Context(-1, arch="sm_90a").tune(PROBLEM, [{"batch": 8}], directory=directory)


def test_a_template_folder_may_have_any_name(tmp_path, compiler):
    folder = _folder(tmp_path, b"\xff")
    kernel = os.path.join(folder, b"gdn_decode")
    os.mkdir(kernel)
    with open(os.path.join(kernel, b"gdn_decode.cu"), "w") as file:
        file.write("#error no kernel\n")
    context = cubinery.Context(-1, arch="sm_90a", cache_dir=tmp_path, template_dirs=[folder])
    assert {os.fsencode(one["source_path"]) for one in context.explain(PROBLEM)} == {
        os.path.join(kernel, b"gdn_decode.cu")
    }
    with pytest.raises(cubinery.CompileError) as caught:
        context.compile(PROBLEM)
    _printable(str(caught.value))
    _printable(caught.value.log)


def test_a_configuration_may_have_any_name(tmp_path):
    root = Path(__file__).parents[2]
    model = root / "tests/data/models/Qwen3-Next-80B-A3B-Instruct/config.json"
    folder = _folder(tmp_path, b"\xff")
    with open(os.path.join(folder, b"config.json"), "wb") as file:
        file.write(model.read_bytes())
    expected = cubinery.problems_for_model(model)
    for given in (folder, os.fsdecode(folder), os.path.join(folder, b"config.json")):
        assert cubinery.problems_for_model(given) == expected
    with open(os.path.join(folder, b"config.json"), "wb") as file:
        file.write(b"{}")
    with pytest.raises(cubinery.InvalidArgumentError, match=r"\\xff") as caught:
        cubinery.problems_for_model(folder)
    _printable(str(caught.value))


def test_a_log_prints_any_name(tmp_path, compiler):
    lines: list[str] = []
    cubinery.Context(
        -1,
        arch="sm_90a",
        cache_dir=tmp_path,
        cache_layers=[os.path.join(os.fsencode(tmp_path), b"\xff")],
        log=lambda level, text: lines.append(text),
    ).compile(PROBLEM)
    assert any("\\xff" in line for line in lines)
    for line in lines:
        _printable(line)


def test_the_commands_json_is_utf_8(tmp_path, command, compiler):
    environment = {**os.environb, b"CUBINERY_CACHE_DIR": _folder(tmp_path, b"\xff")}
    problem = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_90a".split()
    for arguments in (["prewarm", *problem], ["explain", *problem], ["cache", "ls"], ["doctor"]):
        run = subprocess.run(
            [command, *arguments, "--json", "-"], env=environment, capture_output=True
        )
        assert json.loads(run.stdout.decode("utf-8"))
