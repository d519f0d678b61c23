"""What comes home to a campaign: every form of it, every fault that the doctor knows, and what belongs elsewhere."""

import hashlib
import io
import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest

import musbo
from musbo.campaign.events import Collected, Exported
from musbo.campaign.field_campaign import Campaign
from musbo.campaign.homecoming import Home
from musbo.campaign.places import LEDGER
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.batch import Batch
from musbo.data.finding import in_order
from musbo.tasks.builtin import pointmass as POINTMASS
from tests.campaign.homes import STEPS, awaited, batch_of, recorded, records, waiting, walks
from tests.campaign.test_ledger import rewritten

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import minari

MADE = walks()
NAMES = ("obs", "act", "reward", "next_obs", "terminated", "truncated", "episode", "step")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """To be looked at, and not changed."""
    return waiting(tmp_path_factory.mktemp("homes") / "campaign")


@pytest.fixture
def fresh(tmp_path: Path) -> Campaign:
    return waiting(tmp_path / "campaign")


def everything(folder: Path) -> dict[str, str]:
    """Every file of a folder, by its content."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# Every way home

MAPPING = """
obs = ["px", "py", "vx", "vy"]
act = ["fx", "fy"]
reward = "profit"
episode = "shift"
time = "stamp"
"""
HISTORIAN = """
obs = ["px", "py", "vx", "vy"]
act = [{ column = "fx", align = "next" }, { column = "fy", align = "next" }]
reward = "profit"
time = "stamp"
interval = 1.0
gap = 5.0
quality = "status"
machine = "unit"
bundle = "policy"
"""
OBS, ACT = ("px", "py", "vx", "vy"), ("fx", "fy")


def table(made: dict[str, np.ndarray]) -> dict[str, Any]:
    """Columns as a site may call them; the last row of an episode holds the state that it ended in."""
    count = len(made["obs"])
    closing = [(0, 0), (0, 1), (0, 0)]
    columns = {name: made["obs"][:, :, i].reshape(-1) for i, name in enumerate(OBS)}
    columns |= {name: np.pad(made["act"][:, :, i], closing[:2]).reshape(-1) for i, name in enumerate(ACT)}
    columns["profit"] = np.pad(made["reward"], closing[:2]).reshape(-1)
    columns["shift"] = np.repeat(np.arange(count), STEPS + 1)
    columns["stamp"] = np.arange(count * (STEPS + 1)) + 100.0 * columns["shift"]
    return columns


def recording(place: Path, bundle: str) -> tuple[Home, str | None]:
    return recorded(place / "home.musbo", records(MADE), bundle), None


def parquet(place: Path, bundle: str) -> tuple[Home, str | None]:
    musbo.write_batch(place / "home.parquet", batch_of(MADE))
    return place / "home.parquet", None


def csv(place: Path, bundle: str) -> tuple[Home, str | None]:
    """Of a historian: two machines in turn, several rows in a step, and a flag of quality."""
    frame = pd.DataFrame(table(MADE))
    frame["unit"], frame["policy"], frame["status"] = np.where(frame["shift"] % 2, "north", "south"), bundle, "Good"
    between = frame.assign(stamp=frame["stamp"] + 0.5, px=99.0, status="Bad")  # what is no value of a step
    both = pd.concat([between, frame]).sort_values("stamp", kind="stable")
    both.to_csv(place / "home.csv", index=False, float_format="%.17g")
    return place / "home.csv", HISTORIAN


def npz(place: Path, bundle: str) -> tuple[Home, str | None]:
    np.savez(place / "home.npz", allow_pickle=False, **table(MADE))
    return place / "home.npz", MAPPING


def hdf5(place: Path, bundle: str) -> tuple[Home, str | None]:
    with h5py.File(place / "home.hdf5", "w") as file:
        for name, values in table(MADE).items():
            file[name] = values
    return place / "home.hdf5", MAPPING


def frame(place: Path, bundle: str, make: Callable[..., Any] = pd.DataFrame) -> tuple[Home, str | None]:
    meant: dict[str, Any] = {"obs": OBS, "act": ACT, "reward": "profit", "episode": "shift", "time": "stamp"}
    return musbo.data.from_dataframe(make(table(MADE)), **meant), None


def polars(place: Path, bundle: str) -> tuple[Home, str | None]:
    return frame(place, bundle, pl.DataFrame)


def minari_set(place: Path, bundle: str) -> tuple[Home, str | None]:
    musbo.data.to_minari(batch_of(MADE), "site/home-v0")
    assert "site/home-v0" in minari.list_local_datasets()
    return "minari:site/home-v0", None


def batch(place: Path, bundle: str) -> tuple[Home, str | None]:
    return batch_of(MADE), None


WAYS = (recording, parquet, csv, npz, hdf5, frame, polars, minari_set, batch)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_home(
    fresh: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[..., tuple[Home, str | None]]
):
    """The same transitions arrive; a second time nothing changes; the bundle is what the data or a person say."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    bundle = awaited(fresh)
    data, text = way(tmp_path, bundle)
    mapping = None if text is None else tmp_path / "mapping.toml"
    if mapping is not None and text is not None:
        mapping.write_text(text)
    named = way in (recording, csv)
    before = everything(fresh.folder)
    if not named:
        with pytest.raises(UserError, match="nothing says which bundle made these data"):
            fresh.ingest([data], mapping=mapping)
        with pytest.raises(UserError, match="0 bundles that left for round 2 begin with 'ffff'"):
            fresh.ingest([data], mapping=mapping, bundle="ffff")
        assert everything(fresh.folder) == before
    came = fresh.ingest([data], mapping=mapping, bundle=None if named else bundle[:6])
    assert (came.round, came.again, came.transitions) == (2, False, len(batch_of(MADE)))
    event = fresh.history()[-1].what
    assert isinstance(event, Collected) and event.bundles == (bundle,)
    home = musbo.data.read_logs(fresh.folder / "store" / event.artefact).batch
    # The machines of a historian's file come one after the other, each with its episodes.
    order = [*range(0, 8, 2), *range(1, 8, 2)] if way is csv else range(8)
    wanted = batch_of({name: values[list(order)] for name, values in MADE.items()})
    if way is csv:
        order = [*order[4:], *order[:4]] if not np.array_equal(home.obs[0], wanted.obs[0]) else order
        wanted = batch_of({name: values[list(order)] for name, values in MADE.items()})
    for name in NAMES:
        np.testing.assert_array_equal(getattr(home, name), getattr(wanted, name), err_msg=name)
    before = everything(fresh.folder)
    again = fresh.ingest([data], mapping=mapping)
    assert again.again and again.round == 2 and everything(fresh.folder) == before
    assert fresh.verify().problems == ()
    (seen,) = fresh.check([data], mapping=mapping).seen
    assert [finding.kind for finding in seen.findings] == ["came home already"]


