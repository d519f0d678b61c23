"""The bench for generality: its tasks are what they say, its scores are right, and it runs from end to end."""

import csv
import json
import math
from dataclasses import replace
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.generality import kept, score, table, work
from benchmarks.generality import tasks as own
from benchmarks.generality.__main__ import main
from benchmarks.generality.plan import ENTRIES, METHODS, Entry, Run, chosen_entries, runs, settings_of, with_settings
from benchmarks.generality.score import Reference
from benchmarks.generality.table import Results, Row
from musbo.core.errors import UserError
from musbo.field.find import find_task
from musbo.field.worlds import no_simulator
from musbo.tasks.task import Gym

# The tasks


def test_tasks_are_what_their_simulators_are():
    """Sizes are compared when a world is made; bounds and lengths here."""
    tasks = [find_task(entry.task) for entry in ENTRIES]
    assert [no_simulator(task) for task in tasks] == [None] * 10
    assert sum(task.reward == "learned" for task in tasks) == 5
    for task in tasks:
        if isinstance(task.simulator, Gym):
            env = gymnasium.make(task.simulator.id)
            space = env.action_space
            assert isinstance(space, gymnasium.spaces.Box) and env.spec is not None
            assert (space.low == task.low).all() and (space.high == task.high).all()
            assert env.spec.max_episode_steps == task.episode_steps


def energy(place: float, speed: float) -> float:
    return 0.0025 / 3 * math.sin(3 * place) + speed**2 / 2


def test_mountain_car_is_that_of_gymnasium_with_a_shaped_reward():
    """Step by step from states all over the valley, its walls and the goal among them."""
    env: Any = gymnasium.make("MountainCarContinuous-v0").unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    ends = walls = 0
    for _ in range(300):
        place = np.clip(rng.uniform(-1.3, 0.7), -1.2, 0.6)
        state = np.asarray([place, rng.uniform(-0.07, 0.07)], np.float32)
        act = rng.uniform(-1.0, 1.0, 1).astype(np.float32)
        env.state = state.copy()
        expected, reward, ended, *_ = env.step(act)
        found, gained = own._car_step(jnp.asarray(state), jnp.asarray(act))
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert bool(own.mountain_car_terminated(jnp.asarray(expected))) == ended
        shaped = reward + 60_000 * (energy(*expected.tolist()) - energy(*state.tolist()))
        assert float(gained) == pytest.approx(shaped, abs=0.02)  # float32, and the energies are near 1e-3
        ends, walls = ends + ended, walls + (expected[0] == np.float32(-1.2))
    assert ends > 5 and walls > 5


@pytest.mark.parametrize(("swings", "arrives"), [(False, False), (True, True)])
def test_mountain_car_needs_momentum(swings: bool, arrives: bool):
    """The engine alone cannot climb; pushing the way it moves can."""
    state = jnp.asarray([-0.5, 0.0])
    for _ in range(own.mountain_car.episode_steps):
        act = jnp.where(state[1] < 0, -1.0, 1.0) if swings else jnp.ones(())
        state, _ = own._car_step(state, act[None])
        if own.mountain_car_terminated(state):
            break
    assert bool(own.mountain_car_terminated(state)) == arrives


# The plan


def test_one_seed_of_everything_comes_before_the_second():
    wanted = runs(ENTRIES[:2], ["uvg", "sac"], "quick", [100, 101])
    assert [(run.entry.name, run.method, run.seed) for run in wanted[:5]] == [
        ("pendulum", "uvg", 100),
        ("pendulum", "sac", 100),
        ("mountain_car", "uvg", 100),
        ("mountain_car", "sac", 100),
        ("pendulum", "uvg", 101),
    ]
    assert len({run.name for run in runs(ENTRIES, METHODS, "fast", range(3))}) == 180


def test_settings_become_flags():
    assert with_settings(["musbo", "sac steps=5"], ["a.b=1,2"]) == ["musbo a.b=1,2", "sac steps=5 a.b=1,2"]
    assert settings_of("sac steps=5 a.b=1,2") == ["sac", "--steps", "5", "--a.b", "1", "2"]
    for wrong in ("musbo label.alpha", "musbo --label.alpha=auto", "musbo =1"):
        with pytest.raises(UserError, match="label.alpha=auto"):
            settings_of(wrong)


def test_an_unknown_task_is_refused():
    with pytest.raises(UserError, match="'ant'.*pendulum"):
        chosen_entries(["pendulum", "ant"])


