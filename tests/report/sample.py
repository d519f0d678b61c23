"""A made-up run of three deployments: its summary and its news, with numbers that are easy to recognise."""

from typing import Any

from musbo.campaign.loop import News
from musbo.campaign.settings import Campaign
from tests.stories import tiny


def settings() -> Campaign:
    return tiny.settings()


def batch(d: int) -> dict[str, Any]:
    numbers = {"size": 1000, "n_episodes": 20, "batch_return": -100.0 + d, "seconds": 1.0, "extra_steps": 0}
    return numbers | ({"zeta": [0.1, 0.2, 0.3], "zeta_at_cap": 0.25} if d > 1 else {})


def trained(d: int) -> dict[str, Any]:
    return {
        "chosen": 4,
        "alpha": 0.028,
        "U": [0.5, 0.7, 0.9],
        "dynamics_error": 0.0125,
        "imagined_return": -20.0,
        "imagined_length": 10.0,
        "imagined_horizon": 10,
        "policy_sha256": "0" * 64,
        "seconds": 10.0,
    }


def evaluated(d: int) -> dict[str, Any]:
    returns = [-60.0 + 10 * d, -40.0 + 10 * d]
    mean = -50.0 + 10 * d
    numbers = {"return": mean, "spread": 14.1, "returns": returns, "model_return": mean, "length": 50.0}
    numbers |= {"early_return": mean, "early_length": 50.0}
    return numbers | {"speed": None, "steps": 100, "seconds": 0.5}


def summary(deployments: int = 3) -> dict[str, Any]:
    days = range(1, deployments + 1)
    return {
        "task": "pointmass",
        "algorithm": "musbo",
        "preset": "quick",
        "seed": 0,
        "returns": [evaluated(d)["return"] for d in days],
        "finished": True,
        "per_deployment": [
            {"deployment": d, "batch": batch(d), "trained": trained(d), "evaluated": evaluated(d)} for d in days
        ],
    }


def fit(stage: str, epoch: int, epochs: int, active: int = 2) -> dict[str, Any]:
    return {"stage": stage, "index": epoch, "epoch": epoch, "epochs": epochs, "active": active, "error": 0.5 / epoch}


def improve(update: int, updates: int) -> dict[str, Any]:
    return {"stage": "improve", "index": update, "updates": updates, "U": [0.5, 0.7, 0.9]}


def check(update: int) -> dict[str, Any]:
    return {"stage": "check", "index": update, "imagined_return": -30.0, "imagined_length": 10.0}


def news(d: int) -> list[News]:
    """One deployment."""
    training = [fit("dynamics", 1, 2), fit("dynamics", 2, 2), fit("labeler", 1, 9), fit("labeler", 2, 9, active=0)]
    training += [fit("start", 1, 2), fit("start", 2, 2), check(0), improve(1, 4), improve(2, 4), check(2)]
    training += [improve(3, 4), improve(4, 4), check(4), {"stage": "done", "index": 0}]
    return [
        News("collecting", d, {"done": 0, "size": 1000}),
        News("collecting", d, {"done": 1000, "size": 1000}),
        News("collected", d, batch(d)),
        *[News("training", d, numbers) for numbers in training],
        News("trained", d, trained(d)),
        News("evaluated", d, evaluated(d)),
    ]


def beginning(deployment: int = 1, resumed: bool = False, finished: bool = False) -> News:
    return News(
        "begin",
        deployment,
        {"settings": settings(), "resumed": resumed, "brought": 0} | summary(deployment - 1) | {"finished": finished},
    )
