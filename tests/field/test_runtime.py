"""The runtime in the field: limits, fallbacks without a jump, the latch, shadow mode, and what is recorded of it."""

import errno
import json
import math
import os
import time
import tomllib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import musbo
from musbo.data.readers.choose import open_table
from musbo.field import runtime
from musbo.field.limits_file import MEANING, limits_text
from musbo.field.runtime import FieldError, Runtime
from tests.field import shipped
from tests.field.shipped import ACT, NORMALISER, OBS, TASK

USUAL = np.asarray(NORMALISER.mean)
REST = [0.0, 1.0, 0.0]
"""The constant fallback."""
SOURCES, REASONS = "source", "reason"
OWN = (runtime.COUNTS, runtime.LATCH)
"""What a runtime keeps beside a bundle."""


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipped.ship(tmp_path_factory.mktemp("shipped") / "b", "seeking")


@pytest.fixture
def start(bundle: Path, tmp_path: Path):
    """A runtime of a fresh copy of the bundle, with these limits; the clock of the machine counts where they say so."""

    def begin(limits: dict[str, Any] | None = None, **more: Any) -> Runtime:
        place = tmp_path / "b"
        if not place.exists():
            shipped.write(place, {path.name: path.read_bytes() for path in bundle.iterdir() if path.name not in OWN})
        (place / "limits.toml").write_text(limits_text({"stale": None, "late": None} | (limits or {})))
        more = {"fallback": REST, "explore": False, "seed": 0} | more
        return Runtime(place, **more)

    return begin


def chosen(obs: np.ndarray) -> np.ndarray:
    """What the policy of the bundle does, by JAX."""
    return np.asarray(shipped.squashed()(jnp.asarray(np.atleast_2d(obs)))).reshape(*obs.shape[:-1], ACT)


def column(path: Path, *names: str) -> list[Any]:
    table = open_table(path).read(names)
    found = [table.column(name).to_pylist() for name in names]
    return found[0] if len(names) == 1 else found


def test_without_limits_it_is_the_policy(start):
    with start() as controller:
        for obs in shipped.observations(50, 3):
            act = controller.act(obs)
            np.testing.assert_allclose(act, chosen(obs), atol=1e-5 * 250)
            assert controller.reason == ""


def test_what_is_no_observation_is_refused(start):
    with start() as controller:
        for wrong in ([1.0], np.zeros((1, OBS)), np.zeros(OBS + 1)):
            with pytest.raises(FieldError, match=f"an observation is {OBS} numbers"):
                controller.act(wrong)


def test_a_fallback_has_to_be_given(start):
    with pytest.raises(FieldError, match="give a fallback"):
        start(fallback=None)
    with pytest.raises(FieldError, match="must be 3 finite numbers"):
        start(fallback=[0.0])
    start({"fallback": REST}, fallback=None).close()


# Limits


