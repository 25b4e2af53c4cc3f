"""Kernels with choices, tuned on a GPU that is not there, whose events tell the time."""

import json
import re

import cubinery
import pytest
from cubinery._tunable import StreamKernel
from fake_gpu import FakeArray

numpy = pytest.importorskip("numpy")

SCALE = """
__global__ void __launch_bounds__(BLOCK) scale(float* x, int n) {
  for (int i = 0; i < VEC; ++i) x[(blockIdx.x * BLOCK + threadIdx.x) * VEC + i] *= 2;
}
"""
CHOICES = {"BLOCK": [256, 64, 128], "VEC": [1, 2]}


def launch(kernel, c, x, n):
    kernel[n, c.BLOCK](x, n)


def operands(n):
    return FakeArray(n), n


def right(run):
    run(FakeArray(1001), 1001)
    return True


@pytest.fixture
def options(empty_kernels, tmp_path):
    return {**empty_kernels, "cache_dir": tmp_path}


@pytest.fixture
def make(options, gpu):
    """The kernel in a new context; the fastest block is one of 64 threads."""
    for block, ms in ((256, 3.0), (64, 1.0), (128, 2.0)):
        gpu.set_cost(block, ms)

    def made(offline=False, **changes):
        context = cubinery.Context(0, **options, offline=offline)
        given = {"name": "scale", "choices": CHOICES, "launch": launch, **changes}
        return cubinery.TunableKernel(given.pop("source", SCALE), **given, context=context)

    return made


def tuned(kernel, shapes=({"n": 1000},), **changes):
    return kernel.tune(list(shapes), **{"operands": operands, "check": right, **changes})


def test_the_fastest_is_found_by_others(make, gpu, options):
    first = make().kernel({"n": 1000})
    assert (first.rung, vars(first.choices)) == ("default", {"BLOCK": 256, "VEC": 1})
    summary = tuned(make())
    assert (summary["measured"], summary["rejected"], summary["stopped"]) == (6, 0, False)
    (shape,) = summary["shapes"]
    assert shape["complete"] and shape["default"] == "BLOCK=256;VEC=1"
    assert shape["chosen"].startswith("BLOCK=64;")
    assert shape["chosen_ms"]["median"] == pytest.approx(1)
    for offline in (False, True):
        best = make(offline).kernel({"n": 600})
        assert (best.rung, best.choices.BLOCK) == ("nearest shape", 64)
        best(FakeArray(600), 600)
        assert gpu.last_config["block"] == (64, 1, 1)
        assert gpu.last_stream == 0
    assert tuned(make())["measured"] == 0
    table = cubinery.tuning_report(summary["directory"], op="scale")
    assert "BLOCK=64" in table


def test_an_edit_makes_results_stale(make):
    tuned(make())
    edited = make(source=SCALE + "// edited\n")
    assert edited.kernel({"n": 1000}).rung == "stale"
    assert tuned(edited)["measured"] == 6
    assert edited.kernel({"n": 1000}).rung == "exact"
    assert make(options=["--use_fast_math"]).kernel({"n": 1000}).rung == "default"


def test_launches_are_captured_on_the_stream_that_is_given(make, gpu):
    streams = []

    def both(kernel, c, x, n):
        if isinstance(kernel, StreamKernel):
            streams.append(kernel._stream)
            kernel.launch(x, n, grid=1, block=c.BLOCK)
            kernel[1, c.BLOCK, 16](x, n)
            assert gpu.last_config["shared_bytes"] == 16
            assert kernel.info.parameter_bytes == (8, 4)
        else:
            kernel[1, c.BLOCK](x, n)

    gpu.set_current_stream(0x50)
    summary = tuned(make(launch=both), operands=lambda n: (gpu.FastArray(n), n))
    assert summary["shapes"][0]["chosen_ms"]["median"] == pytest.approx(2)
    assert set(streams) == {0x7000}


