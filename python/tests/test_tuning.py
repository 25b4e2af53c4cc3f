"""Tuning as far as it goes without a GPU: arguments, errors, reports of nothing."""

import cubinery
import pytest
from cubinery import tuning

SHAPES = [{"batch": 8}]


def test_tuning_needs_a_device(compiler):
    with pytest.raises(cubinery.UnsupportedError):
        compiler.tune(cubinery.DecodeProblem(), SHAPES, budget=1)
    with pytest.raises(cubinery.UnsupportedError):
        compiler.tune(cubinery.PrefillProblem(), [{"tokens": 512, "sequences": 1}], budget=1)
    with pytest.raises(cubinery.UnsupportedError):
        compiler.tune(cubinery.VerifyProblem(), [{"batch": 8, "tokens_each": 4}], budget=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": [{"batch": "8"}]}, r'shapes\[0\].batch = "8"; accepted: integers'),
        ({"budget": -1}, "budget = -1; accepted: seconds, from 0 to 1e9"),
        ({"seed": 1.5}, "^seed = 1.5; accepted: integers from 0 up"),
        ({"again": 1}, "^again = 1; accepted: True, False"),
        ({"problem": cubinery.DecodeProblem(key_dim=100)}, "gdn_decode: key_dim = 100"),
    ],
)
def test_arguments_are_checked(tmp_path, arguments, message):
    context = cubinery.Context(-1, arch="sm_90a", cache_dir=tmp_path)
    defaults = {"problem": cubinery.DecodeProblem(), "shapes": SHAPES}
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        context.tune(**{**defaults, **arguments})
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_nothing(tmp_path):
    with pytest.raises(cubinery.InvalidArgumentError, match="there are no settings"):
        cubinery.tuning_report(tmp_path)
    with pytest.raises(cubinery.InvalidArgumentError, match="accepted: table, json, t4"):
        cubinery.tuning_report(tmp_path, format="html")


class FakeCore:
    """Tells progress twice, as far as it is let."""

    def __init__(self):
        self.told = 0

    def tune(self, handle, op, problem, shapes, settings, progress):
        for _ in range(2):
            self.told += 1
            if progress('{"measured": 1}'):
                break
        return '{"stopped": true}'


@pytest.fixture
def fake_core(monkeypatch):
    core = FakeCore()
    monkeypatch.setattr(tuning, "_core", core)
    return core


@pytest.mark.parametrize(("answer", "told"), [(None, 2), (False, 2), (True, 1)])
def test_progress_can_stop(fake_core, answer, told):
    seen = []

    def progress(at):
        seen.append(at)
        return answer

    summary = tuning.tune(None, cubinery.DecodeProblem(), SHAPES, {}, progress)
    assert summary == {"stopped": True}
    assert fake_core.told == told
    assert seen == [{"measured": 1}] * told


def test_what_progress_raises_is_raised(fake_core):
    def interrupted(at):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.tune(None, cubinery.DecodeProblem(), SHAPES, {}, interrupted)
    assert fake_core.told == 1
    assert tuning.tune(None, cubinery.DecodeProblem(), SHAPES, {}, None) == {"stopped": True}