@given(
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_limits_hold_whatever_is_observed(bundle: Path, shares: list[float], seed: int, explore: bool):
    """Every command lies in the bounds, and no two follow each other further apart than the largest change."""
    half = TASK.half_range.astype(np.float64)
    low, high, change = -0.4 * half + TASK.centre, 0.6 * half + TASK.centre, np.asarray(shares) * half
    limits = {"low": low.tolist(), "high": high.tolist(), "change": change.tolist(), "fallbacks": 10_000}
    path = bundle.parent / "own-limits.json"
    path.write_text(json.dumps(limits))
    random, last = np.random.default_rng(seed), None
    with Runtime(bundle, fallback=REST, limits=path, explore=explore, seed=seed) as controller:
        for _ in range(30):
            obs = USUAL + np.asarray(NORMALISER.std) * 5 * random.standard_normal(OBS)
            obs[random.integers(OBS)] = random.choice([np.nan, np.inf, -1e30, obs[0], obs[0], obs[0]])
            act = controller.act(obs)
            slack = 1e-5 * half
            assert act is not None and np.all(act >= low - slack) and np.all(act <= high + slack)
            if last is not None:
                assert np.all(np.abs(act - last) <= change + slack)
            last = act


def test_the_source_says_what_the_limiter_changed(start, tmp_path: Path):
    with start({"change": 1e-3}, record=tmp_path / "r.musbo") as controller:
        for obs in shipped.observations(5, 3):
            controller.act(obs)
        controller.end(USUAL)
    assert column(tmp_path / "r.musbo", SOURCES)[:5] == ["policy"] + ["limiter"] * 4


def test_noise_is_capped_and_recorded_as_drawn(start, tmp_path: Path):
    cap = 0.001 * TASK.half_range
    with start({"noise": cap.tolist()}, explore=True, record=tmp_path / "r.musbo") as controller:
        for obs in shipped.observations(200, 3):
            act = controller.act(obs)
            mean = chosen(obs)
            assert act is not None and np.all(np.abs(act - mean) <= cap + 2e-5 * TASK.half_range)
    noise = np.array(column(tmp_path / "r.musbo", *(f"noise_{i}" for i in range(ACT))))
    assert np.abs(noise / TASK.half_range[:, None]).max() > 0.05
    assert set(column(tmp_path / "r.musbo", SOURCES)) == {"limiter"}


def test_the_noise_explains_the_action(start, tmp_path: Path):
    """Commanded = clip(policy + noise), from the recording alone."""
    with start(explore=True, record=tmp_path / "r.musbo") as controller:
        for obs in shipped.observations(100, 3):
            controller.act(obs)
    names = [f"{key}_{i}" for key, size in (("obs", OBS), ("commanded", ACT), ("noise", ACT)) for i in range(size)]
    found = np.array(column(tmp_path / "r.musbo", *names), np.float32).T
    obs, commanded, noise = np.split(found, [OBS, OBS + ACT], axis=1)
    wanted = np.clip(chosen(obs) + noise, TASK.low, TASK.high)
    np.testing.assert_allclose(commanded / TASK.half_range, wanted / TASK.half_range, atol=1e-5)
    assert np.abs(noise).max() > 0


# Fallback


@pytest.mark.parametrize(
    ("reason", "limits"),
    [("not finite", {}), ("stale", {"stale": 0.5}), ("late", {"late": 2.0}), ("outside the data", {})],
)
def test_the_fallback_steers_without_a_jump_and_hands_back(start, tmp_path: Path, reason: str, limits: dict[str, Any]):
    clock, path = Clock(), tmp_path / "r.musbo"
    join = 0.1 * TASK.half_range
    acts = []
    with start({**limits, "join": join.tolist(), "fallbacks": 1000}, record=path, clock=clock) as controller:
        for i in range(90):
            bad = 30 <= i < 60
            obs, age = USUAL.copy(), 0.1
            clock.now += 1.0
            if bad and reason == "not finite":
                obs[1] = np.nan
            elif bad and reason == "stale":
                age = 0.9
            elif bad and reason == "late":
                clock.now += 5.0
            elif bad:
                obs[2] = 1e6
            acts.append(controller.act(obs, time=clock.now - age))
            assert controller.reason == (reason if bad else "")
        controller.end(USUAL)
    steps = np.abs(np.diff(np.array(acts), axis=0))
    assert np.all(steps <= join + 1e-5 * TASK.half_range)
    np.testing.assert_allclose(acts[59], REST, atol=1e-5)
    np.testing.assert_array_equal(acts[0], acts[89])  # the policy again
    assert np.abs(np.asarray(acts[0]) - REST).max() > 0.2
    if reason == "not finite":  # such rows cannot be learned from: the episode is cut around them
        assert len(column(path, "episode")) == 61 and set(column(path, "episode")) == {0, 1}
    else:
        found = column(path, REASONS)
        assert found[30:60] == [reason] * 30 and set(found[:30] + found[60:]) == {""}
        assert column(path, SOURCES)[30:60] == ["fallback"] * 30


def test_what_is_stale_and_late_follows_from_the_interval(bundle: Path, tmp_path: Path):
    """Twice the interval of 0.5 seconds, where the site sets no limit."""
    clock, place = Clock(), tmp_path / "b"
    shipped.write(place, {path.name: path.read_bytes() for path in bundle.iterdir() if path.name not in OWN})
    with Runtime(place, fallback=REST, explore=False, clock=clock) as controller:
        for pause, age, reason in ((0.5, 0.1, ""), (0.9, 0.9, ""), (1.1, 0.1, "late"), (0.5, 1.1, "stale")):
            clock.now += pause
            controller.act(USUAL, time=clock.now - age)
            assert controller.reason == reason


def test_the_same_measurement_twice_is_stale(start):
    clock = Clock()
    with start(clock=clock) as controller:
        controller.act(USUAL, time=5.0)
        assert controller.reason == ""
        controller.act(USUAL, time=5.0)
        assert controller.reason == "stale"


def test_a_fallback_is_a_function_of_the_observation(start):
    def baseline(observation: np.ndarray) -> list[float]:
        return [0.1, float(np.isnan(observation).sum()), 7.0]

    with start({"join": 1e9}, fallback=baseline) as controller:
        broken = USUAL.copy()
        broken[[0, 3]] = np.nan
        np.testing.assert_allclose(controller.act(broken), [0.1, 2.0, 7.0], rtol=1e-6)


@pytest.mark.parametrize("answer", [None, [np.nan] * 3, [0.0], "raise"])
def test_a_fallback_that_fails_holds_the_last_action(start, tmp_path: Path, answer: Any):
    def broken(observation: np.ndarray) -> Any:
        if answer == "raise":
            raise RuntimeError("no")
        return answer

    with start(fallback=broken) as controller:
        first = controller.act(USUAL)
        np.testing.assert_array_equal(controller.act(np.full(OBS, np.nan)), first)
    with start(fallback=broken) as controller:  # and without one, the middle of the bounds
        np.testing.assert_allclose(controller.act(np.full(OBS, np.nan)), TASK.centre)


# Latch


def test_it_latches_after_a_count_and_a_person_resets_it(start, tmp_path: Path):
    with start({"fallbacks": 3, "join": 1e9}) as controller:
        bad = np.full(OBS, np.nan)
        for obs, reason in [(bad, "not finite"), (USUAL, ""), (bad, "not finite"), (USUAL, ""), (bad, "not finite")]:
            controller.act(obs)
            assert controller.reason == reason
        assert "3 steps of the fallback" in controller.latched
        for _ in range(5):
            np.testing.assert_allclose(controller.act(USUAL), REST)
            assert controller.reason == "latched"
    with start({"fallbacks": 3, "join": 1e9}) as controller:  # a restart does not help
        np.testing.assert_allclose(controller.act(USUAL), REST)
        assert controller.reason == "latched"
        controller.reset()
        controller.act(USUAL)
        assert controller.reason == "" and controller.latched == ""
    with start({"fallbacks": 3}) as controller:
        assert controller.latched == ""


@pytest.mark.parametrize("last", [0.5, math.nan, math.inf])
def test_it_latches_when_the_budget_of_cost_is_spent(start, last: float):
    with start({"cost": 1.0}) as controller:
        for cost in (0.0, 0.6, 0.4):
            controller.act(USUAL, cost=cost)
            assert not controller.latched
        controller.act(USUAL, cost=last)
        assert "above the budget of 1" in controller.latched and controller.reason == "latched"


def test_a_latch_that_cannot_be_written_holds_and_says_so(start):
    with start({"fallbacks": 1}) as controller:
        os.mkdir(controller._latch_path)  # no file can be written there
        controller.act(np.full(OBS, np.nan))
        assert "steps of the fallback" in controller.latched or "step of the fallback" in controller.latched
        assert "not written to latched.json" in controller.latched
        np.testing.assert_allclose(controller.act(USUAL), REST)


def test_a_restart_is_no_reset_of_the_counts(start):
    """Each process sees fewer bad steps than would latch it, and spends less than the budget."""
    bad, limits = np.full(OBS, np.nan), {"fallbacks": 5, "cost": 2.5}
    for number in range(2):
        with start(limits) as controller:
            assert controller.fallbacks == 2 * number and not controller.latched
            for obs in (bad, USUAL, bad):
                controller.act(obs)
    with start(limits) as controller:
        controller.act(bad)
        assert "5 steps of the fallback" in controller.latched
        controller.reset()
    for spent in range(2):
        with start(limits) as controller:
            assert (controller.fallbacks, controller.spent) == (0, spent) and not controller.latched
            controller.act(USUAL, cost=1.0)
    with start(limits) as controller:
        controller.act(USUAL, cost=1.0)
        assert "above the budget of 2.5" in controller.latched
        controller.reset()
    with start(limits) as controller:
        assert (controller.fallbacks, controller.spent, controller.latched) == (0, 0.0, "")


def test_counts_are_those_of_one_bundle_and_of_steps_that_acted(start, tmp_path: Path):
    bad = np.full(OBS, np.nan)
    with start({"fallbacks": 5}) as controller:
        controller.act(bad)
    with start({"fallbacks": 5}, shadow=True) as controller:
        controller.act(bad)
    with start({"fallbacks": 5}) as controller:
        assert controller.fallbacks == 1
    counts = tmp_path / "b" / "counts.json"
    counts.write_text(json.dumps(json.loads(counts.read_text()) | {"bundle": "another"}))
    with start({"fallbacks": 5}) as controller:
        assert controller.fallbacks == 0


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"bundle": %s}', '{"bundle": %s, "fallbacks": "2", "spent": 0}'])
def test_counts_that_cannot_be_read_latch(start, tmp_path: Path, text: str):
    with start() as controller:
        known = json.dumps(controller.bundle.id)
    (tmp_path / "b" / "counts.json").write_text(text.replace("%s", known))
    with start() as controller:
        assert "counts.json cannot be read" in controller.latched
        np.testing.assert_allclose(controller.act(USUAL), REST)


