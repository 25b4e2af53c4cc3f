"""Problems are those of the library: fields, order, defaults, values."""

import dataclasses
import json
import sys
from pathlib import Path

import cubinery
import pytest
from cubinery import _core

CONFIG = Path(__file__).parents[2] / "tests/data/models/Qwen3.5-27B/config.json"
PROBLEMS = [
    cubinery.DecodeProblem,
    cubinery.PrefillProblem,
    cubinery.VerifyProblem,
    cubinery.CommitProblem,
    cubinery.ConvProblem,
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_fields_and_defaults_are_the_librarys(problem):
    library = json.loads(_core.check_problem(problem.op, "{}"))
    ours = dataclasses.asdict(problem())
    assert list(ours.items()) == list(library.items())
    assert {name: type(value) for name, value in ours.items()} == {
        name: type(value) for name, value in library.items()
    }


@pytest.mark.parametrize("problem", PROBLEMS)
def test_json_round_trip(problem):
    changed = problem(
        v_heads=64, dtype="f16", state_location="pool", index_dtype="i64", batch_invariant=True
    )
    assert problem.from_json(changed.to_json()) == changed
    assert changed != problem()
    assert changed.heads == 64


def test_prefill_fields_round_trip():
    changed = cubinery.PrefillProblem(
        varlen=True, token_layout="bhtd", checkpoints="after", checkpoint_every=32, segments="never"
    )
    assert cubinery.PrefillProblem.from_json(changed.to_json()) == changed
    at = cubinery.PrefillProblem(checkpoints="at", index_dtype="i64")
    assert cubinery.PrefillProblem.from_json(at.to_json()) == at


def test_verify_fields_round_trip():
    changed = cubinery.VerifyProblem(
        varlen=True, draft_tokens=8, stored_states="every", from_accepted=True, accepted_dtype="i64"
    )
    assert cubinery.VerifyProblem.from_json(changed.to_json()) == changed


def test_commit_fields_round_trip():
    changed = cubinery.CommitProblem(varlen=True, draft_tokens=8, accepted_dtype="i64")
    assert cubinery.CommitProblem.from_json(changed.to_json()) == changed


def test_conv_fields_round_trip():
    changed = cubinery.ConvProblem(
        **{"split_qkv": True, "width": 3, "activation": "none", "has_bias": True, "varlen": True},
        **{"gate_mode": "computed", "beta_mode": "logit", "use_qk_l2norm": True},
        **{"state_layout": "channels", "from_accepted": True, "accepted_dtype": "i64"},
    )
    assert cubinery.ConvProblem.from_json(changed.to_json()) == changed


@pytest.mark.parametrize("text", ["[]", "{", '{"no_such": 1}', '{"dtype": "f8"}'])
def test_malformed_json_is_refused(text):
    with pytest.raises(cubinery.InvalidArgumentError, match="gdn_prefill"):
        cubinery.PrefillProblem.from_json(text)


def test_check_names_field_and_values():
    with pytest.raises(cubinery.InvalidArgumentError, match="conv_width = 5; accepted: 0, 2, 3"):
        cubinery.DecodeProblem(conv_width=5).check()
    cubinery.DecodeProblem(conv_width=4).check()
    with pytest.raises(cubinery.InvalidArgumentError, match="draft_tokens = 17; accepted: 1 to 16"):
        cubinery.VerifyProblem(draft_tokens=17).check()
    with pytest.raises(cubinery.InvalidArgumentError, match="store_state = false; accepted: true"):
        cubinery.CommitProblem(store_state=False).check()
    with pytest.raises(cubinery.InvalidArgumentError, match="width = 5; accepted: 2, 3, 4"):
        cubinery.ConvProblem(width=5).check()
    with pytest.raises(cubinery.InvalidArgumentError, match="gate_mode = computed; accepted: none"):
        cubinery.ConvProblem(gate_mode="computed").check()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_values_that_a_field_does_not_take_are_refused_at_once(problem):
    for fields, message in (
        ({"dtype": "bfloat16"}, "dtype = 'bfloat16'; accepted: "),
        ({"index_dtype": "i8"}, "index_dtype = 'i8'; accepted: 'i32', 'i64'"),
        ({"v_heads": "32"}, "v_heads = '32'; accepted: an int"),
        ({"v_heads": True}, "v_heads = True; accepted: an int"),
        ({"store_state": 1}, "store_state = 1; accepted: True, False"),
        ({"state_location": None}, "state_location = None; accepted: 'dense', 'pool'"),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=f"{problem.op}: {message}"):
            problem(**fields)
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            dataclasses.replace(problem(), **fields)


def test_a_field_that_there_is_not_is_named_with_the_nearest():
    with pytest.raises(TypeError, match='has no field "head_dim"; accepted: q_heads, '):
        cubinery.DecodeProblem(head_dim=128)
    with pytest.raises(TypeError, match="; did you mean draft_tokens\\?$"):
        cubinery.VerifyProblem(draft_token=8)
    with pytest.raises(TypeError, match="draft_tokens"):
        dataclasses.replace(cubinery.DecodeProblem(), draft_tokens=8)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_repr_is_what_differs_from_the_defaults(problem):
    assert repr(problem()) == f"{problem.__name__}()"
    changed = problem(q_heads=2, key_dim=64, state_dtype="f16")
    assert eval(repr(changed), {problem.__name__: problem}) == changed
    assert repr(changed).count("=") == sum(
        value != dataclasses.asdict(problem())[name]
        for name, value in dataclasses.asdict(changed).items()
    )


def test_problems_of_a_model_print_a_line_for_each_form():
    problems = cubinery.problems_for_model(CONFIG, tp=2)
    begin, *lines, end = repr(problems).splitlines()
    assert (begin, end) == ("ModelProblems(", ")")
    for line, field in zip(lines, dataclasses.fields(problems), strict=True):
        assert line == f"    {field.name}={getattr(problems, field.name)!r},"
        assert len(line) < 400
    assert eval(repr(problems), vars(cubinery)) == problems


def test_problems_are_keys():
    assert hash(cubinery.DecodeProblem()) == hash(cubinery.DecodeProblem())
    with pytest.raises(dataclasses.FrozenInstanceError):
        cubinery.DecodeProblem().q_heads = 1


CALLS = """
import cubinery
cubinery.{cls}(gate_mode="{mode}", state_dtype="bf16", index_dtype="i64")
cubinery.gdn_decode(0, 0, 0, state_layout="{layout}")
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What mypy keeps of the packages that it has read."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("mode", "layout"), [("computed", "kv"), ("comptued", "kvv")])
def test_a_type_checker_catches_a_misspelt_mode(problem, mode, layout, checked):
    api = pytest.importorskip("mypy.api")
    calls = CALLS.format(cls=problem.__name__, mode=mode, layout=layout)
    text, errors, _ = api.run(
        ["--config-file=", f"--cache-dir={checked}", f"--python-executable={sys.executable}"]
        + ["-c", calls]
    )
    assert errors == ""
    found = [line for line in text.splitlines() if "error:" in line]
    if mode == "computed":
        assert found == []
    else:
        assert len(found) == 2
        assert all("Literal" in line for line in found)
