"""Contexts without a GPU: options, pre-warming, explanations."""

import dataclasses
import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import cubinery
import pytest
from cubinery import _context


def test_a_context_without_a_device(compiler):
    assert (compiler.arch, compiler.device, compiler.sm_count) == ("sm_90a", -1, 0)
    assert compiler.nvrtc_version.count(".") == 2
    assert "sm_90a" in cubinery.architectures()


def test_repr_is_what_a_context_was_given(tmp_path):
    context = cubinery.Context(-1, arch="sm_80", offline=True, cache_dir=tmp_path)
    assert repr(context) == f"Context(-1, arch='sm_80', offline=True, cache_dir={tmp_path!r})"
    assert repr(cubinery.Context(-1, arch="sm_90a")) == "Context(-1, arch='sm_90a')"


def test_compile_then_disk(tmp_path):
    problem = cubinery.DecodeProblem(key_dim=64, value_dim=64)
    context = cubinery.Context(-1, arch="sm_90a", cache_dir=str(tmp_path))
    assert [kernel["cached"] for kernel in context.explain(problem)] == [False, False]
    reports = context.compile(problem)
    assert {report["kernel"] for report in reports} == {"gdn_decode"}
    assert all(report["source"] == "compiled" for report in reports)
    assert all(report["spill_store_bytes"] == 0 for report in reports)
    assert all(Path(report["path"]).is_relative_to(tmp_path) for report in reports)
    assert context.stats() == cubinery.CacheStats(
        0, 0, misses=2, compiles=2, damaged=0, failed_writes=0
    )

    again = cubinery.Context(-1, arch="sm_90a", cache_dir=tmp_path, offline=True)
    assert [report["source"] for report in again.compile(problem)] == ["disk", "disk"]
    assert again.stats().disk_hits == 2
    explained = again.explain(problem)
    assert [kernel["path"] for kernel in explained] == [report["path"] for report in reports]
    assert all(kernel["cached"] and "key_dim=64" in kernel["canonical"] for kernel in explained)


def test_a_list_of_problems_is_compiled_at_once(tmp_path):
    messages = []
    context = cubinery.Context(
        -1, arch="sm_90a", cache_dir=tmp_path, log=lambda _, message: messages.append(message)
    )
    decode = cubinery.DecodeProblem(key_dim=32, value_dim=32)
    commit = cubinery.CommitProblem(key_dim=32, value_dim=32)
    reports = context.compile([decode, commit, dataclasses.replace(decode, v_heads=64)])
    kernels = [report["kernel"] for report in reports]
    assert kernels == sorted(kernels, reverse=True) and set(kernels) == {"gdn_decode", "gdn_commit"}
    assert len({report["canonical"] for report in reports}) == len(reports)
    assert {report["source"] for report in reports} == {"compiled"}
    assert sorted(message.split(": ")[-1] for message in messages) == sorted(
        f"{done} of {len(reports)} are there" for done in range(1, len(reports) + 1)
    )
    for problem in (decode, commit):
        assert {report["source"] for report in context.compile(problem)} == {"memory"}
    assert context.compile(()) == []
    with pytest.raises(cubinery.InvalidArgumentError, match="problem: is of type str"):
        context.compile([decode, "gdn_decode"])
    with pytest.raises(cubinery.InvalidArgumentError, match=r"problems\[1\]: gdn_conv: width = 7"):
        context.compile([decode, cubinery.ConvProblem(width=7)])


def test_explain_is_the_command_lines(compiler, command, cache_dir):
    problem = "--op gdn_decode --q-heads 8 --k-heads 8 --state-dtype bf16".split()
    where = ["--arch", "sm_90a", "--cache-dir", cache_dir, "--json", "-"]
    shown = subprocess.run(
        [command, "explain", *problem, *where], check=True, capture_output=True, text=True
    ).stdout
    ours = compiler.explain(cubinery.DecodeProblem(q_heads=8, k_heads=8, state_dtype="bf16"))
    assert len(ours) > 1
    assert [kernel["identity"] for kernel in ours] == [
        kernel["identity"] for kernel in json.loads(shown)
    ]