def test_counts_that_cannot_be_written_are_tried_again(start, tmp_path: Path):
    bad, counts = np.full(OBS, np.nan), tmp_path / "b" / "counts.json"
    with start({"fallbacks": 5}) as controller:
        counts.mkdir()
        controller.act(bad)
        assert "counts.json cannot be written" in controller.uncounted and not controller.latched
        counts.rmdir()
        controller.act(USUAL)
        assert controller.uncounted == "" and json.loads(counts.read_text())["fallbacks"] == 1
    assert sorted(path.name for path in counts.parent.iterdir() if path.suffix == ".part") == []


# Shadow, and what others did


def test_shadow_computes_and_records_and_does_not_act(start, tmp_path: Path):
    path = tmp_path / "r.musbo"
    with start(shadow=True, record=path) as controller:
        for i, obs in enumerate(shipped.observations(10, 3)):
            assert controller.act(obs) is None
            if i != 4:
                controller.executed([0.5, 2.0, float(i)])
        controller.end(USUAL)
    executed, source, shadow, episode = column(path, "act_2", SOURCES, "shadow", "episode")
    assert executed[:4] == [0, 1, 2, 3] and all(shadow)
    assert source[:4] == ["human"] * 4
    assert episode == [0] * 5 + [1] * 6  # cut after the step of which nobody said what was done
    names = [f"commanded_{i}" for i in range(ACT)]
    wanted = chosen(shipped.observations(10, 3))
    np.testing.assert_allclose(np.array(column(path, *names)).T[:10], wanted, atol=1e-5 * 250)


