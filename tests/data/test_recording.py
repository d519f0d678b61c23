"""Recordings: written with `struct` alone from what docs/formats.md says, cut at every place, damaged, killed."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import musbo
from musbo.cli import main
from musbo.core.errors import UserError
from musbo.data.readers import recording
from musbo.data.readers.choose import open_table
from musbo.field import runtime
from musbo.field.runtime import Recorder, Runtime
from tests.field import shipped

GOLDEN = Path(__file__).parents[1] / "golden"
HEADER = {
    "format": "musbo-recording",
    "version": 1,
    "bundle": "b" * 64,
    "machine": "m",
    "obs": ["x", "y"],
    "act": ["u"],
}
WIDTH = 40 + 4 * (2 + 3 * 1)
CLOSING, TERMINATED = 4, 1


def head(said: dict[str, Any] = HEADER, version: int = 1) -> bytes:
    text = json.dumps(said).encode()
    begin = b"MUSBOREC" + struct.pack("<II", version, len(text)) + text
    return begin + struct.pack("<I", zlib.crc32(begin))


def record(number: int, episode: int, step: int, obs: list[float], act: float, **more: Any) -> bytes:
    """One record, as the table in docs/formats.md has it."""
    said = {"time": 0.5 * number, "source": 0, "flags": 0, "reason": 0, "reward": 1.0, "signal": 0.0} | more
    body = struct.pack("<Q", number) + struct.pack("<d", said["time"]) + struct.pack("<II", episode, step)
    body += struct.pack("<BBH", said["source"], said["flags"], said["reason"])
    body += struct.pack("<ff", said["reward"], said["signal"])
    body += struct.pack("<2f", *obs) + struct.pack("<3f", act, act, 0.0)
    assert len(body) + 4 == WIDTH
    return body + struct.pack("<I", zlib.crc32(body))


def sound(n: int = 8) -> list[bytes]:
    """An episode that ends by itself and one that was cut off by the end of the file."""
    rows = [record(i, 0, i, [i, -i], 0.1 * i) for i in range(4)]
    rows.append(record(4, 0, 4, [4, -4], float("nan"), flags=CLOSING | TERMINATED, reward=float("nan")))
    return rows + [record(5 + i, 1, i, [10 + i, 0], 0.5) for i in range(n - 5)]


def written(path: Path, rows: list[bytes], header: bytes | None = None) -> Path:
    path.write_bytes((head() if header is None else header) + b"".join(rows))
    return path


def test_a_recording_written_with_struct_alone(tmp_path: Path):
    logs = musbo.data.read_logs(written(tmp_path / "r.musbo", sound()))
    batch = logs.batch
    np.testing.assert_array_equal(batch.obs[:, 0], [0, 1, 2, 3, 10, 11])
    np.testing.assert_array_equal(batch.next_obs[:, 0], [1, 2, 3, 4, 11, 12])
    np.testing.assert_allclose(batch.act[:, 0], [0, 0.1, 0.2, 0.3, 0.5, 0.5], rtol=1e-6)
    assert batch.terminated.tolist() == [False] * 3 + [True] + [False] * 2
    assert batch.truncated.tolist() == [False] * 5 + [True]
    assert batch.episode.tolist() == [0] * 4 + [1] * 2 and batch.reward.tolist() == [1.0] * 6


def test_the_runtime_writes_what_the_page_says(tmp_path: Path):
    """Byte for byte: the recorder of the runtime and the writer above."""
    writer = Recorder(tmp_path / "r.musbo", HEADER)
    for i in range(3):
        obs, act = np.array([i, -i], np.float32), np.array([0.1 * i], np.float32)
        writer.append(0.5 * i, 0, i, obs, act, act, np.zeros(1), reward=1.0)
    writer.close()
    text = json.dumps(HEADER, sort_keys=True).encode()
    begin = b"MUSBOREC" + struct.pack("<II", 1, len(text)) + text
    wanted = begin + struct.pack("<I", zlib.crc32(begin)) + b"".join(sound()[:3])
    assert (tmp_path / "r.musbo").read_bytes() == wanted


def test_reader_and_runtime_use_the_same_words():
    assert (recording.SOURCES, recording.REASONS) == (runtime.SOURCES, runtime.REASONS)
    assert (recording.MAGIC, recording.VERSION) == (runtime.MAGIC, runtime.RECORDING_VERSION)
    for name in ("TERMINATED", "TRUNCATED", "CLOSING", "SHADOW", "FALLBACK_FAILED"):
        assert getattr(recording, name) == getattr(runtime, name)


def test_steps_that_are_missing_or_no_numbers_cut_the_episode(tmp_path: Path):
    nan = float("nan")
    rows = [record(0, 0, 0, [0, 0], 0.1), record(1, 0, 1, [1, 0], 0.1), record(2, 0, 2, [nan, 0], 0.1)]
    rows += [record(3, 0, 3, [3, 0], 0.1), record(4, 0, 4, [4, 0], 0.1)]
    rows += [record(5, 0, 9, [9, 0], 0.1), record(6, 0, 10, [10, 0], nan), record(7, 0, 11, [11, 0], 0.1)]
    batch = musbo.read_batch(written(tmp_path / "r.musbo", rows))
    assert batch.obs[:, 0].tolist() == [0, 3, 9] and batch.next_obs[:, 0].tolist() == [1, 4, 10]
    assert batch.episode.tolist() == [0, 1, 2] and batch.truncated.all()


def test_who_chose_is_the_source_of_the_record(tmp_path: Path):
    rows = [record(i, i // 5, i % 5, [i, 0], 0.1, source=(0, 1, 2, 3, 0)[i % 5]) for i in range(10)]
    assert musbo.read_batch(written(tmp_path / "r.musbo", rows)).by.tolist() == [0, -1, -2, -3] * 2
    shared = head(HEADER | {"every": 4})  # episode 1 is the challenger's
    assert musbo.read_batch(written(tmp_path / "r.musbo", rows, shared)).by.tolist() == [0, -1, -2, -3, 1, -1, -2, -3]
    three = head(HEADER | {"shares": [2, 1]})
    assert musbo.read_batch(written(tmp_path / "r.musbo", rows, three)).by.tolist() == [2, -1, -2, -3, 1, -1, -2, -3]
    for wrong in ({"every": "x"}, {"shares": "x"}, {"shares": []}, {"shares": [0, 200]}, {"shares": [True, 1]}):
        odd = head(HEADER | wrong)
        assert musbo.read_batch(written(tmp_path / "r.musbo", rows, odd)).by.tolist() == [0, -1, -2, -3] * 2


def test_rewards_are_read_where_every_step_has_one(tmp_path: Path):
    rows = sound()
    rows[1] = record(1, 0, 1, [1, -1], 0.1, reward=float("nan"))
    assert "reward" not in open_table(written(tmp_path / "r.musbo", rows)).names
    assert np.isnan(musbo.read_batch(tmp_path / "r.musbo").reward).all()


def test_check_and_run_take_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`musbo check` names what it found; its columns are there for a mapping too."""
    path = written(tmp_path / "r.musbo", sound())
    assert main(["check", str(path), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)[0]
    assert "6 transitions" in seen["said"] and {"source", "reason", "noise_0"} <= set(seen["ignored"])
    assert not {"time", "machine", "commanded_0", "bundle"} & set(seen["ignored"])


# Cuts and damage


def test_a_cut_anywhere_loses_the_last_record_only(tmp_path: Path):
    rows, begin = sound(), head()
    whole = begin + b"".join(rows)
    for size in range(len(begin), len(whole) + 1):
        (tmp_path / "r.musbo").write_bytes(whole[:size])
        table = open_table(tmp_path / "r.musbo")
        assert table.read(["obs_0"]).num_rows == (size - len(begin)) // WIDTH
    for size in range(len(begin)):
        (tmp_path / "r.musbo").write_bytes(whole[:size])
        with pytest.raises(UserError):
            open_table(tmp_path / "r.musbo")


@given(st.integers(0, len(head()) + 8 * WIDTH - 1), st.integers(0, 7))
def test_a_flipped_bit_is_found(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int):
    """In the header and in every record but the last, which a power cut may have spoilt: it is left out."""
    path = tmp_path_factory.getbasetemp() / "flipped.musbo"
    data = bytearray(head() + b"".join(sound()))
    data[at] ^= 1 << bit
    path.write_bytes(bytes(data))
    if at >= len(data) - WIDTH:
        assert open_table(path).read(["obs_0"]).num_rows == 7
    else:
        with pytest.raises(UserError):
            open_table(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": []}, "must list the names of obs"),
        ({"obs": "xy"}, "must list the names of obs"),
        ({"act": [1]}, "must list the names of act"),
        ({"obs": ["x"] * 20_000}, "must list the names of obs"),
        ({"obs_units": ["m"]}, "as many units of obs as names"),
        ({"act_units": [1]}, "as many units of act as names"),
        ({"version": 2}, "written by a newer musbo"),
        ({"format": "other"}, "is a 'other' file"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        open_table(written(tmp_path / "r.musbo", sound(), head(HEADER | change)))


def test_records_that_are_refused(tmp_path: Path):
    rows = sound()
    for wrong, message in (
        ([rows[0], rows[2], rows[1], *rows[3:]], "not numbered from 0"),
        ([*rows[:3], *rows[4:]], "not numbered from 0"),
        ([record(0, 0, 0, [0, 0], 0.1, source=9), *rows[1:]], "record 0 has the source 9"),
        ([record(0, 0, 0, [0, 0], 0.1, reason=99), *rows[1:]], "record 0 has the reason 99"),
    ):
        with pytest.raises(UserError, match=message):
            open_table(written(tmp_path / "r.musbo", wrong))
    for junk in (b"", b"MUSBO", b"MUSBOREC", b"MUSBOREC" + b"\xff" * 8, b"obs_0,act_0\n1,2\n"):
        (tmp_path / "r.musbo").write_bytes(junk)
        with pytest.raises(UserError):
            open_table(tmp_path / "r.musbo")


@pytest.mark.parametrize("torn", [b"\0" * 17, b"\0" * WIDTH, b"\xff" * (WIDTH - 1)])
def test_the_recorder_goes_on_behind_a_torn_record(tmp_path: Path, torn: bytes):
    path = tmp_path / "r.musbo"
    zero, one = np.zeros(2, np.float32), np.zeros(1, np.float32)
    for start in range(0, 9, 3):
        writer = Recorder(path, HEADER)
        assert writer.count == start
        for i in range(3):
            writer.append(0.0, writer.episode, i, zero, one, one, one)
        writer.close()
        with path.open("ab") as file:
            file.write(torn)
    assert open_table(path).read(["episode"]).column(0).to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_an_empty_recording_says_so(tmp_path: Path):
    assert len(musbo.read_batch(written(tmp_path / "r.musbo", []))) == 0


# Another language


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in C that knows docs/formats.md and nothing of musbo."""
    program = tmp_path_factory.mktemp("c") / "writer"
    source = Path(__file__).with_name("writer.c")
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1"]
    subprocess.run(["gcc", *strict, source, "-o", program], check=True)
    return program


def test_a_recording_that_c_wrote_is_read(writer: Path, tmp_path: Path):
    path = tmp_path / "c.musbo"
    subprocess.run([writer, path], check=True)
    batch = musbo.read_batch(path)
    np.testing.assert_array_equal(batch.obs, [[0, 0], [0, 1], [0, 2.25], [0, 3.375], [1, 0], [1, 1], [1, 2.25], [2, 0]])
    np.testing.assert_array_equal(batch.act[:, 0], [0, 0.25, 0.125, 0.75, 0, 0.25, 0.125, 0])
    np.testing.assert_array_equal(batch.next_obs[:, 1], [1, 2.25, 3.375, 5.125, 1, 2.25, 3.375, 1])
    np.testing.assert_array_equal(batch.reward, -batch.obs[:, 1])
    assert batch.terminated.tolist() == [False] * 3 + [True] + [False] * 4
    assert batch.truncated.tolist() == [False] * 6 + [True] * 2
    assert batch.by.tolist() == [0, 0, -1, 0, -3, -3, -3, 0]
    table = open_table(path).read(["machine", "bundle", "time", "commanded_0", "noise_0"])
    assert set(table.column("machine").to_pylist()) == {"press-7"}
    assert set(table.column("bundle").to_pylist()) == {"c-bundle"}
    assert table.column("time").to_pylist()[:2] == [1.7e9, 1.7e9 + 0.5]
    assert table.column("commanded_0").to_pylist()[2] == 0.5 and table.column("noise_0").to_pylist()[0] == 0.0625
    assert recording.recording_header(path, "c")["machine"] == "press-7"
    assert main(["check", str(path)]) == 0


def test_a_recording_that_c_began_is_read_up_to_its_last_whole_record(writer: Path, tmp_path: Path):
    path = tmp_path / "c.musbo"
    subprocess.run([writer, path], check=True)
    size = path.stat().st_size
    records = 11
    head_size = size - records * WIDTH
    for cut in range(head_size, size, 7):
        subprocess.run([writer, path, str(cut)], check=True)
        assert path.stat().st_size == cut
        assert open_table(path).read(["obs_0"]).num_rows == (cut - head_size) // WIDTH


# Kill

CHILD = """
import os, sys
sys.path.insert(0, sys.argv[1])
from runtime import Runtime
controller = Runtime(sys.argv[1], fallback=[0, 1, 0], record=sys.argv[2], machine="m")
os.write(1, b".")
while True:
    controller.act([0.0, 3.0, -40.0, 1.0, 0.5])
    os.write(1, b".")
"""


def killed(bundle: Path, path: Path, times: int) -> None:
    """What was acknowledged is in the file, but for the step under way; over many restarts on one file."""
    draw = random.Random(0)
    before = lost = 0
    for _ in range(times):
        child = subprocess.Popen([sys.executable, "-I", "-c", CHILD, bundle, path], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.read(1) == b"."
        time.sleep(draw.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        acted = len(child.stdout.read())
        child.stdout.close()
        child.wait()
        rows = open_table(path).read(["obs_0"]).num_rows
        assert acted - 1 <= rows - before <= acted
        lost += acted - (rows - before)
        before = rows
    print(json.dumps({"kills": times, "records": before, "lost": lost}))
    assert before > times


def test_a_recorder_that_is_killed_loses_one_record_at_most(tmp_path: Path):
    killed(shipped.ship(tmp_path / "b"), tmp_path / "r.musbo", 4)


@pytest.mark.long
def test_a_recorder_that_is_killed_200_times(tmp_path: Path):
    killed(shipped.ship(tmp_path / "b"), tmp_path / "r.musbo", 200)


# Files of older versions


def test_golden_bundle_and_recording(tmp_path: Path):
    said = json.loads((GOLDEN / "recording-v1.json").read_text())
    (tmp_path / "b.zip").write_bytes((GOLDEN / "bundle-v1.zip").read_bytes())
    assert Runtime(tmp_path / "b.zip", fallback=[0, 1, 0]).bundle.id == said["bundle"]
    batch = musbo.read_batch(GOLDEN / "recording-v1.musbo")
    obs = shipped.observations(12, seed=42)
    obs[9] *= 1e6
    rows = [*range(7), 8, 9, 10]
    np.testing.assert_array_equal(batch.obs, obs[rows])
    np.testing.assert_array_equal(batch.next_obs, obs[[i + 1 for i in rows]])
    np.testing.assert_allclose(batch.act, said["acts"], rtol=1e-6)
    assert batch.reward.tolist() == [1, 2, 3, 4, 5, 6, 7, 9, 10, 11] and batch.terminated.tolist()[6]
    table = open_table(GOLDEN / "recording-v1.musbo").read(["source", "reason", "machine", "bundle", "time"])
    assert table.column("source").to_pylist()[8:11] == ["policy", "fallback", "limiter"]
    assert table.column("reason").to_pylist()[9] == "outside the data"
    assert set(table.column("bundle").to_pylist()) == {said["bundle"]}
    assert os.path.getsize(GOLDEN / "bundle-v1.zip") < 60_000


def test_golden_bundle_of_version_2(tmp_path: Path):
    """With a history: what it does depends on what was seen before, as when it was written."""
    said = json.loads((GOLDEN / "bundle-v2.json").read_text())
    (tmp_path / "b.zip").write_bytes((GOLDEN / "bundle-v2.zip").read_bytes())
    with Runtime(tmp_path / "b.zip", fallback=[0, 1, 0], explore=False) as controller:
        acts = [controller.act(row) for row in shipped.observations(6, seed=42)]
    assert controller.bundle.id == said["bundle"] and controller.bundle.manifest["history"] == 3
    np.testing.assert_allclose(
        np.asarray(acts) / shipped.TASK.half_range, said["acts"] / shipped.TASK.half_range, atol=1e-4
    )
    assert os.path.getsize(GOLDEN / "bundle-v2.zip") < 80_000