def test_a_launch_beside_the_stream_is_no_measurement(make, gpu):
    def beside(kernel, c, x, n):
        kernel.launch(x, n, grid=1, block=c.BLOCK, stream=0x60)

    summary = tuned(make(launch=beside))
    assert summary["rejected"] == 6
    assert summary["shapes"][0]["why"] == "no configuration runs and is right"


def test_combinations_that_are_wrong_are_not_chosen(make, gpu):
    checked = []

    def check(run):
        run(FakeArray(8), 8)
        block = gpu.last_config["block"][0]
        checked.append(block)
        return (0.5, 0.1) if block == 64 else (0.05, 0.1)

    summary = tuned(make(), check=check)
    assert summary["rejected"] == 2
    assert summary["shapes"][0]["chosen"].startswith("BLOCK=128")
    assert sorted(checked) == [64, 64, 128, 128, 256, 256]
    report = cubinery.tuning_report(summary["directory"], format="json")
    assert "off by 0.5, allowed are 0.1" in report
    other = make(options=["-lineinfo"])
    assert tuned(other, check=lambda run: numpy.bool_(False))["rejected"] == 6


def test_combinations_that_cannot_be_are_left_out(make):
    source = SCALE + "static_assert(BLOCK != 64 || VEC != 2);"
    summary = tuned(make(source=source))
    assert summary["rejected"] == 1
    valid = make(valid=lambda c: c.BLOCK * c.VEC < 200)
    assert tuned(valid)["measured"] == 3
    assert vars(make(valid=lambda c: c.VEC == 2).kernel({"n": 1}).choices) == {
        "BLOCK": 256,
        "VEC": 2,
    }


def test_the_default_has_to_compile(make):
    with pytest.raises(cubinery.CompileError) as error:
        tuned(make(source=SCALE + "static_assert(BLOCK != 256);"))
    assert "static assertion failed" in error.value.log


def test_a_kernel_that_is_not_there_gives_the_default(make, options, tmp_path):
    tuned(make())
    kept = make().kernel({"n": 1000})
    assert kept.choices.BLOCK == 64
    for entry in (tmp_path / "entries").iterdir():
        entry.unlink()
    with pytest.raises(cubinery.NotCachedError):
        make(offline=True).kernel({"n": 1000})
    make(choices={"BLOCK": [256], "VEC": [1]}).compile()
    found = make(offline=True).kernel({"n": 1000})
    assert (found.rung, found.choices.BLOCK) == ("default", 256)
    assert found.why.startswith("the kernel that tuning chose cannot be had: not in the cache")


def test_every_combination_is_compiled_without_a_gpu(make, compiler, tmp_path):
    reports = make().compile(cubinery.Context(-1, arch="sm_80", cache_dir=tmp_path))
    assert [report["choices"] for report in reports][:2] == [
        {"BLOCK": 256, "VEC": 1},
        {"BLOCK": 256, "VEC": 2},
    ]
    assert {(report["source"], report["arch"]) for report in reports} == {("compiled", "sm_80")}
    without = cubinery.TunableKernel(
        SCALE, name="scale", choices=CHOICES, launch=launch, context=compiler
    )
    with pytest.raises(cubinery.UnsupportedError):
        tuned(without)


class Mine(Exception):
    pass


def raise_mine(*args, **named):
    raise Mine("the user's")


@pytest.mark.parametrize("of", ["operands", "check", "launch", "progress"])
@pytest.mark.parametrize("error", [Mine, KeyboardInterrupt])
def test_exceptions_end_the_tuning(make, gpu, of, error):
    def failing(*args, **named):
        raise error("the user's")

    kernel = make(launch=failing) if of == "launch" else make()
    with pytest.raises(error, match="the user's"):
        tuned(kernel, **({of: failing} if of != "launch" else {"check": lambda run: True}))
    # Nothing was held against the combination.
    summary = tuned(make())
    assert (summary["measured"] + summary["reused"], summary["rejected"]) == (6, 0)