POINT = ["x", "y", "velocity in x", "velocity in y"]
FORCE = ["force in x", "force in y"]


def kinds_of(campaign: Campaign, data: Home, mapping: Path | None = None) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Every error, by its kind: what it says, and the columns that it names."""
    (seen,) = campaign.check([data], mapping=mapping, bundle=None).seen
    return {each.kind: (each.text, each.columns) for each in seen.findings if each.level == "error"}


def test_the_names_in_a_header_are_those_of_the_campaign(fresh: Campaign, tmp_path: Path):
    """Also where a program other than the runtime wrote it; what has no name says nothing."""
    rows, bundle = records(MADE), awaited(fresh)

    def said(**header: object) -> dict[str, tuple[str, tuple[str, ...]]]:
        return kinds_of(fresh, recorded(tmp_path / "home.musbo", rows, bundle, **header))

    assert said() == said(obs=POINT, act=FORCE) == {}
    before = everything(fresh.folder)
    text, columns = said(obs=["y", "x", *POINT[2:]], act=FORCE)["other columns"]
    assert "in another order than task pointmass has: obs 0 is 'y' and not 'x', obs 1 is 'x' and not 'y'" in text
    assert columns == ("y", "x") and "manifest" in text
    text, columns = said(obs=POINT, act=["force in x", "torque"])["other columns"]
    assert "other columns than task pointmass has: act 1 is 'torque' and not 'force in y'" in text
    assert columns == ("torque",)
    assert "other columns" in said(obs=["obs_1", "obs_0", "obs_2", "obs_3"])
    with pytest.raises(UserError, match="another order than task pointmass has"):
        fresh.ingest([recorded(tmp_path / "home.musbo", rows, bundle, obs=POINT[::-1])], accept=True)
    assert everything(fresh.folder) == before
    wrong = recorded(tmp_path / "home.musbo", rows, bundle, obs=POINT[::-1])
    assert "other columns" in {each.kind for each in musbo.data.examine([musbo.data.read_logs(wrong)], POINTMASS)}
    fresh.ingest([recorded(tmp_path / "home.musbo", rows, bundle, obs=POINT, act=FORCE)], accept=True)


def by_the_page(bundle: bytes, path: Path) -> Path:
    """A recording as docs/formats.md describes it, from the files of a bundle, and with `struct` and `zlib` alone."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as files:
        manifest, sums = json.loads(files.read("manifest.json")), files.read("SHA256SUMS")
    said = {
        "format": "musbo-recording", "version": 1, "bundle": hashlib.sha256(sums).hexdigest(), "machine": "line-3",
        "obs": manifest["observation"]["names"], "act": manifest["action"]["names"],
        "obs_units": manifest["observation"]["units"], "act_units": manifest["action"]["units"],
        "ledger": manifest["ledger"],
    }  # fmt: skip
    text = json.dumps(said).encode()
    head = b"MUSBOREC" + struct.pack("<II", 1, len(text)) + text
    data, number, nan = head + struct.pack("<I", zlib.crc32(head)), 0, [float("nan")] * 2
    for episode, seen in enumerate(MADE["obs"]):
        for step, obs in enumerate(seen):
            closing = step == STEPS
            act = nan if closing else MADE["act"][episode, step].tolist()
            reward = nan[0] if closing else float(MADE["reward"][episode, step])
            record = struct.pack("<QdII", number, 1.7e9 + 0.5 * number, episode, step)
            record += struct.pack("<BBHff", 0, 4 + 2 if closing else 0, 0, reward, 0.0)
            record += struct.pack("<4f2f2f2f", *obs.tolist(), *act, *act, *(nan if closing else (0, 0)))
            data += record + struct.pack("<I", zlib.crc32(record))
            number += 1
    path.write_bytes(data)
    return path


