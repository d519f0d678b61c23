"""The forms of a policy agree: JAX, the numpy runtime, ONNX Runtime and compiled C. Damaged bundles are refused."""

import ast
import hashlib
import io
import json
import math
import shutil
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from musbo.core.errors import UserError
from musbo.field import runtime
from musbo.field.bundle import Seen, checksums, contents, npz_bytes, zip_bytes
from musbo.field.runtime import FieldError, Runtime
from musbo.learning.explore import Plain, Seeking
from musbo.models.actor import uniform
from musbo.models.labeler import doubt
from tests.field import shipped
from tests.field.shipped import ACT, NAMES, OBS, TASK

N = 10_000
POLICIES = {
    "relu": lambda: shipped.squashed("relu", (200, 200)),
    "tanh": lambda: shipped.squashed("tanh"),
    "silu": lambda: shipped.squashed("silu"),
    "gaussian": lambda: shipped.gaussian(),
    "support": lambda: shipped.support(),
}
MAIN = """
#include <stdio.h>
#include "policy.h"
int main(void) {
    float observation[MUSBO_OBSERVATIONS], action[MUSBO_ACTIONS];
    while (fread(observation, sizeof(float), MUSBO_OBSERVATIONS, stdin) == MUSBO_OBSERVATIONS) {
        musbo_policy(observation, action);
        fwrite(action, sizeof(float), MUSBO_ACTIONS, stdout);
    }
    return 0;
}
"""


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a share of the half-range."""
    return float(np.max(np.abs(found - wanted) / TASK.half_range))


def in_c(folder: Path, obs: np.ndarray) -> np.ndarray:
    (folder / "main.c").write_text(MAIN)
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1"]
    subprocess.run(["gcc", *strict, "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
    out = subprocess.run([folder / "main"], input=obs.astype("<f4").tobytes(), capture_output=True, check=True)
    return np.frombuffer(out.stdout, "<f4").reshape(-1, ACT)


def in_onnx(data: bytes, obs: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["action"], {"observation": row[None]})[0] for row in obs])  # pyright: ignore


@pytest.mark.parametrize("kind", POLICIES)
def test_all_forms_agree(tmp_path: Path, kind: str):
    """On 10,000 observations, to 1e-5 of the half-range."""
    policy, obs = POLICIES[kind](), shipped.observations(N, seed=1)
    files = shipped.made(policy).files
    shipped.write(tmp_path, files)
    wanted = np.asarray(policy(jnp.asarray(obs)))
    assert np.std(wanted, axis=0).min() > 0.05 * TASK.half_range.min()  # it does something
    bundle = runtime.Bundle(str(tmp_path))
    assert off(runtime.Mind(bundle).policy(obs), wanted) < 1e-5
    if kind == "support":
        assert "policy.onnx" not in files and "policy.h" not in files
        assert b"A SupportPolicy is more than one network" in files["README.md"]
        return
    onnx.checker.check_model(onnx.load_from_string(files["policy.onnx"]), full_check=True)
    assert off(in_onnx(files["policy.onnx"], obs), wanted) < 1e-5
    assert off(in_c(tmp_path, obs), wanted) < 1e-5


def test_the_model_has_only_gemm_and_activations():
    model = onnx.load_from_string(shipped.made(shipped.squashed("relu")).files["policy.onnx"])
    assert [node.op_type for node in model.graph.node] == ["Gemm", "Relu", "Gemm", "Relu", "Gemm", "Tanh", "Gemm"]
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 13)]
    assert "no safety function" in model.doc_string


def test_where_folding_would_cost_digits_the_forms_are_left_out():
    """Observations of 1e6 with a spread of 1 do not survive a sum in float32."""
    policy = shipped.squashed()
    far = policy.normaliser.mean + 1e6
    policy = replace(policy, normaliser=replace(policy.normaliser, mean=far))
    sample = shipped.observations(200) + np.float32(1e6)
    seen = Seen(sample, sample.min(axis=0) - 100, sample.max(axis=0) + 100)
    found = contents(policy, Plain(0.1).actor(policy, None), seen, shipped.ABOUT, {})
    assert "policy.onnx" not in found.files and "large beside their spread" in found.notes[0]


# Exploration


@pytest.mark.parametrize("kind", ["seeking", "raw", "lagged"])
def test_zeta_is_that_of_the_trainer(tmp_path: Path, kind: str):
    policy, actor = shipped.actors()[kind]
    mind = runtime.Mind(runtime.Bundle(str(shipped.ship(tmp_path / "b", kind))))
    obs, next_obs = shipped.observations(300, 5), shipped.observations(300, 6)
    act = np.asarray(policy(jnp.asarray(obs)))
    assert mind.labeler is not None
    np.testing.assert_allclose(
        mind.labeler.doubt(obs, act), doubt(actor.labeler, jnp.asarray(obs), jnp.asarray(act)), rtol=2e-3
    )
    # The actor without eps_const: zeta at the policy's own action.
    quiet = replace(actor, settings=replace(actor.settings, sigma=0.0))
    has = jnp.ones(300, bool)
    _, zeta = quiet.act(jnp.asarray(next_obs), jax.random.key(0), jnp.asarray(obs), jnp.asarray(act), has)
    after = np.asarray(policy(jnp.asarray(next_obs)))
    found = [mind.scale(next_obs[i], after[i], (obs[i], act[i])) for i in range(300)]
    np.testing.assert_allclose(found, zeta, rtol=2e-3)
    assert np.std(np.asarray(zeta)) > 0 or kind == "raw"


@pytest.mark.parametrize("kind", ["plain", "seeking", "sample", "shared", "shared by three", "support"])
def test_noise_has_the_trainers_distribution(tmp_path: Path, kind: str):
    """Mean and deviation of the executed actions in one state, from JAX and from numpy."""
    policy, actor = shipped.actors()[kind]
    mind = runtime.Mind(runtime.Bundle(str(shipped.ship(tmp_path / "b", kind))))
    obs, n = shipped.observations(1, 9)[0], 4000
    tiled = jnp.broadcast_to(jnp.asarray(obs)[None], (n, OBS))
    idle, none = jnp.zeros((n, ACT)), jnp.zeros(n, bool)
    wanted = np.asarray(actor.act(tiled, jax.random.key(0), tiled, idle, none)[0])
    random, mean = np.random.default_rng(0), mind.policy(obs[None])[0]
    drawn = [mean + mind.noise(obs, mean, random, None, i)[0] for i in range(n)]
    found = np.clip(drawn, TASK.low, TASK.high)
    scale = TASK.half_range
    np.testing.assert_allclose(found.mean(axis=0) / scale, wanted.mean(axis=0) / scale, atol=0.03)
    np.testing.assert_allclose(found.std(axis=0) / scale, wanted.std(axis=0) / scale, atol=0.02)


def test_an_explorer_that_needs_a_simulator_is_not_shipped(tmp_path: Path):
    policy = shipped.squashed()
    for settings, why in (
        (Seeking(zeta="oracle"), "a copy of the simulator"),
        (Seeking(pooled=True), "pooled over lanes"),
    ):
        found = shipped.made(policy, settings.actor(policy, shipped.labeler()))
        assert why in found.notes[0]
        shipped.write(tmp_path / why[:6], found.files)
        Runtime(str(tmp_path / why[:6]), fallback=[0, 1, 0])
        with pytest.raises(FieldError, match=f"cannot explore: .*{why}"):
            Runtime(str(tmp_path / why[:6]), fallback=[0, 1, 0], explore=True)
    assert "UniformActor is not known" in shipped.made(policy, uniform(TASK)).notes[0]


def test_what_collects_must_fit_together():
    """A labeler whose scaling is a number acts, by broadcasting, and cannot be shipped: a sentence."""
    policy, actor = shipped.actors()["seeking"]
    broken = eqx.tree_at(lambda one: one.labeler.scaling.obs_mean, actor, jnp.float32(0.0))
    with pytest.raises(UserError, match="do not fit together"):
        shipped.made(policy, broken)


# What is written


def test_a_bundle_is_a_function_of_the_policy():
    one, other = (shipped.made(*shipped.actors()["seeking"]) for _ in range(2))
    assert one.files == other.files and one.id == other.id and zip_bytes(one.files) == zip_bytes(other.files)
    assert shipped.made(*shipped.actors()["plain"]).id != one.id


def test_names_and_units_are_those_of_the_task():
    files = shipped.made(shipped.squashed()).files
    manifest = json.loads(files["manifest.json"])
    assert manifest["observation"] == {"names": list(NAMES.names), "units": list(NAMES.units)}
    assert manifest["action"]["names"] == ["speed", "valve", "lift"] and manifest["action"]["high"] == [1, 4, 300]
    assert b"| lift | mm | -200 to 300 |" in files["README.md"] and b"no safety function" in files["README.md"]


def test_sha256sum_agrees(tmp_path: Path):
    shipped.ship(tmp_path / "b")
    subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=tmp_path / "b", check=True, capture_output=True)


def test_other_policies_are_refused():
    class Odd:
        frame = shipped.frame()

        def __call__(self, obs):
            return obs[:, :ACT]

    with pytest.raises(UserError, match="a policy of the kind Odd cannot be exported"):
        shipped.made(Odd())


def test_limits_that_make_no_sense_are_refused():
    for limits, message in (
        ({"speed": 1}, "there is no limit 'speed'; there are low, high"),
        ({"low": [-2, 0, -200]}, "low and high of action 0 must lie within -1 and 1"),
        ({"low": [0, 0]}, "low must be one number or a list of 3"),
        ({"change": -1}, "change must be at least 0"),
        ({"change": "fast"}, "change must be one number or a list of 3"),
        ({"change": True}, "change must be a finite number"),
        ({"noise": [1, 2, float("nan")]}, "noise must be a finite number"),
        ({"obs_low": 1e9}, "obs_low must lie below obs_high"),
        ({"join": None}, "join cannot be left out"),
        ({"late": 0}, "late must be above 0"),
        ({"fallbacks": 1.5}, "fallbacks is a count"),
        ({"fallback": [5, 1, 1]}, "constant fallback must lie within"),
    ):
        with pytest.raises(UserError, match=message):
            shipped.made(shipped.squashed(), None, limits)


# What runs in the field

ALONE = """
import sys
class Only:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("musbo", "jax", "equinox", "jaxtyping", "pyarrow", "safetensors"):
            raise ImportError(name + " is not here")