def test_reference_has_ten_times_the_samples_in_forty_deployments():
    for entry in ENTRIES:
        random, long = score.reference_runs(entry)
        assert long.entry.budget == 40
        assert long.entry.budget * long.entry.batch_size == 10 * entry.budget * entry.batch_size
        assert settings_of(long.method) == ["sac", "--steps", str(long.entry.batch_size)]
        assert (random.method, random.seed, long.seed) == ("random", 99, 99)


# Scores


def line(task: str) -> Reference:
    return Reference(task, random=-10.0, sac=90.0, transitions=1, core_seconds=None, source="abc")


def test_scores_by_hand():
    found = {value: score.score(value, line("pendulum")) for value in (-10.0, 40.0, 90.0, 140.0, 141.0, -500.0)}
    assert found == {-10.0: 0.0, 40.0: 0.5, 90.0: 1.0, 140.0: 1.5, 141.0: 1.5, -500.0: 0.0}


def test_references_are_kept_and_read(tmp_path):
    both = {"walker2d": line("walker2d"), "pendulum": Reference("pendulum", -1200.0, -150.5, 20_000, 12.5, "def")}
    score.write(tmp_path / "r.csv", both, [entry.name for entry in ENTRIES])
    assert score.read(tmp_path / "r.csv") == both
    assert list(score.read(tmp_path / "r.csv")) == ["pendulum", "walker2d"]
    assert score.read(tmp_path / "none.csv") == {}


def made(returns: dict[tuple[str, str, int], float]) -> Results:
    """Results of runs of one deployment each; those that have no return have not run. Walker2d has no reference."""
    entries = [Entry(name, 1, 10) for name in ("pendulum", "hopper", "walker2d")]
    wanted = runs(entries, ["uvg", "sac", "mopo"], "fast", [1, 2])
    done = [run for run in wanted if (run.entry.name, run.method, run.seed) in returns]
    lines = {name: line(name) for name in ("pendulum", "hopper")}
    rows = []
    for run in done:
        value = returns[run.entry.name, run.method, run.seed]
        points = score.score(value, lines[run.entry.name]) if run.entry.name in lines else None
        rows.append(Row(run.entry.name, run.method, "fast", run.seed, 1, value, points, 120.0, "abc"))
    return Results(wanted, rows, done, lines)


def test_table_by_hand():
    """Scores of uvg: .5 and .7, 1 and 1; of sac: .2 and .6 on pendulum, one of 1 on hopper; of mopo nothing."""
    pendulum = {("pendulum", "uvg", 1): 40.0, ("pendulum", "uvg", 2): 60.0}
    other = {("pendulum", "sac", 1): 10.0, ("pendulum", "sac", 2): 50.0, ("hopper", "sac", 1): 90.0}
    hopper = {("hopper", "uvg", 1): 90.0, ("hopper", "uvg", 2): 90.0, ("walker2d", "uvg", 1): 5.0}
    results = made(pendulum | other | hopper)
    text = table.told(results)
    assert text[0] == "| task | uvg | sac | mopo |"
    assert text[2:6] == [
        "| pendulum | 0.60 | 0.40 | missing |",
        "| hopper | 1.00 | 1.00 (1 of 2) | missing |",
        "| walker2d | no reference (1 of 2) | missing | missing |",
        "| mean | 0.80 (2 of 3 tasks) | 0.70 (2 of 3 tasks) | missing |",
    ]
    # Of .5 .7 1 1 the middle two; of pendulum's four pairs uvg wins three, and on hopper both pairs are ties.
    assert text[6].startswith("| IQM | 0.85 [")
    assert text[7] == "| P(uvg better) |  | 0.62 (2 of 3 tasks) | missing |"
    assert text[8] == "| core-minutes a run | 2.0 | 2.0 | unknown |"
    assert "No reference yet, so no score: walker2d." in text
    only = table.told(made(pendulum))
    assert (
        "- everything on hopper, walker2d" in only
        and "- hopper, uvg: 1, 2" not in only
        and "- pendulum, mopo: 1, 2" in only
    )
    assert "Missing, 10 of 18 runs:" in text and "- hopper, sac: 2" in text and "- walker2d, mopo: 1, 2" in text


# From end to end


