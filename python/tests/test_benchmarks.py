"""The programs of benchmarks/, end to end without a GPU: each writes a record that scripts/write_results.py reads."""

import importlib.util
import json
import logging
import sys
import types
from pathlib import Path
from unittest import mock

import pytest
from cubinery import problems_for_model
from cubinery.compat import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

import engine_results  # noqa: E402: the path comes first
import first_request  # noqa: E402
import transformers_speed  # noqa: E402
import write_results  # noqa: E402


_WITH_TORCH = (
    "contenders", "data", "ours", "peers_gdn", "peers_kda", "reference", "run", "timing",
)  # fmt: skip


def _compare(monkeypatch, **peers):
    """benchmarks/compare.py on cubinery and `peers`, a GPU and times (peers: in ms) that are not there."""
    torch = mock.MagicMock()
    torch.cuda.get_device_properties.return_value = types.SimpleNamespace(
        name="Test GPU", multi_processor_count=132
    )
    torch.version.cuda = "13.0"
    for name, module in {"torch": torch, "torch.nn": torch.nn}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in _WITH_TORCH:  # with this torch
        monkeypatch.delitem(sys.modules, f"compare.{name}", raising=False)
    from compare import contenders, run, timing

    times = {"cubinery": 0.2} | peers
    present = [types.SimpleNamespace(name=name, nvrtc="13.0") for name in times]
    timed = {"status": "timed", "error_o": 1e-3, "error_state": 2e-3, "how": "graph"}

    def run_row(row, found, replays):
        return {
            one.name: timed | {"ms": ms, "ms_p10": 0.9 * ms, "ms_p90": 1.1 * ms}
            for one in found
            for ms in [times[one.name]]
        }

    monkeypatch.setattr(contenders, "load", lambda names: (present, {"flashinfer": "ImportError"}))
    monkeypatch.setattr(timing, "copy_rate_tb_s", lambda: 4.0)
    monkeypatch.setattr(run, "run_row", run_row)
    monkeypatch.setattr(run, "cuda_lost", lambda: "")
    spec = importlib.util.spec_from_file_location("compare_main", ROOT / "benchmarks/compare.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def test_compare(monkeypatch, tmp_path, capsys):
    program, out = _compare(monkeypatch, **{"fla-1.2": 0.5}), tmp_path / "record.json"
    assert program.main(["--rows", "all", "--out", str(out), "--commit", "abc"]) == 0
    record = json.loads(out.read_text())
    compared = write_results.compared_rows([record])
    assert len(compared) == len(record["rows"]) > 50 and record["missing"] == {
        "flashinfer": "ImportError"
    }
    others = [row for row in compared if row["op"] != "gdn_conv"]
    text = "\n".join(write_results.compared_table(others, write_results.data))
    assert "| decode | 16, 32 | 1 request | f32 states | " in text
    assert "| 200 us | 500 us | 2.50x |" in text
    assert "*" not in text
    row = others[0] | {"earlier_ms": others[0]["peers_ms"], "peers_ms": {}}
    *_, starred, _, note, _ = write_results.compared_table([row], write_results.data)
    assert starred.endswith("| 500 us* |  |") and note == "\\*: in an earlier run."
    assert write_results.conv_compared_table(write_results.conv_rows(compared))
    assert "| qwen-bf16 |" in "\n".join(write_results.error_table(record["rows"], (16, 32)))

    capsys.readouterr()
    assert program.main(["table", str(out)]) == 0
    assert "200 (180 to 220)" in capsys.readouterr().out
    if importlib.util.find_spec("matplotlib"):
        assert program.main(["plot", str(out), "--out", str(tmp_path / "pictures")]) == 0


def test_contenders_are_where_the_list_says(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn.linear_attention.hopper.cuda_host", mock.MagicMock())
    _compare(monkeypatch)
    contenders = importlib.import_module("compare.contenders")
    assert set(contenders.WITHOUT_CONVOLUTION) <= contenders.LOADERS.keys()
    for name in contenders.LOADERS:
        cls = contenders.class_of(name)
        assert all(hasattr(cls, kind) for kind in ("decode", "verify", "prefill", "conv"))
    for name in ("cudnn", "cudnn_log", "vllm"):
        one = object.__new__(contenders.class_of(name))
        with pytest.raises(contenders.NotOffered, match="only its Kimi Delta Attention"):
            one.prefill(types.SimpleNamespace())
    names = [contenders.class_of(name)().name.split("-")[:2] for name in ("cudnn", "cudnn_log")]
    assert names[0][0] == "cudnn" and names[1] == ["cudnn", "log"]


@pytest.mark.parametrize("channels", [False, True])
def test_reference_of_prefill(monkeypatch, channels):
    """Chunks give what the token-by-token loop gives, with decays that overflow when they are inverted."""
    torch = pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "compare.reference", raising=False)
    reference = importlib.import_module("compare.reference")
    random = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64)

    tokens, keys, heads, dim = 2 * reference.CHUNK + 5, 2, 4, 32
    q, k = (torch.nn.functional.normalize(normal(tokens, keys, dim), dim=-1) for _ in range(2))
    g = -20 * normal(tokens, heads, *[dim] * channels).abs()
    beta = normal(tokens, heads).sigmoid()
    x = (q, k, normal(tokens, heads, dim), g, beta, normal(heads, dim, dim), dim**-0.5)
    for actual, expected in zip(reference.chunked(*x), reference.recurrence(*x), strict=True):
        assert reference.relative_rms(actual, expected) < 1e-12