def test_preparing_needs_a_device(compiler):
    with pytest.raises(cubinery.UnsupportedError, match="device=-1"):
        compiler.prepare(cubinery.DecodeProblem())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "sm_1"}, 'arch = "sm_1"; accepted: .*sm_90a'),
        ({"device": -2}, "device"),
        ({"arch": "sm_90a", "cache_limit_bytes": -1}, "cache_limit_bytes"),
        ({"arch": "sm_90a", "lock_wait": -1}, "lock_wait"),
        ({"arch": "sm_90a", "cache_layers": ["a:b"]}, "cache_layers = .*colon"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        cubinery.Context(**{"device": -1, **options})


def test_every_option_reaches_the_library(tmp_path, compiler):
    problem = cubinery.DecodeProblem(key_dim=32, value_dim=32)
    layer = tmp_path / "layer"
    cubinery.Context(-1, arch="sm_80", cache_dir=layer).compile(problem)
    over = cubinery.Context(
        -1,
        arch="sm_80",
        offline=True,
        cache_dir=tmp_path / "own",
        cache_layers=[tmp_path / "none", layer],
        cache_limit_bytes=1 << 20,
        trust_shared_dirs=True,
        trust="uid:65534,gid:2000",
        lock_wait=0.5,
        template_dirs=[],
        use_disk_cache=True,
    )
    assert [report["source"] for report in over.compile(problem)] == ["disk", "disk"]
    without = cubinery.Context(
        -1, arch="sm_80", offline=True, cache_dir=layer, use_disk_cache=False
    )
    with pytest.raises(cubinery.NotCachedError):
        without.compile(problem)
    with pytest.raises(cubinery.UnsupportedError, match="/no/libnvrtc.so"):
        cubinery.Context(-1, arch="sm_80", nvrtc_path="/no/libnvrtc.so").nvrtc_version


def test_the_environment_counts(monkeypatch, tmp_path):
    monkeypatch.setenv("CUBINERY_OFFLINE", "1")
    with pytest.raises(cubinery.NotCachedError):
        cubinery.Context(-1, arch="sm_90a", cache_dir=tmp_path).compile(cubinery.DecodeProblem())
    monkeypatch.setenv("CUBINERY_OFFLINE", "perhaps")
    with pytest.raises(cubinery.InvalidArgumentError, match="CUBINERY_OFFLINE"):
        cubinery.Context(-1, arch="sm_90a")


@pytest.mark.parametrize("trust", ["nobody", "uid:", "uid:1,", "65534"])
def test_trust_is_ids(monkeypatch, trust):
    with pytest.raises(cubinery.InvalidArgumentError, match="trust.*such as uid:65534,gid:2000"):
        cubinery.Context(-1, arch="sm_90a", trust=trust)
    monkeypatch.setenv("CUBINERY_TRUST", trust)
    with pytest.raises(cubinery.InvalidArgumentError, match="CUBINERY_TRUST.*such as uid:65534"):
        cubinery.Context(-1, arch="sm_90a")


def test_the_log_is_called_and_may_fail(tmp_path, compiler, monkeypatch):
    unwritable = tmp_path / "file"
    unwritable.write_text("")
    lines = []
    problem = cubinery.DecodeProblem(key_dim=16, value_dim=16)
    context = cubinery.Context(
        -1, arch="sm_90a", cache_dir=unwritable, log=lambda *line: lines.append(line)
    )
    context.compile(problem)
    assert any(level == "warning" and str(unwritable) in text for level, text in lines)
    assert context.stats().failed_writes == 2

    unraised = []
    monkeypatch.setattr("sys.unraisablehook", unraised.append)
    failing = cubinery.Context(-1, arch="sm_90a", cache_dir=unwritable, log=lambda: None)
    assert len(failing.compile(problem)) == 2
    assert unraised and unraised[0].exc_type is TypeError


# Takes the locks that it is told, says so, and keeps them until its input ends.
HOLDER = """
import fcntl, sys
files = [open(path, "w") for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_compiling_lets_other_threads_run(tmp_path, compiler):
    """A call that waits inside the library ends because this thread ends who it waits for."""
    problem = cubinery.DecodeProblem(key_dim=16, value_dim=16)
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    names = [Path(report["path"]).name for report in compiler.compile(problem)]
    taken = [str(locks / f"{name.split('-')[1]}.lock") for name in names]
    command = [sys.executable, "-c", HOLDER, *taken]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    lines = []
    waits = threading.Event()

    def log(level, text):
        lines.append(text)
        if "waiting for" in text:
            waits.set()

    # With the interpreter's lock held, this thread would be back when the wait is over.
    context = cubinery.Context(-1, arch="sm_90a", cache_dir=tmp_path, lock_wait=300, log=log)
    thread = threading.Thread(target=context.compile, args=(problem,))
    thread.start()
    while thread.is_alive() and not waits.wait(0.1):
        pass
    assert thread.is_alive(), lines
    holder.communicate()
    thread.join()
    assert "waiting for" in lines[0], lines
    assert context.stats().compiles == len(names)


def exit_code_of_child(body) -> int:
    """What body() returns in a child of os.fork(); 100 where it raises."""
    child = os.fork()
    if child == 0:
        code = 100
        try:
            code = body()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_is_refused(tmp_path):
    context = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir=tmp_path)

    def compile_in_child() -> int:
        try:
            context.compile(cubinery.DecodeProblem())
        except cubinery.UnsupportedError as error:
            return 0 if "fork()" in str(error) else 1
        return 2

    assert exit_code_of_child(compile_in_child) == 0


def test_a_forked_child_can_make_contexts_of_its_own():
    # As if another thread had been making one.
    with _context._contexts_lock:
        code = exit_code_of_child(lambda: 0 if _context._contexts_lock.acquire(timeout=60) else 1)
    assert code == 0


class Server:
    """Has a context whose log is a method of its own, and what `more` adds."""

    def __init__(self, more, **options):
        self.lines = []
        self.context = cubinery.Context(log=self.log, **options)
        self.more = more(self.context)

    def log(self, level, message):
        self.lines.append((level, message))


OPERATOR = cubinery.DecodeProblem(q_heads=2, k_heads=2, v_heads=2, key_dim=16, value_dim=16)


@pytest.mark.parametrize(
    "more",
    [
        lambda context: None,
        lambda context: context.prepare(OPERATOR),
        lambda context: [context.prepare(OPERATOR).choice, context.compile],
    ],
    ids=["context", "operator", "methods"],
)
def test_the_collector_sees_what_a_log_reaches(gpu, context, cache_dir, more):
    options = {"driver_path": str(gpu.path), "cache_dir": str(cache_dir)}
    servers = [Server(more, **options) for _ in range(5)]
    gone = [weakref.ref(server) for server in servers]
    gone += [weakref.ref(server.context) for server in servers]
    del servers
    gc.collect()
    assert [reference() for reference in gone] == [None] * len(gone)


def test_a_log_lives_as_long_as_an_operator(gpu, context, cache_dir):
    """A handle alone keeps what may still write to the log."""
    server = Server(
        lambda context: context.prepare(OPERATOR),
        driver_path=str(gpu.path),
        cache_dir=str(cache_dir),
    )
    operator, gone = server.more, weakref.ref(server)
    del server
    gc.collect()
    assert gone() is not None
    del operator
    gc.collect()
    assert gone() is None


def test_progress_is_kept_by_nobody(compiler, tmp_path):
    class Progress:
        def __init__(self):
            self.context = compiler

        def __call__(self, at):
            return True

    progress = Progress()
    gone = weakref.ref(progress)
    with pytest.raises(cubinery.UnsupportedError):  # without a device
        compiler.tune(OPERATOR, [{"batch": 1}], progress=progress, directory=tmp_path)
    del progress
    gc.collect()
    assert gone() is None


def test_compile_tells_the_log_of_each_kernel(compiler, tmp_path):
    messages, threads = [], set()

    def log(level: str, message: str) -> None:
        messages.append((level, message))
        threads.add(threading.get_ident())

    context = cubinery.Context(-1, arch="sm_90a", cache_dir=str(tmp_path), log=log)
    problem = cubinery.VerifyProblem(key_dim=32, value_dim=32)
    reports = context.compile(problem)
    assert {report["source"] for report in reports} == {"compiled"} and len(reports) > 1
    assert {level for level, _ in messages} == {"info"}
    said = sorted(message.split(": ")[-1] for _, message in messages)
    count = len(reports)
    assert said == sorted(f"{done} of {count} are there" for done in range(1, count + 1))
    assert all(" for sm_90a in " in message for _, message in messages)
    assert len(threads) > 1 or os.cpu_count() == 1
    messages.clear()
    assert {report["source"] for report in context.compile(problem)} == {"memory"}
    assert messages == []