sys.meta_path.insert(0, Only())
sys.path.insert(0, sys.argv[1])
from runtime import Runtime
with Runtime(sys.argv[1], fallback=[0, 1, 0], record=sys.argv[2], explore=True, seed=0) as controller:
    for i in range(20):
        controller.act([0.0, 3.0, -40.0, 1.0, 0.5])
print(sorted({name.split(".")[0] for name in sys.modules} & {"musbo", "jax", "numpy"}))
"""


def test_the_runtime_needs_numpy_alone(tmp_path: Path):
    folder = shipped.ship(tmp_path / "b", "seeking")
    words = [sys.executable, "-I", "-c", ALONE, str(folder), str(tmp_path / "r.musbo")]
    out = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "['numpy']"
    assert (tmp_path / "r.musbo").stat().st_size > 20 * (40 + 4 * (OBS + 3 * ACT))


def test_the_runtime_is_python_3_9_and_imports_the_standard_library_and_numpy():
    text = Path(runtime.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
        assert not isinstance(node, ast.Match)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            assert not node.keywords  # strict= is newer
    assert names - set(sys.stdlib_module_names) == {"numpy"}


# Damage


@pytest.fixture(scope="module")
def sound() -> dict[str, bytes]:
    return shipped.made(*shipped.actors()["seeking"]).files


def opened(files: dict[str, bytes], tmp_path: Path, zipped: bool = False) -> Runtime:
    folder = tmp_path / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shipped.write(folder, files)
    place = folder
    if zipped:
        place = tmp_path / "damaged.zip"
        place.write_bytes(zip_bytes(files))
    return Runtime(str(place), fallback=[0, 1, 0])


def resealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """With checksums that are right: what somebody would do who means harm."""
    return {**files, runtime.CHECKSUMS: checksums(files)}


@pytest.mark.parametrize("zipped", [False, True])
def test_a_sound_bundle_opens_from_both(sound: dict[str, bytes], tmp_path: Path, zipped: bool):
    controller = opened(sound, tmp_path, zipped)
    assert controller.bundle.id == hashlib.sha256(sound[runtime.CHECKSUMS]).hexdigest()


def test_missing_files_are_named(sound: dict[str, bytes], tmp_path: Path):
    for name in sound:
        left = {other: data for other, data in sound.items() if other != name}
        if name == runtime.LIMITS:
            opened(left, tmp_path)  # the manifest has them too
            continue
        with pytest.raises(FieldError, match=f"lacks {name}"):
            opened(left, tmp_path)


COVERED = sorted((*runtime.NEEDED, *runtime.OPTIONAL, runtime.CHECKSUMS))
SHARES = st.floats(0, 1, exclude_max=True)
"""Where in a file."""


def test_checksums_without_their_last_byte_are_refused(sound: dict[str, bytes], tmp_path: Path):
    with pytest.raises(FieldError, match="cut off"):
        opened({**sound, runtime.CHECKSUMS: sound[runtime.CHECKSUMS][:-1]}, tmp_path)


@given(st.sampled_from(COVERED), SHARES, st.integers(0, 7), st.booleans())
@example(runtime.CHECKSUMS, 0.99999, 0, True)
def test_every_flipped_bit_and_cut_is_refused(
    sound: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, name: str, share: float, bit: int, cut: bool
):
    old = sound[name]
    at = int(share * len(old))
    new = old[:at] if cut else old[:at] + bytes([old[at] ^ 1 << bit]) + old[at + 1 :]
    with pytest.raises(FieldError):
        opened({**sound, name: new}, tmp_path_factory.getbasetemp())


PARSED = ("manifest.json", "weights.npz", "golden.npz", runtime.LIMITS)


@given(st.sampled_from(PARSED), SHARES, st.binary(max_size=4), st.integers(0, 4))
def test_weights_and_manifests_that_were_changed_on_purpose(
    sound: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, name: str, share: float, new: bytes, gone: int
):
    """With right checksums, a change is refused with a sentence or does no harm; nothing else is raised."""
    old = sound[name]
    at = int(share * len(old))
    try:
        opened(resealed({**sound, name: old[:at] + new + old[at + gone :]}), tmp_path_factory.getbasetemp())
    except FieldError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sigma", "x"), ("sigma", None), ("sigma", math.nan), ("sigma", 1e300), ("sigma", "0.5"), ("largest", [1]),
        ("largest", None), ("ordinary", {}),
    ],
)  # fmt: skip
def test_exploration_that_does_not_work_is_found_before_the_first_step(
    sound: dict[str, bytes], tmp_path: Path, key: str, value: object
):
    manifest = json.loads(sound["manifest.json"])
    manifest["explore"][key] = value
    with pytest.raises(FieldError):
        opened(resealed({**sound, "manifest.json": json.dumps(manifest).encode()}), tmp_path)


def test_arrays_of_objects_bombs_and_strange_headers_are_refused(sound: dict[str, bytes], tmp_path: Path):
    objects = io.BytesIO()
    np.savez(objects, **{"frame.mean": np.array([{}], object)}, allow_pickle=True)
    compressed = io.BytesIO()
    np.savez_compressed(compressed, mean=np.zeros(10_000_000, np.float32))
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w") as archive:
        head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
        head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
        archive.writestr("frame.mean.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + b"1234")
    nan = npz_bytes({"frame.mean": np.full(OBS, np.nan)})
    for data in (objects.getvalue(), compressed.getvalue(), huge.getvalue(), nan, b"", b"PK"):
        with pytest.raises(FieldError, match="weights.npz is damaged"):
            opened(resealed({**sound, "weights.npz": data}), tmp_path)


def test_archives_of_other_things_are_refused(sound: dict[str, bytes], tmp_path: Path):
    bad = tmp_path / "bad.zip"
    for name in ("../../evil.py", "/etc/passwd", "more.txt", "a/manifest.json"):
        bad.write_bytes(zip_bytes({**sound, name: b"x"}))
        with pytest.raises(FieldError, match="holds files that no bundle has"):
            Runtime(str(bad), fallback=[0, 1, 0])
    bad.write_bytes(zip_bytes({**sound, "README.md": bytes(runtime.LARGEST)}))
    assert bad.stat().st_size < 1_000_000
    with pytest.raises(FieldError, match="packed in a way that no bundle is"):
        Runtime(str(bad), fallback=[0, 1, 0])
    data = bytearray(zip_bytes(sound))
    at = data.index(b"PK\x01\x02") + 24  # the size of the first member, as the directory says it
    data[at : at + 4] = struct.pack("<I", 4_000_000_000)
    bad.write_bytes(bytes(data))
    with pytest.raises(FieldError):
        Runtime(str(bad), fallback=[0, 1, 0])
    for junk in (b"", b"PK\x03\x04", bytes(data[: len(data) // 2])):
        bad.write_bytes(junk)
        with pytest.raises(FieldError, match="cannot be read as a bundle"):
            Runtime(str(bad), fallback=[0, 1, 0])
    with pytest.raises(FieldError, match="cannot be read as a bundle"):
        Runtime(str(tmp_path / "absent"), fallback=[0, 1, 0])


def test_a_link_in_a_bundle_is_not_followed(sound: dict[str, bytes], tmp_path: Path):
    shipped.write(tmp_path / "b", sound)
    (tmp_path / "elsewhere").write_bytes(sound["weights.npz"])
    (tmp_path / "b" / "weights.npz").unlink()
    (tmp_path / "b" / "weights.npz").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FieldError, match="is a link"):
        Runtime(str(tmp_path / "b"), fallback=[0, 1, 0])


def test_weights_that_are_not_the_golden_ones_are_refused(sound: dict[str, bytes], tmp_path: Path):
    arrays = dict(runtime.read_arrays(sound["weights.npz"], "w"))
    for name, message in (("policy.b0", "golden actions"), ("labeler.b0", "golden values")):
        changed = npz_bytes({**arrays, name: arrays[name] + 0.3})
        with pytest.raises(FieldError, match=message):
            opened(resealed({**sound, "weights.npz": changed}), tmp_path)
    with pytest.raises(FieldError, match="do not fit together"):
        opened(resealed({**sound, "weights.npz": npz_bytes({**arrays, "policy.w1": np.ones((3, 3))})}), tmp_path)


def test_a_newer_bundle_says_so(sound: dict[str, bytes], tmp_path: Path):
    newer = sound["manifest.json"].replace(b'"version": 2', b'"version": 3')
    with pytest.raises(FieldError, match="reads bundles up to version 2"):
        opened(resealed({**sound, "manifest.json": newer}), tmp_path)


def test_the_id_is_the_hash_of_the_checksums(sound: dict[str, bytes], tmp_path: Path):
    shipped.write(tmp_path / "b", sound)
    wanted = hashlib.sha256(sound[runtime.CHECKSUMS]).hexdigest()
    assert runtime.Bundle(str(tmp_path / "b")).id == wanted
