# pyright: reportMissingImports=false
"""The peers' side of the comparison; `run.py` starts it with the Python of the peers' own environment.

One question per line of standard input, one answer per line of standard output, both JSON:

    {"ask": "about"}                        -> versions and threads
    {"ask": "rate", "shape": [m, k, n]}     -> operations per second of PyTorch's matrix product
    {"ask": "prepare", "case": {...}}       -> builds a case and runs it once to warm up
    {"ask": "run"}                          -> runs it once: seconds, and what it counted on the way

What is outside the measured call (putting back the weights, say) is not timed.
"""

import copy
import json
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from limit import Shape, torch_rate
from samples import draw
from torch import nn


class Case(NamedTuple):
    """`work` is timed; `before` and `after` are not, and `after` says what was counted."""

    work: Callable[[], object]
    before: Callable[[], object] = lambda: None
    after: Callable[[], dict[str, Any]] = dict


class Spaces(gymnasium.Env):
    """No environment: the two spaces that the libraries ask one for."""

    def __init__(self, obs: int, act: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (act,), np.float32)


# mbrl-lib


def transitions(rows: int, obs: int, act: int) -> Any:
    from mbrl.types import TransitionBatch

    random = np.random.default_rng(0)
    draw = (random.standard_normal((rows, width), np.float32) for width in (obs, act, obs))
    none = np.zeros(rows, bool)
    return TransitionBatch(*draw, np.zeros(rows, np.float32), none, none.copy())


def ensemble(obs: int, act: int, members: int, hidden: int, data: Any) -> Any:
    """Two hidden layers, squared error, the change of the state as target, inputs standardised by its own wrapper."""
    from mbrl.models import GaussianMLP, OneDTransitionRewardModel

    networks = GaussianMLP(
        obs + act, obs, "cpu", num_layers=2, ensemble_size=members, hid_size=hidden, deterministic=True
    )
    model = OneDTransitionRewardModel(networks, target_is_delta=True, normalize=True, learned_rewards=False)
    model.update_normalizer(data)
    return model


def fit(rows: int, batch: int, obs: int, act: int, members: int, hidden: int) -> Case:
    """One epoch of its trainer with its own iterator: every member its own permutation of all rows."""
    from mbrl.models import ModelTrainer
    from mbrl.util.replay_buffer import BootstrapIterator

    data = transitions(rows, obs, act)
    model = ensemble(obs, act, members, hidden, data)
    batches = BootstrapIterator(data, batch, members, shuffle_each_epoch=True, rng=np.random.default_rng(0))
    trainer = ModelTrainer(model, optim_lr=1e-3, weight_decay=1e-5)
    return Case(
        lambda: trainer.train(batches, num_epochs=1, evaluate=False, silent=True), after=lambda: {"steps": len(batches)}
    )


