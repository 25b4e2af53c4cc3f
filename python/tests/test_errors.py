"""Exceptions: each code has its class, and the message stays."""

import pickle
import re

import cubinery
import pytest
from cubinery import _errors
from fake_gpu import CPU, FakeArray


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


WITHOUT_GPU = [
    (lambda: cubinery.Context(-1), "arch = None; accepted: sm_80, "),
    (lambda: cubinery.Context("cuda:0"), "device = 'cuda:0'; accepted: an int"),
    (lambda: cubinery.Context(-1, arch=90), "arch = 90; accepted: a str"),
    (lambda: cubinery.Context(-1, arch="sm_1"), 'arch = "sm_1"; accepted: sm_80, '),
    (lambda: cubinery.Context(offline="yes"), "offline = 'yes'; accepted: True, False or None"),
    (lambda: cubinery.Context(cache_limit_bytes=1.5), "cache_limit_bytes = 1.5; accepted: an int"),
    (lambda: cubinery.Context(lock_wait="5"), "lock_wait = '5'; accepted: seconds, from 0 to 1e9"),
    (lambda: cubinery.Context(lock_wait=float("nan")), "lock_wait = nan; accepted: seconds"),
    (lambda: cubinery.Context(cache_dir=3), "cache_dir = 3; accepted: a str, bytes or a path"),
    (lambda: cubinery.Context(cache_dir=b"a\0b"), r"cache_dir = b'a\x00b'; accepted: text without"),
    (
        lambda: cubinery.Context(cache_dir="\ud800"),
        r"cache_dir = '\ud800'; accepted: paths that os.",
    ),
    (
        lambda: cubinery.Context(cache_layers=[b"a:b"]),
        "cache_layers = b'a:b'; accepted: text without",
    ),
    (
        lambda: cubinery.Context(arch="\udcff"),
        r"arch = '\udcff'; accepted: text without surrogates",
    ),
    (lambda: cubinery.Context(cache_dir="a\0b"), r"cache_dir = 'a\x00b'; accepted: text without"),
    (lambda: cubinery.Context(cache_layers="/a"), "cache_layers: is of type str; accepted: a list"),
    (lambda: cubinery.Context(paths=[3]), "paths = 3; accepted: a str"),
    (
        lambda: _compiler(paths=["gdn_decode=none"]).compile(cubinery.DecodeProblem()),
        'paths has "gdn_decode=none"; paths of gdn_decode: portable',
    ),
    (lambda: cubinery.Context(log=3), "log: is of type int; accepted: a callable"),
    (
        lambda: cubinery.Context(driver_path="/no/libcuda.so"),
        "or name its library in driver_path (CUBINERY_DRIVER)",
    ),
    (lambda: _compiler().compile("gdn_decode"), "problem: is of type str; accepted: problems"),
    (lambda: _compiler().explain(None), "problem: is of type NoneType; accepted: problems"),
    (lambda: _compiler().prepare(cubinery.DecodeProblem), "problem: is of type type; accepted"),
    (
        lambda: _compiler().prepare(cubinery.DecodeProblem()),
        "a context with device=-1 loads no kernels; use compile()",
    ),
    (
        lambda: cubinery.DecodeProblem(key_dim="128").check(),
        "gdn_decode: key_dim = '128'; accepted: an int",
    ),
    (
        lambda: cubinery.DecodeProblem(use_qk_l2norm=1).to_json(),
        "gdn_decode: use_qk_l2norm = 1; accepted: True, False",
    ),
    (
        lambda: cubinery.PrefillProblem(state_dtype="float32").check(),
        "gdn_prefill: state_dtype = 'float32'; accepted: 'f32', 'bf16', 'f16'",
    ),
    (
        lambda: cubinery.DecodeProblem.from_json({}),
        "text: is of type dict; accepted: a str of JSON",
    ),
    (lambda: _tune(shapes={"batch": 8}), "shapes: is of type dict; accepted: a sequence of map"),
    (lambda: _tune(shapes=[8]), "shapes[0]: is of type int; accepted: a mapping such as"),
    (lambda: _tune(budget="10m"), "budget = '10m'; accepted: seconds, from 0 to 1e9"),
    (lambda: _tune(again=1), "again = 1; accepted: True, False"),
    (lambda: _tune(compile_threads=-1), "compile_threads = -1; accepted: integers from 0 up"),
    (lambda: _tune(directory=3), "directory = 3; accepted: a str, bytes or a path"),
    (lambda: _tune(progress=3), "progress: is of type int; accepted: a callable, or None"),
    (lambda: _tune(), "a context with device=-1 has no GPU"),
    (lambda: cubinery.tuning_report(3), "directory = 3; accepted: a str, bytes or a path"),
    (lambda: cubinery.tuning_report(".", format=3), "format = 3; accepted: table, json, "),
    (lambda: cubinery.gdn_decode(None, 0, 0), "q: is of type NoneType; accepted: arrays with __d"),
    (lambda: cubinery.gdn_decode([1], 0, 0, context=3), "context: is of type int; accepted: a cub"),
]