def test_what_was_executed_instead_is_recorded_and_limits_start_from_it(start, tmp_path: Path):
    path = tmp_path / "r.musbo"
    change = (0.01 * TASK.half_range).tolist()
    with start({"change": change}, record=path) as controller:
        first = controller.act(USUAL)
        controller.executed([-1.0, 0.0, -200.0])
        second = controller.act(USUAL)
        np.testing.assert_allclose(second, np.array([-1.0, 0.0, -200.0]) + change, rtol=1e-5)
        with pytest.raises(FieldError, match="the source of an action is one of"):
            controller.executed(REST, source="ghost")
        controller.end(USUAL)
    assert column(path, "act_2")[0] == -200.0 and column(path, "commanded_2")[0] == pytest.approx(first[2])
    assert column(path, SOURCES)[0] == "human"


def test_the_first_action_starts_from_where_the_actuators_are(start):
    with start({"change": [0.1, 0.1, 1.0]}) as controller:
        controller.begin(position=[1.0, 4.0, 300.0])
        np.testing.assert_allclose(controller.act(USUAL), [0.9, 3.9, 299.0], rtol=1e-5)


# Recording through the runtime


def test_a_recording_becomes_transitions(start, tmp_path: Path):
    """Two episodes, one of them terminated; rewards are those of the step that has ended."""
    path, obs = tmp_path / "r.musbo", shipped.observations(12, 4)
    with start(record=path, machine="mill-2") as controller:
        done = [controller.act(row, reward=None if i == 0 else float(i)) for i, row in enumerate(obs[:5])]
        controller.end(obs[5], terminated=True, reward=5.0)
        done += [controller.act(row, reward=None if i == 0 else 10.0 + i) for i, row in enumerate(obs[6:11])]
        controller.end(obs[11], reward=15.0)
    batch = musbo.read_batch(path)
    rows = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    np.testing.assert_array_equal(batch.obs, obs[rows])
    np.testing.assert_array_equal(batch.next_obs, obs[[i + 1 for i in rows]])
    np.testing.assert_array_equal(batch.act, np.array(done))
    np.testing.assert_array_equal(batch.reward, [1, 2, 3, 4, 5, 11, 12, 13, 14, 15])
    assert batch.terminated.nonzero()[0].tolist() == [4] and batch.truncated.nonzero()[0].tolist() == [9]
    assert set(column(path, "machine")) == {"mill-2"}
    assert set(column(path, "bundle")) == {controller.bundle.id}


