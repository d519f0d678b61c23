"""Explorers: how data are collected around a policy.

An explorer makes the `Actor` that goes into the field; `Explore` says what one of your own needs. `uniform` is the
actor of the first deployment, when nothing has been learned yet.
"""

from musbo.learning.explore import Explore, Plain, Seeking
from musbo.models.actor import Actor, uniform

__all__ = ["Actor", "Explore", "Plain", "Seeking", "uniform"]
