"""Values survive the way to bytes and back, and what is not ours is refused with a sentence."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import hypothesis.extra.numpy as npst
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from musbo.campaign.status import Collect
from musbo.core import durable, registry, serial
from musbo.core.errors import UserError
from musbo.core.former_names import FORMER_NAMES
from musbo.core.registry import stored

GOLDEN = Path(__file__).parents[1] / "golden"


@stored("zoo/inner")
@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float
    sizes: tuple[int, ...] = (200, 200)


@stored("zoo/outer")
@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    name: str = "outer"
    note: Any = None
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(self.inner.sizes))


@stored("zoo/layer")
class Layer(eqx.Module):
    weight: jax.Array
    bias: jax.Array


@stored("zoo/net")
class Net(eqx.Module):
    layers: tuple[Layer, ...]
    depth: int = eqx.field(static=True)


@stored("zoo/pair")
class Pair(NamedTuple):
    left: Any
    right: Any = 0


class Plain:
    pass


def assert_same(a: Any, b: Any) -> None:
    """Equal in value, type and bits; a JAX and a NumPy array may stand for each other."""
    if isinstance(a, np.ndarray | jax.Array):
        assert isinstance(b, np.ndarray | jax.Array)
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        return
    assert type(a) is type(b)
    if isinstance(a, float):
        assert (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert_same(left, right)
    elif isinstance(a, dict):
        assert sorted(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name))
    else:
        assert a == b


odd_keys = ["array", "dict", "float", "key", "tuple", "type", "fields", "a.b", "__metadata__"]
keys = st.one_of(st.text(max_size=8), st.sampled_from(odd_keys))
dtypes = st.sampled_from(sorted(serial._DTYPES)).map(np.dtype)
arrays = npst.arrays(dtypes, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf,
        lambda child: st.one_of(
            st.lists(child, max_size=3),
            st.lists(child, max_size=3).map(tuple),
            st.dictionaries(keys, child, max_size=3),
            st.builds(Pair, child, child),
            st.builds(lambda note, rate: Outer(Inner(rate), note=note), child, st.floats()),
        ),
        max_leaves=12,
    )


@given(trees(leaves))
def test_any_settings_round_trip_through_json_text(value: Any) -> None:
    text = json.dumps(serial.to_json(value), allow_nan=False)
    assert_same(value, serial.from_json(json.loads(text)))


@given(trees(st.one_of(leaves, arrays)))
def test_any_tree_round_trips_through_bytes(value: Any) -> None:
    assert_same(value, serial.decode(serial.encode(value)))


@given(st.dictionaries(keys, st.one_of(arrays, st.dictionaries(keys, arrays, max_size=3)), max_size=4))
def test_equal_values_give_equal_bytes(value: dict[str, Any]) -> None:
    def turned(tree: Any) -> Any:
        return {key: turned(tree[key]) for key in reversed(tree)} if isinstance(tree, dict) else tree

    assert serial.encode(value) == serial.encode(turned(value)) == serial.encode(serial.decode(serial.encode(value)))


def test_the_json_is_readable() -> None:
    arrays: dict[str, np.ndarray] = {}
    net = Net((Layer(jnp.ones((2, 3)), jnp.zeros(2)),), 1)
    tree = serial.to_json({"net": net, "rate": math.inf, "n": np.float32(0.5)}, arrays)
    layer = {"weight": {"array": "net.layers.0.weight"}, "bias": {"array": "net.layers.0.bias"}}
    assert tree == {
        "n": 0.5,
        "net": {
            "type": "zoo/net",
            "version": 1,
            "fields": {"layers": {"tuple": [{"type": "zoo/layer", "version": 1, "fields": layer}]}, "depth": 1},
        },
        "rate": {"float": "inf"},
    }
    assert set(arrays) == {"net.layers.0.weight", "net.layers.0.bias"}


def test_the_blob_is_plain_safetensors() -> None:
    found = safetensors.numpy.load(serial.encode([np.arange(3, dtype=np.int32)]))
    assert {name: array.tolist() for name, array in found.items()} == {"0": [0, 1, 2]}


def test_arrays_come_back_as_jax_arrays_of_the_same_dtype() -> None:
    net = Net((Layer(jnp.arange(6.0).reshape(2, 3), jnp.zeros(2, jnp.int32)),), 1)
    back = serial.decode(serial.encode(net))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(back))
    assert eqx.tree_equal(net, back)
    # 64 bits are not narrowed in silence.
    assert serial.decode(serial.encode(np.array([1 / 3]))).dtype == np.float64


def test_arrays_that_do_not_lie_in_order_are_written_right() -> None:
    square = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    for view in (square.T, square[:, ::2], square[::-1], square.astype(">f4"), np.asfortranarray(square)):
        np.testing.assert_array_equal(serial.decode(serial.encode(view)), view)


def test_typed_keys_draw_the_same_numbers_afterwards() -> None:
    keys = jax.random.split(jax.random.key(7), 3)
    back = serial.decode(serial.encode({"keys": keys}))["keys"]
    assert back.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.normal(back[2], (4,)), jax.random.normal(keys[2], (4,)))


def test_an_optimiser_goes_on_from_its_state_to_the_same_bits() -> None:
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    params = {"w": jnp.arange(4.0), "b": jnp.ones(2)}

    def step(params: Any, state: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to an integer power
            updates, state = optimiser.update(jax.tree.map(jnp.sin, params), state, params)
        return optax.apply_updates(params, updates), state

    once = step(params, optimiser.init(params))
    back = serial.decode(serial.encode(once))
    assert jax.tree.structure(back) == jax.tree.structure(once)
    for a, b in zip(jax.tree.leaves(step(*once)), jax.tree.leaves(step(*back)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_missing_fields_take_their_defaults() -> None:
    assert serial.from_json({"type": "zoo/inner", "version": 1, "fields": {"rate": 0.5}}) == Inner(0.5, (200, 200))
    assert serial.from_json({"type": "zoo/pair", "fields": {"left": 1}}) == Pair(1, 0)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"type": "zoo/inner", "version": 1, "fields": {"rate": 1, "speed": 2, "age": 3}}, "no field age, speed"),
        ({"type": "zoo/inner", "version": 1, "fields": {}}, "needs the field rate"),
        ({"type": "zoo/outer", "version": 1, "fields": {"inner": 1, "total": 3}}, "no field total"),
        ({"type": "zoo/gone", "version": 1, "fields": {}}, "no 'zoo/gone' in musbo .* --import"),
        ({"type": "zoo/inner", "version": 2, "fields": {}}, "zoo/inner version 2 is not known .* up to version 1"),
        ({"type": "zoo/inner", "version": 0, "fields": {}}, "version 0 is not known"),
        # Only a name of the registry is built, whatever else could be imported by the words of a file.
        ({"type": "musbo.core.registry:Entry", "fields": {}}, "no 'musbo.core.registry:Entry'"),
        ({"type": "os:system", "fields": {"command": "false"}}, "no 'os:system'"),
        ({"type": "optax:adam", "fields": {}}, "no 'optax:adam'"),
        ({"type": "musbo.__main__:X", "fields": {}}, "no 'musbo.__main__:X'"),  # and it does not run the command line
        ({"array": "lost"}, "'lost' is missing"),
        ({"float": "1.5"}, "tagged 'float'"),
        ({"tuple": 3}, "tagged 'tuple'"),
        ({"array": "a", "more": 1}, "tagged 'array'"),
    ],
)
def test_what_cannot_be_read_is_refused(tree: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        serial.from_json(tree)


@pytest.mark.parametrize(
    "value", [{1: 2}, {3, 4}, b"bytes", len, object(), Plain(), np.array(["text"]), jnp.ones(2, "bfloat16")]
)
def test_what_cannot_be_written_is_an_error_that_says_where(value: Any) -> None:
    with pytest.raises(TypeError, match="here.0"):
        serial.to_json({"here": [value]}, {})


def test_settings_hold_no_arrays() -> None:
    with pytest.raises(TypeError, match="array .at scale. as JSON alone"):
        serial.to_json({"scale": jnp.ones(2)})


def test_a_class_without_a_name_is_not_written() -> None:
    @dataclasses.dataclass(frozen=True)
    class Nameless:
        pass

    with pytest.raises(UserError, match=r"Nameless \(at note\).* no name .*@musbo.stored"):
        serial.to_json(Outer(Inner(0.1), note=Nameless()))


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    serial.save(path, {"a": np.arange(4, dtype=np.int32)})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="state is cut short, damaged or not a file of musbo"):
            serial.load(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PAR1 something else", "not a file of musbo"),
        (safetensors.numpy.save({"a": np.ones(2)}), "not a file of musbo"),
        (safetensors.numpy.save({}, {"musbo": "{"}), "not a file of musbo"),
        (safetensors.numpy.save({}, {"musbo": "[]"}), "damaged format header"),
        (safetensors.numpy.save({}, {"musbo": '{"format": "musbo-bundle", "version": 1}'}), "is a 'musbo-bundle' file"),
        (
            safetensors.numpy.save({}, {"musbo": '{"format": "musbo-tree", "version": 4}'}),
            "newer musbo: .* Upgrade musbo",
        ),
        (
            safetensors.numpy.save({}, {"musbo": '{"format": "musbo-tree", "version": 4, "writer": "musbo 9.9"}'}),
            r"newer musbo \(musbo 9.9\)",
        ),
        (
            safetensors.numpy.save({}, {"musbo": '{"format": "musbo-tree", "version": 1, "tree": {"array": "x"}}'}),
            r"x.tree \(written by musbo 0.1\): the array 'x' is missing",
        ),
    ],
)
def test_foreign_and_newer_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "x.tree"
    path.write_bytes(data)
    with pytest.raises(UserError, match=words):
        serial.load(path)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read .*none: No such file"):
        serial.load(tmp_path / "none")
    with pytest.raises(UserError, match="cannot write .*file: No such file"):
        serial.save(tmp_path / "no" / "file", 1)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    serial.save(path, "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(UserError, match="No space left on device"):
        patched.setattr(durable.os, "fsync", full)
        serial.save(path, "new")
    assert serial.load(path) == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_of_format_1_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes are named by where they lived when it was written."""
    monkeypatch.setitem(FORMER_NAMES, "musbo.campaign.steps:Collect", "step/collect")
    registry.register(Collect, "step/collect")
    value = serial.load(GOLDEN / "tree-v1.safetensors")
    adam = optax.ScaleByAdamState(
        count=jnp.array(3, jnp.int32), mu={"w": jnp.array([0.5, -1.0])}, nu={"w": jnp.array([0.25, 1.0])}
    )
    expected = {
        "settings": Collect(deployment=2),
        "optimiser": (adam, optax.EmptyState()),
        "key": np.array([0, 7], np.uint32),
        "mask": np.array([[True], [False]]),
        "numbers": [1, -0.0, 1e300, math.nan, -math.inf, None, True, "é"],
        "type": {"tuple": ()},
    }
    assert_same(expected, value)


def test_sha256() -> None:
    # The example of FIPS 180-2, appendix B.1.
    assert serial.sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
