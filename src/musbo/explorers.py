"""Explorers: how data are collected around a policy.

An explorer makes the `Actor` that collects a batch; `Explore` is the protocol for one of your own. `uniform` is the
actor of the first deployment, when nothing has been learned yet.
"""

from musbo.learning.explore import Explore, Plain, Seeking
from musbo.models.actor import Actor, uniform

__all__ = ["Actor", "Explore", "Plain", "Seeking", "uniform"]
