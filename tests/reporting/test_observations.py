"""Observations have the names that the task gives, or their places."""

from musbo.reporting.observations import labels, names
from tests.reporting import sample


def test_names_with_units_and_without():
    assert labels(2, ("height", "speed"), ("", "m/s")) == ("height", "speed (m/s)")
    assert labels(2, ("height", "speed"), ()) == ("height", "speed")
    assert labels(2, (), ()) == ("obs_0", "obs_1") == labels(2, ("one",), ())


def test_every_observation_of_a_run_has_a_name_of_its_own():
    found = names(sample.summary())
    assert len(found) == len(set(found)) == 4