def test_operands_are_new_for_each_set(make):
    made = []

    class Sized(FakeArray):
        nbytes = 1 << 20

    def operands(n):
        made.append(Sized(n))
        return made[-1], n

    tuned(make(), operands=operands)
    sets = 4 * (50 << 20) // (1 << 20) + 1  # of the fake GPU's L2
    assert len(made) % sets == 0 and len({array.address for array in made}) == len(made)


def test_choices_of_text_and_bool(make, gpu):
    source = "template <bool B, class T> __global__ void f(T* x) {} __global__ void scale(Type* x, int n) { if (FLAG) x[0] = n; }"
    kernel = make(source=source, choices={"Type": ["float", "double"], "FLAG": [True, False]},
                  launch=lambda kernel, c, x, n: kernel[1, 64 if c.FLAG else 256](x, n))  # fmt: skip
    summary = tuned(kernel)
    assert re.fullmatch("Type=(float|double);FLAG=true", summary["shapes"][0]["chosen"])
    assert kernel.kernel({"n": 1000}).choices.FLAG is True
    results = json.loads(cubinery.tuning_report(summary["directory"], format="json"))
    assert results


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choices": [1]}, "choices: is of type list; accepted: a mapping such as"),
        ({"choices": {"BLOCK": 3}}, "choices['BLOCK']: is of type int; accepted: a list or tuple"),
        ({"choices": {"2A": [1]}}, "choices = '2A'; accepted: names of macros"),
        ({"choices": {3: [1]}}, "choices = 3; accepted: names of macros"),
        ({"choices": {"BLOCK": [1.5]}}, "choices['BLOCK'] = 1.5; accepted: int, bool, str"),
        ({"choices": {"BLOCK": []}}, "choices = {'BLOCK': []}; accepted: at least one valid"),
        ({"valid": lambda c: False}, "choices = {'BLOCK'"),
        ({"valid": 3}, "valid: is of type int; accepted: a callable"),
        ({"launch": None}, "launch: is of type NoneType; accepted: a callable"),
        ({"source": b"x"}, "source: is of type bytes; accepted: a str of CUDA C++"),
    ],
)
def test_arguments_are_checked(make, changes, message):
    with pytest.raises(cubinery.InvalidArgumentError, match="^" + re.escape(message)):
        make(**changes)


def test_results_need_a_name(make):
    for call in (lambda kernel: kernel.kernel({"n": 1}), tuned):
        with pytest.raises(cubinery.InvalidArgumentError, match="the text has no name, which res"):
            call(make(name=""))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"check": lambda run: None}, TypeError, "check.. returned None; accepted: True, False or"),
        ({"check": lambda run: 0.5}, TypeError, "check.. returned 0.5; accepted: True, False or"),
        ({"check": lambda run: numpy.float32(0.5)}, TypeError, "accepted: True, False or"),
        ({"check": 3}, cubinery.InvalidArgumentError, "check: is of type int"),
        ({"operands": None}, cubinery.InvalidArgumentError, "operands: is of type NoneType"),
        ({"operands": lambda n: 3}, TypeError, "int"),
        ({"operands": lambda: ()}, TypeError, "unexpected keyword"),
        ({"budget": -1}, cubinery.InvalidArgumentError, "budget = -1"),
        ({"progress": 3}, cubinery.InvalidArgumentError, "progress: is of type int"),
        ({"shapes": [{"n": 0}]}, cubinery.InvalidArgumentError, "the size n is 0"),
        ({"shapes": [{"n": "x"}]}, cubinery.InvalidArgumentError, r"shapes\[0\].n"),
        ({"shapes": [3]}, cubinery.InvalidArgumentError, r"shapes\[0\]: is of type int"),
    ],
)
def test_arguments_of_tune_are_checked(make, changes, error, message):
    with pytest.raises(error, match=message):
        tuned(make(), **changes)