def test_compare_kda(monkeypatch, tmp_path, capsys):
    """The yardstick is no peer, and rows without one stay."""
    times = {"cubinery-gdn": 0.1, "fla-1.2": 0.5}
    program, out = _compare(monkeypatch, **times), tmp_path / "record.json"
    assert program.main(["--rows", "kda", "--out", str(out), "--commit", "abc"]) == 0
    assert "layer 12,12 B=8 f32 kda" in capsys.readouterr().out
    record = json.loads(out.read_text())
    assert {row["gdn_ms"] for row in record["rows"]} == {0.1}
    assert all(row["peers_ms"] == {"fla-1.2": 0.5} for row in record["rows"])
    labels = [row["label"] for row in record["rows"]]
    assert len(labels) == len(set(labels)) == 53
    record["rows"][0]["peers_ms"] = {}
    rows = write_results.compared_rows([record])
    assert len(rows) == len(record["rows"])
    alone, beside = write_results.compared_table(rows[:2], write_results.data, yardstick=True)[2:4]
    assert alone.startswith(
        "| KDA decode | 32, 32 | 1 request | f32 states | 1.06 us | 200 us | 100 us |"
    )
    assert alone.endswith("|  |  |") and beside.endswith("| 500 us | 2.50x |")
    _, _, line, *_ = write_results.compared_table(rows[10:11], write_results.dtype)
    assert "| f32 states, convolution and norm | 0.43 us | 200 us | 500 us | 2.50x |" in line