def test_a_recording_written_from_the_page_alone_comes_home(fresh: Campaign, tmp_path: Path):
    assert zlib.crc32(b"123456789") == 0xCBF43926
    left = next(each.what for each in reversed(fresh.history()) if isinstance(each.what, Exported))
    path = by_the_page((fresh.folder / "store" / left.archive).read_bytes(), tmp_path / "monday.musbo")
    assert fresh.ingest([path]).transitions == len(batch_of(MADE))
    event = fresh.history()[-1].what
    assert isinstance(event, Collected) and event.bundles == (left.bundle,)
    home = musbo.data.read_logs(fresh.folder / "store" / event.artefact).batch
    for name in NAMES:
        np.testing.assert_array_equal(getattr(home, name), getattr(batch_of(MADE), name), err_msg=name)


def test_units_are_those_of_the_task_or_are_converted(tmp_path: Path):
    task = replace(POINTMASS, obs_units=("m", "m", "m/s", "m/s"), act_units=("N", ""))
    frame = pd.DataFrame(table(MADE))
    frame["px"] *= 100
    frame.to_csv(tmp_path / "home.csv", index=False, float_format="%.17g")

    def found(px: str, fx: str = '"fx"') -> list[tuple[str, str, tuple[str, ...]]]:
        obs = f'obs = [{px}, "py", "vx", {{ column = "vy", unit = "m/s" }}]'
        act = f'act = [{fx}, {{ column = "fy", unit = "anything" }}]'
        (tmp_path / "mapping.toml").write_text("\n".join([obs, act, *MAPPING.splitlines()[3:]]))
        logs = musbo.data.read_logs(tmp_path / "home.csv", tmp_path / "mapping.toml")
        seen.append(logs)
        return [
            (each.kind, each.text, each.columns) for each in musbo.data.examine([logs], task) if each.level == "error"
        ]

    seen: list[musbo.data.Logs] = []
    ((kind, text, columns),) = found('{ column = "px", unit = "cm" }')
    assert (kind, columns) == ("other units", ("px",))
    assert text == "px is in cm, and task pointmass has m there: give its scale and offset in a mapping, or log it in m"
    assert found('{ column = "px", unit = "cm", scale = 0.01 }') == []
    np.testing.assert_allclose(seen[-1].batch.obs, batch_of(MADE).obs, rtol=1e-6)
    assert found('{ column = "px", unit = "K", offset = -273.15 }') == [] == found('{ column = "px", unit = "m" }')
    home = recorded(tmp_path / "home.musbo", records(MADE), "b", obs=POINT, obs_units=["m", "m", "m/s", "km/h"])
    (error,) = [each for each in musbo.data.examine([musbo.data.read_logs(home)], task) if each.level == "error"]
    assert error.what == "velocity in y is in km/h, and task pointmass has m/s there"
    both = found('{ column = "px", unit = "cm" }', '{ column = "fx", unit = "kN" }')
    assert [columns for _, _, columns in both] == [("px",), ("fx",)]
    with pytest.raises(UserError, match="px is in cm, and task pointmass has m there"):
        musbo.run(task, data=[seen[0]], budget=1, out=tmp_path / "run")


