"""The public names, in full: taking one away, or adding one, changes this list."""

import importlib
import inspect

import pytest

import musbo

NAMES = {
    "musbo": """
        Batch BuiltIn Bundle Campaign Caution Diagnostic Findings Gated Measurement NumpyPolicy Result Summary Task
        UserError Verified __version__ evaluate export find_task gym_task load_policy make_batch read_batch recipe
        report resume run stored study task_from verify write_batch
    """,
    "musbo.methods": """
        Chance Forecast Foresight ImaginedTRPO Imitation MOPO Method Metrics ModelFree Stage add_method recipe
    """,
    "musbo.labels": "Continuation Disagreement Label Labeler Penalty Rollout Seen Signals Trust clock disagreement "
    "trajectory_count",
    "musbo.explorers": "Actor Explore Plain Seeking uniform",
    "musbo.starts": "Clone Continue Start",
    "musbo.data": (
        "Column Expected Finding Logs Mapping examine from_dataframe from_minari read_logs read_mapping to_minari"
    ),
    "musbo.handovers": "BestImagined Choice Guarded Handover Last Rating",
}
PLAIN = {"__version__", "Seen", "Signals"}  # a string and names of types: they cannot have a docstring of their own
EVERY = [(module, name) for module, names in NAMES.items() for name in names.split()]


def test_the_list_is_complete():
    """`dir(musbo)`, and `__all__` of every shelf; their docstring in `musbo` names all of them."""
    assert sorted(dir(musbo)) == NAMES["musbo"].split()
    for module, names in NAMES.items():
        shelf = importlib.import_module(module)
        assert shelf.__doc__ and module in (musbo.__doc__ or "")
        if module != "musbo":
            assert sorted(shelf.__all__) == names.split()


@pytest.mark.parametrize(("module", "name"), EVERY)
def test_a_public_name_resolves_and_is_described(module: str, name: str):
    found = getattr(importlib.import_module(module), name)
    # A dataclass without a docstring of its own gets its signature for one, a Module that of its base.
    own = vars(found).get("__doc__") if inspect.isclass(found) else getattr(found, "__doc__", None)
    assert name in PLAIN or (own and not own.startswith(f"{name}("))


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="module 'musbo' has no attribute 'trpo'"):
        musbo.trpo  # noqa: B018


@pytest.mark.parametrize("name", musbo._PLACES)
def test_no_package_hides_a_name(name: str):
    """A subpackage of the same name becomes an attribute of musbo when it is imported, and is found first."""
    wanted = getattr(importlib.import_module(musbo._PLACES[name]), name)
    assert getattr(musbo, name) is wanted
