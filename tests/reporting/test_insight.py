import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from musbo.campaign import api
from musbo.campaign.places import STORE
from musbo.campaign.settings import campaign
from musbo.campaign.store import Store
from musbo.campaign.summary import read_status
from musbo.core import serial
from musbo.data.files import batch_from_bytes
from musbo.models import labeler
from musbo.models.mlp import member
from musbo.reporting import run_figures
from musbo.reporting.canvas import COLOURS
from musbo.reporting.insight import Doubts, doubts
from musbo.reporting.page_run import flat_doubt
from tests.stories import tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    folder = api.start(tiny.settings(), (), tmp_path_factory.mktemp("insight") / "run")
    assert doubts(folder) is None  # nothing is trained
    api.resume(folder)
    return folder


def test_doubt_is_the_largest_distance_between_two_members(run):
    status, store = read_status(run), Store(run / STORE)
    state = serial.decode(store.get(status.trained[2].state))
    batch = batch_from_bytes(store.get(status.collected[2].artefact))
    found = doubts(run)
    assert found is not None and found.deployment == 2 and len(found.doubt) == len(batch) == 100
    for row in (0, 37, 99):
        s, a = jnp.asarray(batch.obs[row]), jnp.asarray(batch.act[row])
        P = state.labeler
        one, two = (labeler.predict(member(P.members, jnp.asarray(k)), P.scaling, s, a)[0] for k in (0, 1))
        assert found.doubt[row] == pytest.approx(float(jnp.sum(jnp.abs(one - two))), rel=1e-4)


def test_when_and_where(run):
    """Two episodes of 50 steps: twenty groups of five rows in the order of their step."""
    status, store = read_status(run), Store(run / STORE)
    batch = batch_from_bytes(store.get(status.collected[2].artefact))
    found = doubts(run)
    assert found is not None and batch.lengths().tolist() == [50, 50]
    step = np.concatenate([np.arange(1, 51), np.arange(1, 51)])
    first = found.doubt[np.argsort(step, kind="stable")[:5]]
    assert found.by_step[0, 0] == pytest.approx(np.median(first)) and found.steps[0] == 2
    z = (batch.obs - batch.obs.mean(0)) / batch.obs.std(0)
    worst = np.argsort(-found.doubt)[:10]
    np.testing.assert_allclose(found.typical, z[worst].mean(0), atol=1e-5)
    # Main directions: the plane holds as much variance as the two largest eigenvalues of the correlations.
    values = np.linalg.eigvalsh(np.cov(z.T, bias=True))
    np.testing.assert_allclose(found.plane.var(0), values[::-1][:2], rtol=1e-5)


def test_doubt_that_is_nearly_the_same_everywhere_is_called_so():
    doubt = np.linspace(2.302, 2.306, 41)
    found = Doubts(1, doubt, np.random.default_rng(0).normal(size=(41, 2)), np.array([1, 2]),
                   np.array([[2.304] * 2, [2.303] * 2, [2.305] * 2]), np.zeros(2))  # fmt: skip
    assert flat_doubt(found).endswith("nearly as much everywhere: 80 % of the steps lie between 2.302 and 2.306.")
    assert flat_doubt(replace(found, doubt=np.linspace(1.0, 1.1, 41))) == ""
    drawn = run_figures.uncertain_places(found, "here").svg.decode()
    assert [f">{value}<" in drawn for value in ("2.302", "2.304", "2.306")] == [True] * 3 and "most" not in drawn
    drawn = run_figures.uncertain_times(found, "here").svg.decode()
    (top,) = re.findall(rf'<path d="M [\d.]+ ([\d.]+)[^<]+clip-path[^<]+stroke: {COLOURS[1]}', drawn)
    assert float(top) > 15  # points below the edge of the picture: the curve does not lie on the frame


def test_a_method_without_a_model_has_no_doubts(tmp_path):
    folder = api.start(campaign("pointmass", "bc", budget=1, batch_size=100, episodes=1), (), tmp_path / "run")
    api.resume(folder)
    assert doubts(folder) is None