def test_a_recording_goes_on_after_a_restart(start, tmp_path: Path):
    path = tmp_path / "r.musbo"
    for _ in range(3):
        with start(record=path) as controller:
            for obs in shipped.observations(4, 4):
                controller.act(obs)
            controller.end(USUAL)
    assert len(musbo.read_batch(path)) == 12 and column(path, "episode") == [0] * 5 + [1] * 5 + [2] * 5
    with pytest.raises(FieldError, match="is another recording"):
        start({"change": 1.0}, record=path)
    with start(record=path), pytest.raises(FieldError, match="is being written by another process"):
        start(record=path)


def test_a_new_recording_is_in_a_folder_that_is_on_the_disk(start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A power cut takes away a file whose folder was never synced, records and all."""
    place, real, synced = tmp_path / "records", os.fsync, []
    place.mkdir()

    def fsync(file: int) -> None:
        synced.append(os.path.samestat(os.fstat(file), os.stat(place)) and (place / "r.musbo").stat().st_size > 0)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    for new in (True, False):
        start(record=place / "r.musbo").close()
        assert any(synced) == new
        synced.clear()


def test_a_full_disk_hands_over_to_the_fallback_and_control_goes_on(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, real = tmp_path / "r.musbo", os.write
    full = False

    def write(file: int, data: bytes) -> int:
        if full:
            real(file, data[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    with start({"fallbacks": 1000}, record=path) as controller:
        monkeypatch.setattr(os, "write", write)
        reasons = []
        for i in range(30):
            full = 10 <= i < 20
            controller.act(USUAL)
            reasons.append(controller.reason)
        controller.end(USUAL)
    assert reasons == [""] * 10 + ["recording failed"] * 10 + [""] * 10
    assert column(path, "episode") == [0] * 9 + [1] * 12  # ten steps found no room


def test_a_recording_that_cannot_be_made_says_so(start, tmp_path: Path):
    with pytest.raises(FieldError, match="cannot record to .*: No such file or directory"):
        start(record=tmp_path / "absent" / "r.musbo")


def test_time_is_that_of_the_measurement_or_of_the_call(start, tmp_path: Path):
    path, before = tmp_path / "r.musbo", time.time()
    with start(record=path) as controller:
        controller.act(USUAL, time=123.5)
        controller.act(USUAL)
    first, second = column(path, "time")
    assert first == 123.5 and before <= second <= time.time()


def test_limits_in_toml(start, bundle: Path, tmp_path: Path):
    path = tmp_path / "limits.toml"
    path.write_text('# of line 3\nchange = [\n  0.1, 0.2,  # slow\n  3.0,\n]\nlate = 2.5\nnoise = "off"\r\n')
    found = Runtime(bundle, fallback=REST, limits=path).limits
    assert found["change"] == [0.1, 0.2, 3.0] and found["late"] == 2.5
    assert found["stale"] == 1.0 and found["noise"] is None
    for text, message in (
        ("late = 2\nchange = ", "line 2: change must be a number"),
        ("change = [1, 2", "line 1: the list of change has no end"),
        ("[limits]\nlate = 2", "line 1: write a limit as name = value"),
        ("late = 2\nlate = 3", "line 2: late is there twice"),
        ("late = nan", 'a list of numbers such as .*, or "off", not nan'),
        ("late = true", "not true"),
        ("late = 1e999", "must be a finite number"),
        ('fallbacks = "off"', "fallbacks cannot be left out"),
        ("speed = 1", "there is no limit 'speed'"),
    ):
        path.write_text(text)
        with pytest.raises(FieldError, match=message):
            Runtime(bundle, fallback=REST, limits=path)
    path.write_bytes(b"late = \xff")
    with pytest.raises(FieldError, match="is not text in UTF-8"):
        Runtime(bundle, fallback=REST, limits=path)


LINES = st.lists(st.one_of(
    st.sampled_from(["late = 2", "cost=1.5e3 # a day", "change = [1, 2.5,", "-3e-2, ]", "a = [", "]", "b = 0.5.1", ""]),
    st.builds(lambda k, v: f"{k} = {v!r}", st.sampled_from("xyz"), st.floats(allow_nan=False, allow_infinity=False)),
    st.text("abc=[],.1e-+#\"'_ \t", max_size=12),
), max_size=6)  # fmt: skip


@given(LINES)
@example(["late = 0x10"])
@example(["late = 1_000"])
@example(["a.b = 1"])
@example(["a = [[1]]"])
def test_what_is_read_of_toml_means_what_it_means_in_toml(lines: list[str]):
    """Ours reads less than Python's reader, and never something else."""
    text = "\n".join(lines)
    try:
        found = runtime._toml(text.encode(), "limits.toml")
    except FieldError:
        return
    assert found == tomllib.loads(text)


def test_the_file_of_limits_is_read_as_it_was_meant(bundle: Path):
    """As exported, with a comment on each, by Python's reader too."""
    text = (bundle / "limits.toml").read_text()
    limits = Runtime(bundle, fallback=REST).bundle.manifest["limits"]
    assert runtime._toml(text.encode(), "") == tomllib.loads(text)
    assert runtime.merge_limits(limits, tomllib.loads(text), "") == limits and "# largest change" in text
    assert set(MEANING) == set(limits)


def test_one_file_of_limits_and_no_other(bundle: Path, tmp_path: Path):
    files = {path.name: path.read_bytes() for path in bundle.iterdir() if path.is_file()}
    shipped.write(tmp_path / "b", files | {"limits.json": b"{}"})
    with pytest.raises(FieldError, match="limits.json is not read in this bundle: write its limits into limits.toml"):
        Runtime(tmp_path / "b", fallback=REST)


# Without a policy


def own_controller(obs: np.ndarray) -> list[float]:
    return [0.5 * float(np.tanh(obs[2])), 1.0, 50.0]


def test_a_bundle_without_a_policy_runs_the_controller_of_the_site(tmp_path: Path):
    shipped.write(tmp_path / "b", shipped.baseline().files)
    rows = shipped.observations(500)
    with Runtime(tmp_path / "b", fallback=own_controller, record=tmp_path / "r.musbo", seed=3) as controller:
        acts = np.array([controller.act(row) for row in rows])
        controller.end(rows[0])
    noise = (acts - [own_controller(row) for row in rows]) / TASK.half_range
    assert np.abs(noise).max() <= 0.2 + 1e-6 and np.abs(noise).max() > 0.19
    np.testing.assert_allclose(noise.std(axis=0), 0.2 / 3**0.5, rtol=0.1)  # of an even distribution
    assert np.abs(noise.mean(axis=0)).max() < 0.02 and controller.fallbacks == 0
    logs = musbo.data.read_logs(tmp_path / "r.musbo")
    assert set(logs.batch.by) == {0}  # it is what the first policy may imitate
    np.testing.assert_array_equal(logs.batch.act, acts.astype(np.float32))


def test_without_exploration_it_is_the_controller_alone_and_limits_hold(tmp_path: Path):
    limits = {"noise": 0.01, "high": [0.5, 4.0, 40.0]}
    shipped.write(tmp_path / "b", shipped.baseline(limits).files)
    rows = shipped.observations(100)
    alone = Runtime(tmp_path / "b", fallback=own_controller, explore=False)
    wanted = np.minimum([own_controller(row) for row in rows], limits["high"])
    np.testing.assert_allclose(np.array([alone.act(row) for row in rows]), wanted, rtol=1e-6)
    noisy = Runtime(tmp_path / "b", fallback=own_controller, seed=1)
    acts = np.array([noisy.act(row) for row in rows])
    assert np.all(acts <= np.float32(limits["high"])) and np.abs(acts - wanted).max() <= 0.01 + 1e-5


def test_a_constant_may_be_the_controller_and_the_noise_needs_a_limit(tmp_path: Path):
    shipped.write(tmp_path / "b", shipped.baseline().files)
    acts = [Runtime(tmp_path / "b", fallback=REST, seed=seed).act(USUAL) for seed in range(20)]
    assert len({tuple(act) for act in acts if act is not None}) == 20
    (tmp_path / "b" / "limits.toml").write_text('noise = "off"')
    with pytest.raises(FieldError, match="limit noise says how far"):
        Runtime(tmp_path / "b", fallback=REST)
    assert Runtime(tmp_path / "b", fallback=REST, explore=False).act(USUAL) is not None
    with pytest.raises(FieldError, match="give a fallback"):
        Runtime(tmp_path / "b", explore=False)


def test_a_controller_with_a_memory_is_called_once_a_step_and_may_fail(tmp_path: Path):
    shipped.write(tmp_path / "b", shipped.baseline().files)
    calls = []

    def moody(obs: np.ndarray) -> list[float]:
        calls.append(obs)
        if len(calls) in (3, 4):
            raise RuntimeError("no signal")
        return REST

    controller = Runtime(tmp_path / "b", fallback=moody, explore=False)
    acts = [controller.act(USUAL if i != 6 else USUAL * np.nan) for i in range(8)]
    assert len(calls) == 8 and controller.fallbacks == 3  # two failures, whose action is held, and no number
    np.testing.assert_allclose(np.array(acts), [REST] * 8)


def test_the_page_and_the_manifest_say_that_there_is_no_policy():
    files = shipped.baseline().files
    manifest = json.loads(files["manifest.json"])
    assert manifest["policy"] == {"kind": "baseline"} and manifest["round"] == 1 and manifest["deployment"] == 0
    page = files["README.md"].decode()
    assert "no policy in this bundle" in page and "| gap | mm | any |" in page and "0.2, 0.4, 50" in page
    assert "policy.onnx" not in files and "1e+30" not in page
