"""The rows of benchmarks/compare.py, and what it writes: records, tables, pictures."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from compare import record, rows  # noqa: E402: the path comes first

# --- rows


def test_byte_floors_are_those_of_the_cpp_benchmarks():
    """benchmarks/results holds floors of the same shapes, computed by prefill_bench at 4.25 TB/s."""
    recorded = json.loads((ROOT / "benchmarks/results/h200.json").read_text())["rows"]
    compared = 0
    for line in recorded:
        if line["op"] != "gdn_prefill" or line["protocol"] not in ("qwen-bf16", "strong-fp16"):
            continue
        gates = line["protocol"].partition("-")[0]
        row = rows.PrefillRow(line["qk_heads"], line["v_heads"], tuple(line["seqlens"]), gates)
        assert record.significant(row.least_bytes / 4.25e9) == line["byte_floor_ms"]
        assert {name: line[name] for name in row.identity} == row.identity
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("dtype, share", [("f32", 1.0), ("bf16", 0.5)])
def test_decode_moves_the_state_twice(dtype, share):
    state = 2 * 32 * 128 * 128 * 4 * share
    row = rows.DecodeRow(8, dtype)
    operands = 2 * (16 + 16 + 32 + 32) * 128 + 2 * 2 * 32 + 4
    assert row.least_bytes == 8 * (state + operands)


@pytest.mark.parametrize("stored, passes", [("none", 1), ("last", 2)])
def test_verify_moves_the_state_once_and_once_more_where_it_is_stored(stored, passes):
    row = rows.VerifyRow(8, "bf16", tokens=4, stored=stored)
    operands = 4 * (2 * (16 + 16 + 32 + 32) * 128 + 2 * 2 * 32) + 4
    assert row.least_bytes == 8 * (passes * 32 * 128 * 128 * 2 + operands)
    assert row.identity == {
        "op": "gdn_verify",
        "batch": 8,
        "qk_heads": 16,
        "v_heads": 32,
        "state_dtype": "bf16",
        "state_layout": "vk",
        "tokens": 4,
        "stored_states": stored,
    }


def test_a_convolution_moves_its_rows_twice_and_a_step_its_states_too():
    row = rows.ConvRow(1, 2048, v_heads=16)
    channels = (16 + 16 + 16) * 128
    assert row.least_bytes == 2 * channels * (2 * 2048 + 4 + 4)
    step = rows.ConvRow(32)
    channels = (16 + 16 + 32) * 128
    assert step.least_bytes == 2 * channels * (32 * (2 + 2 * 4) + 4)
    assert step.identity == {
        "op": "gdn_conv",
        "sequences": 32,
        "tokens": 32,
        "channels": 8192,
        "varlen": False,
        "gates": False,
        "state_layout": "columns",
        "qk_heads": 16,
        "v_heads": 32,
    }


@pytest.mark.parametrize(
    "row",
    dict.fromkeys(rows.chosen_rows("all") + rows.chosen_rows("published")),
    ids=lambda row: row.label,
)
def test_every_row_is_larger_than_the_cache(row):
    in_place = isinstance(row, rows.DecodeRow) and row.stored == "last"
    read = row.least_bytes // 2 if in_place else row.least_bytes
    if isinstance(row, rows.ConvRow) and row.is_step:
        read -= row.state_bytes
    assert row.sets >= 3 and row.sets * read > 4 * 60e6


def test_rows_are_chosen_by_name():
    quick, everything = rows.chosen_rows("quick"), rows.chosen_rows("all")
    assert everything[: len(quick)] == quick
    assert len(set(row.label for row in everything)) == len(everything)
    assert {row.gates for row in everything if isinstance(row, rows.PrefillRow)} == set(rows.GATES)
    one = rows.chosen_rows("all", "init")
    assert {row.gates for row in one if isinstance(row, rows.PrefillRow)} == {"init"}
    published = rows.chosen_rows("published")
    assert len(published) == 175
    assert {row.gates for row in rows.chosen_rows("published", "init")} == {"init"}
    assert rows.PrefillRow(16, 16, (131072,), "strong") in published
    assert rows.PrefillRow(2, 8, (28672, 4096)) in published
    for wrong in (("some",), ("all", "weak")):
        with pytest.raises(ValueError, match="accepted: quick|accepted: qwen"):
            rows.chosen_rows(*wrong)


# --- record, table, pictures


def _record(tmp_path):
    head = {"gpu": "Test GPU", "ceilings": {"copy_tb_s": 4.0}, "missing": {"flashinfer": "no"}}
    path = tmp_path / "record.json"
    made = record.Record(str(path), "abc1234", head)

    def timed(ms, how="graph"):
        return {
            "status": "timed",
            "ms": ms,
            "ms_p10": 0.9 * ms,
            "ms_p90": 1.1 * ms,
            "error_o": 1e-3,
            "error_state": 2e-3,
            "how": how,
        }

    for i, tokens in enumerate((2048, 8192)):
        entries = {"cubinery": timed(0.2 * (i + 1)), "fla-1.2": timed(0.5 * (i + 1), "stream")}
        made.put(rows.PrefillRow(16, 32, (tokens,)), entries)
    wrong = {"status": "wrong", "error_o": 0.5, "error_state": "nan"}
    made.put(rows.DecodeRow(8), {"cubinery": timed(0.012), "fla-1.2": wrong})
    made.put(rows.DecodeRow(32), {"cubinery": {"status": "failed", "reason": "Boom: x"}})
    for row in (rows.ConvRow(32), rows.ConvRow(1, 8192)):
        made.put(row, {"cubinery": timed(0.01), "fla-1.2": wrong | {"error_element": 0.3}})
    made.skip([rows.DecodeRow(128)], "the budget of 1 s was spent")
    made.save()
    return path


def test_record_has_our_figures_on_top_and_the_peers_below(tmp_path):
    root = json.loads(_record(tmp_path).read_text())
    assert root["format"] == 1 and root["missing"] == {"flashinfer": "no"}
    first, _, decode, failed, step, conv = root["rows"]
    assert first["op"] == "gdn_prefill" and first["seqlens"] == [2048]
    assert (first["ms"], first["peers_ms"]) == (0.2, {"fla-1.2": 0.5})
    floor = rows.PrefillRow(16, 32, (2048,)).least_bytes / 4e9
    assert first["byte_floor_ms"] == pytest.approx(floor, rel=1e-3)
    assert first["commit"] == "abc1234" and decode["peers_ms"] == {}
    assert (step["op"], step["tokens"], conv["tokens"]) == ("gdn_conv", 32, 8192)
    assert "ms" not in failed and failed["contenders"]["cubinery"]["reason"] == "Boom: x"


def test_table_names_everyone(tmp_path):
    text = record.table(json.loads(_record(tmp_path).read_text()))
    head, conv, step, decode, failed, short, long, *notes = text.splitlines()
    assert head.split()[:4] == ["us", "byte", "floor", "cubinery"]
    assert "12 (10.8 to 13.2)" in decode and "wrong: 0.5, nan" in decode
    assert conv.startswith("conv 16,32 8192 bf16") and step.startswith("conv 16,32 B=32 bf16")
    assert "wrong: 0.5, nan, 0.3" in conv
    assert failed.startswith("decode 16,32 B=32 f32") and failed.split().count("missing") == 2
    assert "200 (180 to 220)" in short and "500 (450 to 550) stream" in short
    assert short.endswith("2.50x") and "8192" in long
    assert short.index("missing") + len("missing") == head.index("flashinfer") + len("flashinfer")
    assert "flashinfer is missing: no" in notes and "cubinery, gdn_decode: Boom: x" in notes
    assert "not run, the budget of 1 s was spent: decode 16,32 B=128 f32" in notes


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    from compare.plot import draw

    paths = draw(str(_record(tmp_path)), str(tmp_path / "pictures"))
    assert {path.name for path in paths} == {
        f"{name}.{suffix}"
        for name in ("prefill_latency", "decode_latency", "floor_share")
        for suffix in ("png", "svg")
    }
    assert all(path.read_bytes().startswith((b"\x89PNG", b"<?xml")) for path in paths)
    assert all(path.stat().st_size > 5000 for path in paths)


def test_a_record_without_times_has_no_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    from compare.plot import draw

    empty = tmp_path / "empty.json"
    empty.write_text('{"gpu": "x", "rows": [], "ceilings": {"copy_tb_s": 4}}')
    assert draw(str(empty), str(tmp_path / "none")) == []
