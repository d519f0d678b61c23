"""The units of observations do not matter: what is trained on data in other units is the same policy.

A power of two changes no digit of a floating-point number, so the same means the same bits.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from musbo.algorithms.floors import Chance
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.mopo import MOPO
from musbo.algorithms.recipes import ALGORITHMS
from musbo.algorithms.together import Together
from musbo.data.dataset import assemble
from musbo.learning.explore import Plain
from musbo.learning.label import Penalty, Trust
from musbo.tasks.builtin import pointmass
from tests.contract.test_recipes import EPISODES, brief, method, random_batch

LEARNED = replace(pointmass, name="pointmass in any units", reward="learned", initial=None, simulator=None)


def without_units(chosen: Any) -> Any:
    """U and the penalty of MOPO are measured in units of observations, by definition; nothing is collected here."""
    match chosen:
        case ImaginedTRPO():
            plain = {"label": Trust(), "explore": Plain(0.1)}
            return replace(chosen, **plain, imagine=replace(chosen.imagine, starts="initial"))
        case MOPO():
            return replace(chosen, penalty=Penalty(0.0))
        case Together():
            return replace(chosen, first=without_units(chosen.first))
    return chosen


def policy(chosen: Any, unit: float) -> Any:
    there, key = random_batch(), jax.random.PRNGKey(0)
    seen = replace(there, obs=there.obs * np.float32(unit), next_obs=there.next_obs * np.float32(unit))
    data = assemble([seen], EPISODES * pointmass.episode_steps, 0)
    return list(chosen.train(LEARNED, data, chosen.begin(LEARNED, key), key))[-1][0].policy


DIFFERENT = {without_units(brief(method(name))): name for name in ALGORITHMS}


@pytest.mark.parametrize("chosen", [m for m in DIFFERENT if not isinstance(m, Chance)], ids=lambda m: DIFFERENT[m])
def test_units(chosen: Any):
    obs = jnp.asarray(random_batch().obs[:20])
    np.testing.assert_array_equal(policy(chosen, 1.0)(obs), policy(chosen, 1024.0)(1024 * obs))