def test_files_come_home_on_the_command_line(fresh: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What is said is the same on the terminal, as JSON and on the page, and check says it before ingest does."""
    data, text = npz(tmp_path, "")
    assert text is not None
    (tmp_path / "mapping.toml").write_text(text)
    folder, page = str(fresh.folder), tmp_path / "page.html"
    words = [str(data), "--mapping", str(tmp_path / "mapping.toml")]
    before = everything(fresh.folder)
    assert main(["check", *words, "--campaign", folder, "--page", str(page)]) == 0
    text = "nothing says which bundle made these data"
    assert f"warning: {text}" in capsys.readouterr().out and text in page.read_text()
    assert "<svg" in page.read_text()
    assert main(["check", *words, "--campaign", folder, "--planned", "3"]) == 2
    capsys.readouterr()
    assert main(["ingest", folder, *words, "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["findings"][0]["kind"] == "unknown bundle" and text in said["refused"]
    assert everything(fresh.folder) == before
    assert main(["ingest", folder, *words, "--bundle", awaited(fresh), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["transitions"], said["next_step"]) == (400, "train")
    levels = {finding["kind"]: finding["level"] for finding in said["findings"]}
    assert levels["unknown bundle"] == "note" and levels["more than planned"] == "note"


# What belongs elsewhere


def kinds(campaign: Campaign, *data: Home, **more: Any) -> dict[str, str]:
    """The gravest level of every kind of finding."""
    found = campaign.check(data, **more)
    every = [*found.refused, *(finding for seen in found.seen for finding in seen.findings)]
    return {finding.kind: finding.level for finding in reversed(in_order(every))}


def test_another_bundle_is_a_finding(campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stranger = recorded(tmp_path / "stranger.musbo", records(MADE), "f" * 64, ledger="e" * 64)
    assert kinds(campaign, stranger)["another bundle"] == "error"
    assert main(["ingest", str(campaign.folder), str(stranger), "--accept", "--json"]) == 2
    (finding,) = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["level"] == "error"]
    assert finding["kind"] == "another bundle" and "no event here has this hash" in finding["what"]
    ours = recorded(tmp_path / "ours.musbo", records(MADE), awaited(campaign))
    assert "another bundle" not in kinds(campaign, ours)
    frame = pd.DataFrame({**table(MADE), "policy": [awaited(campaign)] * 100 + ["0" * 64] * 308})
    meant: dict[str, Any] = {"obs": OBS, "act": ACT, "reward": "profit", "episode": "shift", "time": "stamp"}
    both = musbo.data.from_dataframe(frame, **meant, bundle="policy")
    assert kinds(campaign, both)["another bundle"] == "error"


def test_what_was_said_against_what_is_written(fresh: Campaign, tmp_path: Path):
    """Two bundles left for the round: the data say the one, the person the other."""
    first = awaited(fresh)
    second = fresh.export(limits={"change": 0.5}).id
    assert first != second
    data = recorded(tmp_path / "home.musbo", records(MADE), first)
    assert "another bundle" not in kinds(fresh, data)
    assert kinds(fresh, data, bundle=second[:8])["another bundle"] == "error"


def test_a_round_that_is_not_open_is_a_finding(fresh: Campaign, tmp_path: Path):
    bundle = awaited(fresh)
    fresh.withdraw(2)
    data = recorded(tmp_path / "home.musbo", records(MADE), bundle)
    found = kinds(fresh, data)
    assert found["no open round"] == "error" and found["another bundle"] == "error"


def test_a_recording_that_changes_while_it_is_read(fresh: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from musbo.campaign import homecoming

    data = recorded(tmp_path / "home.musbo", records(MADE), awaited(fresh))
    original = homecoming.read_logs

    def slow(*words: Any) -> Any:
        found = original(*words)
        recorded(data, records(walks(seed=5)), awaited(fresh))
        return found

    monkeypatch.setattr(homecoming, "read_logs", slow)
    before = fresh.history()
    with pytest.raises(UserError, match="was changed while it was read"):
        fresh.ingest([data], accept=True)
    assert fresh.history() == before


# Faults


@dataclass(frozen=True)
class Fault:
    """One that is planted, and what has to be found."""

    kind: str
    level: str
    plant: Callable[[Path, str], list[Home]]


def changed(**blocks: np.ndarray) -> list[Home]:
    return [replace(batch_of(MADE), **blocks)]


def in_batch(name: str, rows: Any, value: Any) -> Callable[[Path, str], list[Home]]:
    """Values of one array of a batch, in place of others."""

    def plant(place: Path, bundle: str) -> list[Home]:
        values = getattr(batch_of(MADE), name).copy()
        values[rows] = value
        return changed(**{name: values})

    return plant


def in_obs(rows: Any, value: Any) -> Callable[[Path, str], list[Home]]:
    """The same in the observations, before and after."""

    def plant(place: Path, bundle: str) -> list[Home]:
        obs = MADE["obs"].copy()
        obs[rows] = value
        return [batch_of(MADE | {"obs": obs})]

    return plant


def in_records(change: Callable[[np.ndarray], np.ndarray | None], **said: Any) -> Callable[[Path, str], list[Home]]:
    """The records of a recording, changed in place or replaced."""

    def plant(place: Path, bundle: str) -> list[Home]:
        rows = records(MADE)
        other = change(rows)
        return [recorded(place / "home.musbo", rows if other is None else other, bundle, **said)]

    return plant


def in_table(change: Callable[[pd.DataFrame], pd.DataFrame], **more: Any) -> Callable[[Path, str], list[Home]]:
    """Rows of a table with times."""

    def plant(place: Path, bundle: str) -> list[Home]:
        change(pd.DataFrame(table(MADE))).to_csv(place / "home.csv", index=False)
        (place / "mapping.toml").write_text(MAPPING)
        return [place / "home.csv"]

    return plant


def setting(field: str, rows: Any, value: Any) -> Callable[[np.ndarray], None]:
    def change(records: np.ndarray) -> None:
        records[field][rows] = value

    return change


def later(rows: Any, seconds: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], None]:
    def change(records: np.ndarray) -> None:
        records["time"][rows] += seconds(records[rows])

    return change


def late_by(rows: int) -> Callable[[Path, str], list[Home]]:
    """Actions that are written so many rows too late, so that the plant seems to answer to earlier ones."""

    def plant(place: Path, bundle: str) -> list[Home]:
        random = np.random.default_rng(1)
        act = random.uniform(-1, 1, (8, STEPS + rows, 2)).astype(np.float32)
        obs = np.zeros((8, STEPS + 1, 4), np.float32)
        for t in range(STEPS):
            obs[:, t + 1, 2:] = 0.5 * obs[:, t, 2:] + 0.1 * act[:, t]
            obs[:, t + 1, :2] = obs[:, t, :2] + 0.1 * obs[:, t + 1, 2:]
        return [batch_of(MADE | {"obs": obs, "act": act[:, rows:]})]

    return plant


def two_machines(shift: float) -> Callable[[Path, str], list[Home]]:
    def plant(place: Path, bundle: str) -> list[Home]:
        moved = walks(seed=3)
        moved["obs"][:, :, 1] += np.float32(shift)
        north = recorded(place / "north.musbo", records(MADE), bundle, machine="north")
        return [north, recorded(place / "south.musbo", records(moved), bundle, machine="south")]

    return plant


def scaled(place: Path, bundle: str) -> list[Home]:
    """From bar to millibar, from one recording to the next."""
    homes: list[Home] = []
    for i, scale in enumerate((1, 1000)):
        made = walks(seed=i)
        made["obs"][..., 0] = scale * np.random.default_rng(i).normal(20, 1, made["obs"].shape[:2])
        homes.append(recorded(place / f"{i}.musbo", records(made), bundle))
    return homes


def written_twice(place: Path, bundle: str) -> list[Home]:
    obs, act = MADE["obs"].copy(), MADE["act"].copy()
    obs[2, 11], act[2, 11] = obs[2, 10], act[2, 10]
    return [batch_of(MADE | {"obs": obs, "act": act})]


def resaved(place: Path, bundle: str) -> list[Home]:
    musbo.write_batch(place / "copy.parquet", batch_of(MADE))
    return [recorded(place / "home.musbo", records(MADE), bundle), place / "copy.parquet"]


def fewer(place: Path, bundle: str) -> list[Home]:
    return [recorded(place / "home.musbo", records(walks(1)), bundle)]


def torn_chain(place: Path, bundle: str) -> list[Home]:
    after = batch_of(MADE).next_obs.copy()
    after[7] += 1
    return changed(next_obs=after)


def wide(place: Path, bundle: str) -> list[Home]:
    made = MADE | {"obs": np.concatenate([MADE["obs"], MADE["obs"][..., :1]], axis=2)}
    return [recorded(place / "home.musbo", records(made), bundle)]


def flags(rows: Any, **values: bool) -> Callable[[Path, str], list[Home]]:
    def plant(place: Path, bundle: str) -> list[Home]:
        whole = batch_of(MADE)
        blocks = {name: getattr(whole, name).copy() for name in values}
        for name, value in values.items():
            blocks[name][rows] = value
        return changed(**blocks)

    return plant


ENDS = np.arange(STEPS - 1, 8 * STEPS, STEPS)
NAN = float("nan")
FAULTS = (
    Fault("wrong shape", "error", wide),
    Fault("wrong type", "error", in_table(lambda rows: rows.assign(px="high"))),
    Fault("empty values", "error", in_table(lambda rows: rows.assign(px=rows["px"].where(rows.index != 5)))),
    Fault("not finite", "error", in_batch("obs", (5, 1), NAN)),
    Fault("not finite", "error", in_batch("reward", 7, np.inf)),
    Fault("too large", "error", in_batch("obs", (5, 1), 1e20)),
    Fault("left out", "note", in_records(setting("obs", (2, 7, 1), NAN))),
    Fault("left out", "warning", in_records(setting("executed", slice(2), NAN))),
    Fault("action outside bounds", "error", in_batch("act", (9, 0), 1.1)),
    Fault("action at bounds", "note", in_batch("act", (slice(0, 60), 0), 1.0)),
    Fault("action at bounds", "warning", in_batch("act", (slice(None), 0), 1.0)),
    Fault("dead", "warning", in_obs((slice(None), slice(None), 1), 0.25)),
    Fault("stuck", "warning", in_obs((3, slice(5, 40), 1), 0.123)),
    Fault("quantised", "warning", in_obs(..., np.round(2 * MADE["obs"]) / 2 + 0.01)),
    Fault("jump of unit", "warning", scaled),
    Fault("duplicated steps", "error", in_table(lambda rows: pd.concat([rows, rows.iloc[[9]]]))),
    Fault("repeated rows", "warning", written_twice),
    Fault("repeated episodes", "warning", resaved),
    Fault("missing steps", "warning", in_table(lambda rows: rows.drop(index=[20, 21, 22]))),
    Fault("missing steps", "warning", in_records(setting("step", (1, slice(9, None)), np.arange(11, STEPS + 3)))),
    Fault("reordered", "note", in_table(lambda rows: rows.iloc[[1, 0, *range(2, len(rows))]])),
    Fault("late steps", "note", in_records(setting("time", (0, 9), 1.7e9 + 0.5 * 9 + 0.2))),
    Fault("late steps", "warning", in_records(later(..., lambda rows: 0.2 * (rows["number"] % 2)))),
    Fault("clock goes back", "warning", in_records(later((3, slice(9, None)), lambda rows: -9.0))),
    Fault("clock goes back", "warning", in_records(later(slice(3, None), lambda rows: -99.0))),
    Fault("next state does not match", "warning", torn_chain),
    Fault("lag", "warning", late_by(2)),
    Fault("commanded and executed differ", "note", in_records(setting("executed", (0, 3, 0), 0.0))),
    Fault("commanded and executed differ", "warning", in_records(setting("commanded", slice(4), 1.0))),
    Fault("steered by others", "note", in_records(setting("source", (1, slice(9)), 2))),
    Fault("steered by others", "warning", in_records(setting("source", slice(6), 3))),
    Fault("unfinished episodes", "note", in_records(lambda rows: rows.reshape(-1)[:-20])),
    Fault("unexpected termination", "warning", flags(ENDS[2], terminated=True, truncated=False)),
    Fault("terminated at the time limit", "warning", flags(ENDS, terminated=True, truncated=False)),
    Fault("flag inside an episode", "error", flags(7, truncated=True)),
    Fault("end without a flag", "error", flags(ENDS[1], truncated=False)),
    Fault("reward disagrees", "warning", in_batch("reward", ..., 10 * MADE["reward"].reshape(-1))),
    Fault("reward disagrees", "note", in_batch("reward", 44, 0.5)),
    Fault("unknown bundle", "warning", lambda place, bundle: [batch_of(MADE)]),
    Fault("fewer than planned", "note", fewer),
    Fault("more than planned", "note", in_records(lambda rows: None)),
    Fault("drift", "warning", two_machines(9)),
    Fault("machine differs", "note", two_machines(9)),
    Fault("too few", "error", in_records(lambda rows: rows.reshape(-1)[:2])),
    Fault("empty", "error", in_records(lambda rows: rows.reshape(-1)[:0])),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}-{fault.level}")
def test_a_planted_fault_is_found(campaign: Campaign, tmp_path: Path, fault: Fault):
    """It is not there in clean data, and is found at its level; nothing is changed."""
    before = everything(campaign.folder)
    data = fault.plant(tmp_path, awaited(campaign))
    mapping = tmp_path / "mapping.toml"
    found = kinds(campaign, *data, mapping=mapping if mapping.exists() else None)
    assert found.get(fault.kind) == fault.level
    if fault.level == "error":
        with pytest.raises(UserError, match="nothing was changed"):
            campaign.ingest(data, mapping=mapping if mapping.exists() else None, accept=True)
    assert everything(campaign.folder) == before


def test_clean_data_have_notes_only(campaign: Campaign, tmp_path: Path):
    clean = recorded(tmp_path / "home.musbo", records(MADE), awaited(campaign))
    assert set(kinds(campaign, clean).values()) == {"note"}
    assert set(kinds(campaign, clean)) <= {"more than planned", "drift"}
    plain = {kind for kind, level in kinds(campaign, batch_of(MADE)).items() if level != "note"}
    assert plain == {"unknown bundle"}


def test_drift_names_the_machine(campaign: Campaign, tmp_path: Path):
    found = campaign.check(two_machines(9)(tmp_path, awaited(campaign)))
    (drifted,) = [
        each for seen in found.seen for each in seen.findings if (each.kind, each.level) == ("drift", "warning")
    ]
    assert drifted.machines == ("south",) and drifted.columns == ("obs_1",)


def test_data_of_another_round_in_another_format_are_found(fresh: Campaign, tmp_path: Path):
    """The recording came home; the same steps, saved again as Parquet, are copies to the doctor."""
    bundle = awaited(fresh)
    fresh.ingest([recorded(tmp_path / "home.musbo", records(MADE), bundle)], accept=True)
    fresh.train()
    fresh.export()
    assert kinds(fresh, batch_of(MADE), bundle=awaited(fresh)[:9])["repeated episodes"] == "warning"


def test_a_batch_keeps_who_chose(fresh: Campaign, tmp_path: Path):
    rows = records(MADE)
    rows["source"][0, :5], rows["source"][1, :3] = 2, 3
    fresh.ingest([recorded(tmp_path / "home.musbo", rows, awaited(fresh))], accept=True)
    event = fresh.history()[-1].what
    assert isinstance(event, Collected)
    home: Batch = musbo.read_batch(fresh.folder / "store" / event.artefact)
    assert home.by[:5].tolist() == [-2] * 5 and home.by[STEPS : STEPS + 3].tolist() == [-3] * 3


@pytest.mark.parametrize("told", ["x", "[1]", "{"])
def test_limits_in_a_ledger_that_are_none_are_a_sentence(tmp_path: Path, told: str):
    campaign = waiting(tmp_path / "campaign")
    rewritten(
        campaign.folder / LEDGER, lambda payload: payload.replace('"limits": ""', f'"limits": {json.dumps(told)}')
    )
    with pytest.raises(UserError, match="its limits"):
        campaign.export()
