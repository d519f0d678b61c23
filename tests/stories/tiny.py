"""The smallest campaign that goes through everything: two deployments of two episodes each on the point mass."""

import shlex

from musbo.algorithms import recipes
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.campaign import flags
from musbo.campaign.settings import Campaign, campaign

METHOD = shlex.split("""
    --updates 4 --dynamics.epochs 3 --labeler.epochs 3 --start.epochs 3 --dynamics.members 2 --labeler.members 2
    --dynamics.hidden 16 --labeler.hidden 16 --policy.hidden 16 --imagine.rollouts 5 --imagine.horizon 10
    --check.every 2 --check.rollouts 3 --check.steps 10 --label.alpha 0.001 --imagine.starts mixed
""")
BUDGET = shlex.split("--budget 2 --batch-size 100 --episodes 2")
FLAGS = [*BUDGET, *METHOD]


def method() -> ImaginedTRPO:
    return flags.parse(recipes.recipe("musbo", "quick", "pointmass"), METHOD)


def settings(seed: int = 0) -> Campaign:
    return campaign("pointmass", "musbo", "quick", seed, budget=2, batch_size=100, episodes=2, method=method())
