"""The runtime in the field remembers the past exactly as the trainer reads it from the recording."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import musbo
from musbo.data.history import stacked_batch
from musbo.data.readers.choose import open_table
from musbo.data.scaling import Normaliser, Scaling
from musbo.field import runtime
from musbo.field.bundle import Seen, baseline_contents, contents
from musbo.field.runtime import Runtime
from musbo.learning.explore import Plain, Seeking
from musbo.models.labeler import Labeler, Levels, doubt, init_members
from musbo.models.policy import PolicySettings, init_policy
from musbo.tasks.history import stacked
from tests.field import shipped
from tests.field.test_bundle import in_c, in_onnx, off

HISTORY = 3
RAW = replace(shipped.TASK, history=HISTORY)
TASK = stacked(RAW)


def _past(x: Any, y: Any) -> Any:
    return jnp.concatenate([x, *HISTORY * (x, jnp.asarray(y))])


NORMALISER = Normaliser(_past(shipped.NORMALISER.mean, RAW.centre), _past(shipped.NORMALISER.std, RAW.half_range))


def parts() -> tuple[Any, Any]:
    policy = replace(init_policy(jax.random.key(0), TASK, PolicySettings((16,), "tanh")), normaliser=NORMALISER)
    ends = NORMALISER.mean - 3 * NORMALISER.std, NORMALISER.mean + 3 * NORMALISER.std
    new = TASK.predicted
    scaling = Scaling(
        NORMALISER.mean, NORMALISER.std, jnp.asarray(RAW.centre), jnp.asarray(RAW.half_range),
        0.1 * NORMALISER.mean[:new], 0.3 * NORMALISER.std[:new], *ends,
    )  # fmt: skip
    judge = Labeler(
        init_members(jax.random.key(3), TASK, (16,), "silu", 3),
        scaling,
        Levels(*map(jnp.asarray, (5.0, 20.0, 30.0, 4.0))),
    )
    return policy, judge


def observations(n: int, seed: int) -> np.ndarray:
    x = 2 * np.random.default_rng(seed).standard_normal((n, TASK.obs_size))
    return (np.asarray(NORMALISER.mean) + np.asarray(NORMALISER.std) * x).astype(np.float32)


def made(lagged: bool = False) -> dict[str, bytes]:
    policy, judge = parts()
    actor = Seeking(zeta="lagged" if lagged else "disagreement").actor(policy, judge)
    raw = shipped.observations(200)
    seen = Seen(observations(100, 1), raw.min(axis=0) - 1e6, raw.max(axis=0) + 1e6)
    return contents(policy, actor, seen, replace(shipped.ABOUT, history=HISTORY), {"fallbacks": 10_000}).files


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("history") / "b"
    shipped.write(place, made())
    return place


STEPS = st.lists(
    st.sampled_from(["go"] * 6 + ["nan", "person", "full disk", "end", "begin", "ended by itself", "silent"]),
    min_size=8, max_size=40,
)  # fmt: skip


@example(4 * ["go"] + ["full disk"] + 5 * ["go"], 1)
@example(4 * ["go"] + ["nan"] + 5 * ["go"], 1)
@example(4 * ["go"] + ["person"] + 5 * ["go"], 1)
@example(4 * ["go"] + ["silent"] + 5 * ["go"], 3)  # in shadow: nobody knows what was done
@given(STEPS, st.integers(0, 2**32 - 1))
def test_online_and_from_the_recording_it_is_the_same(bundle: Path, steps: list[str], seed: int):
    """Random episodes with gaps: sensors that fail, a full disk, people who act, actions that nobody knows."""
    path = bundle.parent / f"{seed}.musbo"
    path.unlink(missing_ok=True)
    random = np.random.default_rng(seed)
    met: dict[float, np.ndarray] = {}
    shadow = seed % 3 == 0
    clock = iter(np.arange(1.0, 1e4))
    with Runtime(
        bundle, fallback=[0, 1, 0], record=path, explore=True, seed=1, shadow=shadow, clock=lambda: float(next(clock))
    ) as controller:
        policy = controller._mind.policy

        def seeing(obs: np.ndarray) -> np.ndarray:
            met[float(obs[0, 0])] = obs[0].copy()
            return policy(obs)

        controller._mind.policy = seeing
        for i, step in enumerate(steps):
            obs = shipped.observations(1, seed % 1000 + i)[0]
            obs[0] = i  # tells steps apart
            if step == "nan":
                obs[1] = np.nan
            with (
                mock.patch.object(runtime.Recorder, "_write", side_effect=OSError)
                if step == "full disk"
                else mock.MagicMock()
            ):
                controller.act(obs)
            if step == "person" or (shadow and step != "silent"):
                controller.executed(random.uniform(RAW.low, RAW.high))
            if step == "end":
                controller.end(shipped.observations(1, i)[0])
            if step == "ended by itself":
                controller.end(shipped.observations(1, i)[0], terminated=True)
            if step == "begin":
                controller.begin()
    batch = musbo.read_batch(path)
    seen = stacked_batch(RAW, batch)
    for row in range(len(batch)):
        np.testing.assert_array_equal(seen.obs[row], met[float(batch.obs[row, 0])])
        after = float(batch.next_obs[row, 0])
        inside = row + 1 < len(batch) and batch.episode[row + 1] == batch.episode[row]
        if inside:
            np.testing.assert_array_equal(seen.next_obs[row], met[after])


def test_all_forms_of_the_policy_take_the_past(bundle: Path):
    policy, judge = parts()
    obs = observations(300, 7)
    wanted = np.asarray(policy(jnp.asarray(obs)))
    mind = runtime.Mind(runtime.Bundle(bundle))
    files = made()
    assert off(mind.policy(obs), wanted) < 1e-5
    assert off(in_onnx(files["policy.onnx"], obs), wanted) < 1e-5
    assert off(in_c(bundle, obs), wanted) < 1e-5
    assert mind.labeler is not None
    act = wanted
    np.testing.assert_allclose(
        mind.labeler.doubt(obs, act), doubt(judge, jnp.asarray(obs), jnp.asarray(act)), rtol=2e-3
    )
    assert b"past 3 observations and actions" in files["README.md"] and b"#define MUSBO_HISTORY 3" in files["policy.h"]


def test_lagged_doubt_looks_back_with_the_past(tmp_path: Path):
    """Zeta of the second step is that of JAX, from what was seen in the first."""
    shipped.write(tmp_path / "b", made(lagged=True))
    policy, judge = parts()
    quiet = Seeking(zeta="lagged", sigma=0.0).actor(policy, judge)
    raw = shipped.observations(2, 5)
    with Runtime(tmp_path / "b", fallback=[0, 1, 0], record=tmp_path / "r.musbo", explore=True, seed=0) as controller:
        first = controller.act(raw[0])
        controller.act(raw[1])
        controller.end()
    assert first is not None
    before = np.concatenate([raw[0], *HISTORY * (raw[0], RAW.centre)])
    after = np.concatenate([raw[1], raw[0], first, before[shipped.OBS : -(shipped.OBS + shipped.ACT)]])
    rows = (jnp.asarray(x[None]) for x in (after, before, first))
    now, then, done = rows
    _, zeta = quiet.act(now, jax.random.key(0), then, done, jnp.ones(1, bool))
    signal = open_table(tmp_path / "r.musbo").read(["signal"]).column("signal").to_pylist()
    np.testing.assert_allclose(signal[1], zeta[0], rtol=1e-3)


def test_a_plain_explorer_and_no_history_are_as_before():
    policy = shipped.squashed()
    files = shipped.made(policy, Plain(0.1).actor(policy, None)).files
    assert b'"history": 0' in files["manifest.json"] and b"MUSBO_HISTORY" not in files["policy.h"]


def test_the_past_changes_nothing_where_there_is_no_policy(tmp_path: Path):
    """A bundle without one may say a history."""
    acts = []
    for history in (0, HISTORY):
        about = replace(shipped.ABOUT, history=history)
        ends = (np.full(shipped.OBS, -1e30, np.float32), np.full(shipped.OBS, 1e30, np.float32))
        files = baseline_contents((RAW.low, RAW.high), ends, about, {}).files
        shipped.write(tmp_path / str(history), files)
        controller = Runtime(tmp_path / str(history), fallback=lambda obs: np.tanh(obs[:3]), seed=0)
        acts.append([controller.act(row) for row in shipped.observations(5)])
    np.testing.assert_array_equal(*acts)