def test_compare_kda_prefill(monkeypatch, tmp_path, capsys):
    peers = {"cubinery-gdn": 0.1, "fla-1.2": 0.5, "cudnn-1.3": 0.3, "cudnn-log-1.3": 0.25}
    program, out = _compare(monkeypatch, **peers), tmp_path / "record.json"
    assert program.main(["--rows", "kda", "--only", "prefill", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "prefill 16,16 2048x8 fast-bf16 kda" in shown
    means = "cubinery 200, cubinery-gdn 100, fla-1.2 500, cudnn-1.3 300, cudnn-log-1.3 250"
    assert f"geometric mean of the ten prefills of kda, fast, us: {means}" in shown
    assert "kda, slow, us" not in shown

    record = json.loads(out.read_text())
    assert {row["gate_mode"] for row in record["rows"] if row["protocol"] == "slow-bf16"} == {
        "lower_bound"
    }
    (row,) = (row for row in record["rows"] if row["label"] == "prefill 64,64 8192 softplus-bf16 kda")
    assert row["gate_mode"] == "computed" and row["decay"] == "channel"
    # q, k, v, a and o, b; final states.
    floor = (8192 * 64 * (5 * 256 + 2) + 64 * 128 * 128 * 4) / 4e9
    assert row["byte_floor_ms"] == pytest.approx(floor, rel=1e-3)
    lines = write_results.compared_table([row], write_results.data, yardstick=True)
    assert "| cuDNN 1.3 | cuDNN, g given, 1.3 | FLA 1.2 |" in lines[0]
    assert "| KDA prefill | 64, 64 | 8192 tokens | softplus-bf16 |" in lines[2]
    if importlib.util.find_spec("matplotlib"):
        assert program.main(["plot", str(out), "--out", str(tmp_path / "pictures")]) == 0
        assert (tmp_path / "pictures" / "kda_prefill.svg").exists()
    gpu = {"gpu": "Test GPU"}
    records = types.SimpleNamespace(
        alone=gpu, kda=[], h100=gpu, h100_kda=write_results.compared_rows([record])
    )
    section = " ".join(write_results.kda_prefill_section(records))
    assert "fast gates: cubinery 200 us, its GDN 100 us, FLA 1.2 500 us" in section
    assert "slow gates:" not in section and "plots/kda_prefill.svg" in section
    picture = write_results.kda_prefill_picture(records)
    assert picture.count("<circle") == 17 * 4 and "8 x 2048 tokens, 16 heads" in picture
    records.h100_kda = []
    assert not write_results.kda_prefill_section(records)

    assert program.main(["--rows", "kda", "--only", "prefill", "--gates", "slow", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert {row["protocol"] for row in record["rows"]} == {"slow-bf16"} and len(record["rows"]) == 17
    with pytest.raises(SystemExit):
        program.main(["--rows", "kda", "--gates", "qwen"])
    assert "one of fast, slow, softplus" in capsys.readouterr().err


# A child that finds what it was given, compiles where its cache is empty, and is faster where not.
_CHILD = """
import json, os, time
marker = os.path.join(os.environ["CUBINERY_CACHE_DIR"], "kernel")
compiled = int(not os.path.exists(marker))
os.makedirs(os.path.dirname(marker), exist_ok=True)
open(marker, "w").close()
assert os.environ["TRITON_CACHE_DIR"].startswith(CACHE) and 0 < STARTED < time.monotonic_ns()
seconds = 2.0 if compiled else 0.5
print(json.dumps({"seconds": seconds, "after_import_torch": seconds / 2,
                  "of_which": {"prepare": seconds / 4}, "compiled": compiled,
                  "error_o": 1e-3, "error_state": 2e-3, "gpu": "Test GPU"}))
"""


def test_first_request(monkeypatch, tmp_path, capsys):
    def child(code):
        return lambda cache, started: [
            sys.executable,
            "-c",
            f"CACHE, STARTED = {cache!r}, {started}\n{code}",
        ]

    children = {"cubinery-cpp": child(_CHILD), "fla": child("raise SystemExit('no GPU')")}
    monkeypatch.setattr(first_request, "commands", lambda bench: children)
    monkeypatch.setattr(first_request, "IMPORTS", 1)
    out = tmp_path / "record.json"
    assert first_request.main(["--repetitions", "2", "--out", str(out)]) == 0
    assert "fla failed: RuntimeError: exit status 1: no GPU" in capsys.readouterr().out
    record = json.loads(out.read_text())
    record["rows"] = [row for row in record["rows"] if "seconds" in row]
    (line,) = write_results.first_request_table(record)[2:-1]
    assert line == "| cubinery, C++ | 2.00 s | 500 ms | 1.00 s | 250 ms |"


class Model:
    """A prompt takes 3 s, then 5 s, then 4 s; a token 2 s. Twice as fast with cubinery."""

    config = types.SimpleNamespace(
        model_type="qwen3_next", num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["x"],
        hidden_size=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=32, num_experts=8,
    )  # fmt: skip

    def __init__(self):
        self.now, self.prompts, self.speed = 0.0, 0, 1

    def __call__(self, ids, **_):
        self.now += (4, 3, 5, 4)[self.prompts % 4] / self.speed
        self.prompts += 1

    def generate(self, ids, max_new_tokens, min_new_tokens, **_):
        assert max_new_tokens == min_new_tokens
        self.now += (3 + 2 * (max_new_tokens - 1)) / self.speed


def test_transformers_speed(monkeypatch, tmp_path):
    model, out = Model(), tmp_path / "record.json"
    torch = mock.MagicMock()
    torch.cuda.get_device_name.return_value = "a GPU"
    monkeypatch.setitem(sys.modules, "torch", torch)
    logger = logging.getLogger("cubinery.compat.transformers")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(transformers_speed, "hide_kernels", lambda: None)
    monkeypatch.setattr(transformers_speed, "build", lambda *_: model)
    monkeypatch.setattr(transformers_speed.time, "perf_counter", lambda: model.now)
    monkeypatch.setattr(transformers, "enable", lambda one: setattr(one, "speed", 2))
    assert transformers_speed.main(["--repeats", "3", "--new", "8", "--out", str(out)]) == 0

    record = json.loads(out.read_text())
    record["packages"] |= {"torch": "2.11.0", "transformers": "5.24.0"}
    lines = write_results.transformers_section(record)
    assert (
        "| a prompt of 4096 tokens | 4.00 s (3.00 s to 5.00 s) | 2.00 s (1.50 s to 2.50 s) | 2.00x |"
        in lines
    )


def _engine_run(tokens, error):
    return {"tokens": tokens, "margins": [[0.5] * len(row) for row in tokens], "error": {"max": error}}


def test_tokens_of_engines_differ_by_ties_only(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "engines"))
    import judge

    alone = _engine_run([[1, 2, 3], [4, 5, 6]], 0.3)
    assert judge.tokens(_engine_run([[1, 2, 3], [4, 5, 6]], 0.1), alone)["same"] == 6
    found = judge.tokens(_engine_run([[1, 2, 3], [4, 9, 9]], 0.3), alone)
    assert (found["same"], found["of"], found["margins"]) == (4, 6, [0.5])
    assert found["only_ties"]  # within the errors of both
    assert not judge.tokens(_engine_run([[9, 9, 9], [4, 5, 6]], 0.1), alone)["only_ties"]


def test_speed_of_engines_is_a_ratio_of_medians(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "engines"))
    import judge

    ours, alone = {"decode_1_s": [2.0, 1.0, 9.0], "start_s": 4.0}, {"decode_1_s": [3.0], "start_s": 8.0}
    assert judge.speedups(ours, alone) == {"decode_1": 1.5}


def test_records_of_engines_say_which_layer():
    record = {
        "gpu": "Test GPU", "engine": "SGLang 1.0", "torch": "2", "date": "2026-12-01", "commit": "abc",
        "prefill_backend": "triton",
        "rows": [{"load": "decode_1", "layer_us": 4.0, "layer_us_alone": 8.0}],
    }  # fmt: skip
    records = [record, record | {"layer": "kda"}]
    lines = engine_results.section(records, lambda text: [text], lambda head, rows: rows)
    assert "SGLang 1.0, Test GPU, PyTorch 2, the engine's prefill by Triton; commit abc" in lines[5]
    assert lines[7].startswith("Kimi Delta Attention with 32 heads, SGLang 1.0, Test GPU")
    assert lines[6] == lines[8] == ["decode, 1 request", "8.0 us", "4.0 us", "2.00x"]
    model = record | {"rows": [row | {"kind": "kimi_linear"} for row in record["rows"]]}
    model |= {"gpu": "Newer GPU", "date": "2026-12-02"}
    assert engine_results.bars([*records, model])[0] == [("SGLang, decode, 1 request", 8.0, 4.0)]


def test_kimi_linear_is_configured_as_vllm_and_prewarm_read_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "engines"))
    import models

    saved = {
        "model_type": "kimi_linear", "num_experts": 256, "linear_num_heads": 16,
        "linear_head_dim": 128, "linear_conv_kernel_dim": 3,
    }  # fmt: skip
    config = models._as_checkpoints(saved)
    assert "num_experts" not in config  # vLLM would make experts
    layers = config["linear_attn_config"]
    linear, full = layers["kda_layers"], layers["full_attn_layers"]
    assert len(linear) == models.LINEAR_LAYERS and full[0] == 4
    assert sorted(linear + full) == list(range(1, models.LAYERS + 1))  # counted from 1
    config = {"model_type": "kimi_linear", "linear_attn_config": layers}
    decode = problems_for_model(config).decode_with_conv
    assert (decode.v_heads, decode.key_dim, decode.conv_width) == (16, 128, 3)
    assert decode.decay == "channel"


def test_layer_times_leave_out_what_both_runs_launch(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "engines"))
    import judge

    def run(steps, **kernels):
        return {"profiles": {"decode_1": {"steps": steps, "kernels": kernels}}}

    # In a step: two matmuls of both; one copy of both and two more of the engine; kernels of one.
    ours = run(10, matmul=(20, 200.0), copy=(10, 30.0), ours=(10, 80.0))
    alone = run(20, matmul=(40, 420.0), copy=(60, 240.0), conv=(20, 60.0), recurrence=(20, 100.0))
    assert judge.layer_times(ours, alone)["decode_1"] == {
        "ours": pytest.approx(8.0),
        "alone": pytest.approx(2 * 4.0 + 3.0 + 5.0),
        "speedup": pytest.approx(2.0),
    }