def rollout(rollouts: int, horizon: int, obs: int, act: int, members: int, hidden: int, policy: int) -> Case:
    """Steps of its ModelEnv, tensors throughout; every trajectory draws its member anew at every step."""
    from mbrl.env.termination_fns import no_termination
    from mbrl.models import ModelEnv

    model = ensemble(obs, act, members, hidden, transitions(1000, obs, act))
    model.set_propagation_method("random_model")
    with torch.no_grad():
        model.model.mean_and_logvar.weight.mul_(0.01)  # random weights would soon leave the range of numbers
    mean = nn.Sequential(
        nn.Linear(obs, policy), nn.ReLU(), nn.Linear(policy, policy), nn.ReLU(), nn.Linear(policy, act), nn.Tanh()
    )

    def reward(actions: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:
        return next_obs[:, 8] - 0.1 * (actions**2).sum(1)

    world = ModelEnv(Spaces(obs, act), model, no_termination, reward, torch.Generator().manual_seed(0))
    start = np.random.default_rng(0).standard_normal((rollouts, obs), np.float32)

    @torch.no_grad()
    def work() -> tuple[torch.Tensor, ...]:
        state = world.reset(start, return_as_np=False)
        seen = torch.from_numpy(start)
        kept: list[tuple[torch.Tensor, ...]] = []
        for _ in range(horizon):
            sampled = mean(seen) + 0.1 * torch.randn(rollouts, act)
            executed = sampled.clamp(-1.0, 1.0)
            next_obs, rewards, done, state = world.step(executed, state)
            kept.append((seen, sampled, executed, rewards, done))
            seen = next_obs
        return tuple(torch.stack(column) for column in zip(*kept, strict=True))

    return Case(work)


# sb3-contrib


def trpo(
    samples: int,
    obs: int,
    act: int,
    policy: int,
    stride: int,
    whole_batch: bool,
    iterations: int,
    damping: float,
    delta: float,
    tries: int,
    shrink: float,
    sigma: float,
) -> Case:
    """Its `train` on a filled buffer, without updates of the critic.

    With `whole_batch` every stride-th sample is used for everything, which is its own option; without, for the Fisher
    products alone, and gradient and line search see all samples, as in ours.
    """
    from sb3_contrib import TRPO
    from stable_baselines3.common.distributions import kl_divergence
    from stable_baselines3.common.logger import Logger

    class Counted(TRPO):
        """Counts Fisher products and takes, where asked, only some states for them; everything else is the peer's."""

        products = 0
        states: torch.Tensor | None = None

        def hessian_vector_product(self, *args: Any, **more: Any) -> torch.Tensor:
            self.products += 1
            return super().hessian_vector_product(*args, **more)

        def _compute_actor_grad(self, kl_div: torch.Tensor, policy_objective: torch.Tensor) -> Any:
            if self.states is not None:
                with torch.no_grad():
                    old = copy.copy(self.policy.get_distribution(self.states))
                kl_div = kl_divergence(self.policy.get_distribution(self.states), old).mean()
            return super()._compute_actor_grad(kl_div, policy_objective)

    model = Counted(
        "MlpPolicy",
        Spaces(obs, act),
        n_steps=samples,
        batch_size=samples,
        cg_max_steps=iterations,
        cg_damping=damping,
        line_search_shrinking_factor=shrink,
        line_search_max_iter=tries,
        n_critic_updates=0,
        normalize_advantage=False,
        target_kl=delta,
        sub_sampling_factor=stride if whole_batch else 1,
        policy_kwargs={
            "net_arch": {"pi": [policy, policy], "vf": []},
            "activation_fn": nn.ReLU,
            "log_std_init": math.log(sigma),
        },
        device="cpu",
        seed=0,
    )
    model.set_logger(Logger(None, []))
    states, noise, worth = draw(samples, obs, act)
    with torch.no_grad():
        distribution = model.policy.get_distribution(torch.from_numpy(states))
        actions = distribution.mode() + sigma * torch.from_numpy(noise)
        log_prob = distribution.log_prob(actions).numpy()
    buffer = model.rollout_buffer
    buffer.observations[:, 0], buffer.actions[:, 0], buffer.log_probs[:, 0] = states, actions.numpy(), log_prob
    buffer.advantages[:, 0] = buffer.returns[:, 0] = worth
    buffer.full, buffer.pos = True, samples
    if not whole_batch and stride > 1:
        model.states = torch.from_numpy(states[::stride].copy())

    weights = copy.deepcopy(model.policy.state_dict())
    passes = 0
    whole = model.policy.get_distribution

    def counted(*args: Any) -> Any:
        nonlocal passes
        passes += 1
        return whole(*args)

    model.policy.get_distribution = counted

    def before() -> None:
        nonlocal passes
        model.policy.load_state_dict(weights)
        passes, model.products = 0, 0

    def after() -> dict[str, Any]:
        known = 2 if model.states is None else 4  # the old and the present policy, on each set of states
        accepted = bool(model.logger.name_to_value["train/is_line_search_success"])
        return {"tries": passes - known, "fisher_products": model.products, "accepted": accepted}

    return Case(model.train, before, after)


CASES: dict[str, Callable[..., Case]] = {"fit": fit, "rollout": rollout, "trpo": trpo}


def run(case: Case) -> dict[str, Any]:
    case.before()
    began = time.perf_counter()
    case.work()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, **case.after()}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    warnings.filterwarnings("ignore", "Mean of empty slice|invalid value", RuntimeWarning)  # no critic, no loss of it
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    current: Case | None = None

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        nonlocal current
        match question["ask"]:
            case "about":
                packages = ("torch", "mbrl", "sb3-contrib", "stable-baselines3", "numpy")
                return {**{name: version(name) for name in packages}, "threads": torch.get_num_threads()}
            case "rate":
                return {"rate": torch_rate(Shape(*question["shape"]), question["budget"])}
            case "prepare":
                current = None  # its memory is free before the next one is built
                sizes = dict(question["case"])
                current = CASES[sizes.pop("kind")](**sizes)
                return run(current)
            case "run" if current is not None:
                return run(current)
            case other:
                raise ValueError(f"cannot answer {other!r}")

    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception:
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