def _compiler(**options):
    return cubinery.Context(-1, arch="sm_90a", use_disk_cache=False, **options)


def _tune(shapes=({"batch": 8},), **settings):
    return _compiler().tune(cubinery.DecodeProblem(), shapes, **settings)


# Words of C++, of C and of the command line.
FOREIGN = re.compile(r"::|nullptr|NULL|\bnull\b|\bk[A-Z]|--\w|settings\.|request\.|_ms\b|->")


@pytest.mark.parametrize(("call", "message"), WITHOUT_GPU, ids=[text for _, text in WITHOUT_GPU])
def test_errors_speak_python(call, message):
    with pytest.raises(cubinery.Error) as caught:
        call()
    assert message in str(caught.value)
    assert not FOREIGN.search(str(caught.value))


H, D = 2, 16
DIMS = {"q_heads": H, "k_heads": H, "v_heads": H, "key_dim": D, "value_dim": D}


def launch(op, **changed):
    """A decode or a prefill of one request, with some arguments changed."""
    lead = (1,) if isinstance(op, cubinery.Decode) else (1, 40)
    q, k, v, out = (FakeArray(*lead, H, D, dtype="bf16") for _ in range(4))
    g, beta = (FakeArray(*lead, H) for _ in range(2))
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "out": out}
    return op(**{**given, "state": FakeArray(1, H, D, D), **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": None}, "q is None; accepted: an array"),
        ({"out": None}, "gdn_decode: out is None; accepted: an array"),
        ({"out": [1]}, "out: is of type list; accepted: arrays with __dlpack__"),
        ({"out": FakeArray(1, H, D)}, "gdn_decode: out has dtype f32; accepted: bf16"),
        ({"A_log": FakeArray(H)}, "gdn_decode: A_log is given; accepted: None, gate_mode is"),
        ({"stream": "main"}, "stream = 'main'; accepted: a cudaStream_t as an int, or None"),
        ({"stream": 1 << 70}, f"stream = {1 << 70}; accepted: a cudaStream_t"),
        ({"scale": "half"}, "scale = 'half'; accepted: a number, or None"),
        ({"scratch_slot": "3"}, "scratch_slot = '3'; accepted: integers of 64 bits, or None"),
        ({"scratch_slot": 1 << 63}, f"scratch_slot = {1 << 63}; accepted: integers of 64 bits"),
        ({"pad_slot_id": 1.5}, "pad_slot_id = 1.5; accepted: integers of 64 bits, or None"),
        ({"pad_slot_id": 0}, "pad_slot_id is 0; accepted: none, state_location is dense"),
        ({"zero_padding": True}, "zero_padding is true; accepted: false, pad_slot_id is absent"),
    ],
)
def test_launches_speak_python(context, changed, message):
    decode = context.prepare(cubinery.DecodeProblem(**DIMS))
    with pytest.raises((cubinery.InvalidArgumentError, TypeError)) as caught:
        launch(decode, **changed)
    assert message in str(caught.value)
    assert not FOREIGN.search(str(caught.value))


def test_sizes_and_workspaces_speak_python(context):
    prefill = context.prepare(cubinery.PrefillProblem(**DIMS))
    with pytest.raises(TypeError, match="tokens = '8'; accepted: integers of 64 bits"):
        prefill.workspace_bytes("8", 1)
    with pytest.raises(TypeError, match="sequences = 1.5; accepted: integers"):
        prefill.choice(8, 1.5)
    with pytest.raises(TypeError, match="max_seqlen = 'long'; accepted: integers"):
        launch(prefill, workspace=FakeArray(1 << 20), max_seqlen="long")
    with pytest.raises(cubinery.InvalidArgumentError, match="q: is of type NoneType"):
        launch(prefill, q=None)
    refused = "workspace: 1 dimensions on cpu; accepted: one dimension without gaps on cuda:0"
    with pytest.raises(cubinery.InvalidArgumentError, match=refused):
        launch(prefill, workspace=FakeArray(1 << 20, device=(CPU, 0)))


def test_functions_name_their_own_arguments(context):
    tokens = [FakeArray(1, 40, H, D, dtype="bf16") for _ in range(3)]
    wrong = FakeArray(1, 40, H)
    wrong.dtype = "float64"
    for given, message in (
        ({"g": wrong}, "g: has dtype float64; accepted: f32, bf16, f16, i32, i64, f8e4m3"),
        ({"gate_mode": "lgo"}, "gate_mode = 'lgo'; accepted: 'none', 'log', 'alpha', 'computed'"),
        ({"output_dtype": "float16"}, "output_dtype = 'float16'; accepted: 'f32', 'bf16', 'f16'"),
        (
            {"checkpoint_mode": "all"},
            "checkpoint_mode = 'all'; accepted: 'none', 'before', 'after', 'at'",
        ),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            cubinery.gdn_prefill(*tokens, out=tokens[2], context=context, **given)
