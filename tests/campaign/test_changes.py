"""Settings from Python are those of the command line: the same method, or a sentence with the nearest name."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.recipes import ALGORITHMS, recipe
from musbo.campaign import command, flags
from musbo.campaign.changes import changed, words
from musbo.core.errors import UserError
from musbo.explorers import Plain, Seeking
from musbo.labels import Disagreement, Trust

MUSBO = recipe("musbo", "quick", "pointmass")


def asked(settings: dict[str, Any], algo: str = "musbo") -> Any:
    """The method that the same settings make on the command line."""
    return command.read(["pointmass", "--algo", algo, "--preset", "quick", *words(settings)])[0].method


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_setting_of_every_method_can_be_said(algo):
    """With the values of another preset: what comes out is that preset's method, by either way."""
    other = recipe(algo, "paper", "pointmass")
    settings = dict(flags.flat(other))
    assert changed(recipe(algo, "quick", "pointmass"), settings) == other
    assert asked(settings, algo) == other


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "updates": st.integers(1, 500),
            "label.alpha": st.just("auto") | st.floats(0, 10),
            "policy.hidden": st.lists(st.integers(1, 99), min_size=1, max_size=3),
            "trpo.fisher-stride": st.integers(1, 9),
            "explore.sigma": st.integers(0, 3),
            "policy.learned_sigma": st.booleans(),
        },
    )
)
def test_the_command_line_says_the_same(settings: dict[str, Any]):
    assert changed(MUSBO, settings) == asked(settings)


def test_parts_by_name_and_as_values():
    assert changed(MUSBO, {"label": "trust"}).label == Trust()
    assert changed(MUSBO, {"label": Disagreement(0.5)}).label == Disagreement(0.5)
    assert changed(MUSBO, {"explore.sigma": 0.25, "explore": "plain"}).explore == Plain(0.25)
    assert asked({"explore": Plain(0.25)}).explore == Plain(0.25)


def test_settings_that_are_sound_together_only():
    together = changed(MUSBO, {"explore.zeta_max": None, "explore.zeta_scale": "raw"})
    assert together.explore == Seeking(zeta_max=None, zeta_scale="raw")
    with pytest.raises(UserError, match="zeta_scale relative needs a zeta_max"):
        changed(MUSBO, {"explore.zeta_max": None})


def test_numbers_of_numpy_are_plain_ones():
    found: ImaginedTRPO = changed(MUSBO, {"label.alpha": np.float32(0.5), "updates": np.int64(3)})
    assert isinstance(found.label, Disagreement)
    assert type(found.label.alpha) is float and type(found.updates) is int


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"alpha": 1.0}, "has no setting 'alpha': did you mean label.alpha?"),
        ({"update": 3}, "has no setting 'update': did you mean updates?"),
        ({"trpo.delt": 3.0}, "did you mean trpo.delta"),
        ({"label.sigma_max": 3.0}, "has no setting 'label.sigma_max'"),
        ({"updates.more": 3}, "has no setting 'updates.more'"),
        ({"trpo": 3}, "has no setting 'trpo'"),
        ({"nonsense": 3}, "`musbo run --algo NAME --help-all` lists what it has"),
        ({"budget": 3}, r"budget is no setting of the method but an argument of its own: musbo.run\(..., budget="),
        ({"updates": "50"}, "updates takes int, not '50'"),
        ({"updates": 5.5}, "updates takes int, not 5.5"),
        ({"policy.hidden": 64}, "policy.hidden takes a tuple of int, not 64"),
        ({"updates": True}, "updates takes int, not True"),
        ({"label.alpha": "much"}, "label.alpha takes float or 'auto', not 'much'"),
        ({"label.alpha": -1.0}, "alpha must be at least 0 or auto, not -1.0"),
        ({"label": "doubt"}, "there is no label 'doubt': choose one of .*disagreement"),
        ({"label": Plain()}, "label takes one of .*disagreement.* by its name or as a value, not Plain"),
        ({"label": "trust", "label.alpha": 1.0}, "label.alpha is a setting of label disagreement.*, but here label is"),
    ],
)
def test_what_does_not_exist_is_a_sentence(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        changed(MUSBO, settings)