def test_bench_runs_and_goes_on(tmp_path, capsys):
    out, file = tmp_path / "work", tmp_path / "references.csv"
    score.write(file, {"pendulum": Reference("pendulum", -1000.0, 0.0, 20_000, None, "abc")}, ["pendulum"])
    random, sac = Run(ENTRIES[0], "random", "quick", 3), Run(ENTRIES[0], "sac steps=20", "quick", 3)

    def call(verb: str, *methods: str, more: tuple[str, ...] = ()) -> int:
        common = ("--out", str(out), "--tasks", "pendulum", "--preset", "quick", "--seeds", "3")
        return main([verb, *common, "--methods", *methods, *more])

    assert call("run", "random", "sac steps=20", more=("--list",)) == 0
    assert "0 of 2 runs are done" in capsys.readouterr().out
    assert call("run", "random") == 0
    assert call("run", "sac", more=("--set", "steps=20")) == 0
    assert call("run", "random", "sac steps=20") == 0  # nothing is left to do
    assert all(len(json.loads(path.read_text())["attempts"]) == 1 for path in (out / "records").iterdir())
    seen = work.look(out, sac)
    assert seen.state == "done" and len(seen.returns) == 4 and (seen.core_seconds or 0.0) > 0.5
    assert set(work.begun(out)) == {random, sac}
    capsys.readouterr()
    assert call("table", "sac steps=20", "random", "mopo", more=("--references", str(file))) == 0
    shown = capsys.readouterr().out
    assert "| task | sac steps=20 | random | mopo |" in shown and "- pendulum, mopo: 3" in shown
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [(row["method"], row["deployment"]) for row in rows[:5]] == [
        *(("sac steps=20", str(i)) for i in range(1, 5)),
        ("random", "1"),
    ]
    assert [float(row["return"]) for row in rows[:4]] == list(seen.returns)
    for row in rows:
        assert float(row["score"]) == pytest.approx(min(max(float(row["return"]) / 1000 + 1, 0.0), 1.5))
        assert row["source"] == seen.source and len(seen.source) == 12
    assert [bool(row["core_seconds"]) for row in rows[:4]] == [False, False, False, True]
    assert (out / "scores.svg").read_bytes().startswith(b"<?xml")
    # An attempt whose end nobody saw: what the run has cost is not known, and nothing else changes.
    record = out / "records" / f"{sac.name}.json"
    told = json.loads(record.read_text())
    record.write_text(json.dumps(told | {"attempts": [None, *told["attempts"]]}))
    assert work.look(out, sac) == work.Seen("done", seen.returns, None, seen.source)


def test_runs_whose_results_are_kept_are_done(tmp_path, capsys):
    """A whole run among the results is not repeated and is in the table; of half a run nothing is taken."""
    file, lines = tmp_path / "results.csv", {"pendulum": Reference("pendulum", -1000.0, 0.0, 20_000, None, "abc")}
    score.write(tmp_path / "references.csv", lines, ["pendulum"])
    whole = [
        Row("pendulum", "sac", "quick", 3, i, -100.0 * i, None, 9.0 if i == 4 else None, "def") for i in range(1, 5)
    ]
    half = [replace(row, seed=4) for row in whole[:2]]
    file.write_text(table.to_csv([*half, *reversed(whole)]))
    run = Run(ENTRIES[0], "sac", "quick", 3)
    assert kept.read(file) == {run: work.Seen("done", (-100.0, -200.0, -300.0, -400.0), 9.0, "def")}
    assert kept.read(tmp_path / "none.csv") == {}
    common = ["--out", str(tmp_path / "out"), "--kept", str(file), "--preset", "quick", "--tasks", "pendulum"]
    methods = ["--methods", "sac"]
    assert main(["run", *common, *methods, "--seeds", "3"]) == 0
    assert not (tmp_path / "out" / "records").exists()  # nothing was begun
    capsys.readouterr()
    assert main(["run", *common, *methods, "--seeds", "3", "4", "--list"]) == 0
    assert "1 of 2 runs are done" in capsys.readouterr().out
    assert main(["table", *common, *methods, "--references", str(tmp_path / "references.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    assert [(row["return"], row["core_seconds"]) for row in rows[:4]] == [
        ("-100.0", ""),
        ("-200.0", ""),
        ("-300.0", ""),
        ("-400.0", "9.0"),
    ]
    assert [float(row["score"]) for row in rows] == pytest.approx([0.9, 0.8, 0.7, 0.6])


def test_a_run_that_fails_is_said(tmp_path, capsys):
    words = ["run", "--out", str(tmp_path), "--tasks", "pendulum", "--methods", "sac steps=0", "--preset", "quick"]
    assert main(words) == 1
    assert "failed: " in capsys.readouterr().out
    assert work.look(tmp_path, Run(ENTRIES[0], "sac steps=0", "quick", 100)).state == "missing"
