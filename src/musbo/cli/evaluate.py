"""`musbo evaluate`: measure a policy of a run."""

import argparse

from musbo.cli import _common

ORDER = 40
HELP = "Measure a policy of a run in the simulator, over whole episodes."
EXAMPLES = """
  musbo evaluate runs/pendulum-musbo-quick-s0                   the episodes that the run itself measured
  musbo evaluate runs/pendulum-musbo-quick-s0 --episodes 100 --seed 7
  musbo evaluate runs/pendulum-musbo-quick-s0 --deployment 1 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    add = parser.add_argument
    add("--episodes", type=int, metavar="N", help="whole episodes (default: as many as the run measured)")
    add("--seed", type=int, metavar="N", help="other episodes than those of the run")
    _common.add_deployment(parser)
    _common.add_task(parser)
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign import api
    from musbo.reporting import words

    found = api.evaluate(
        arguments.run, episodes=arguments.episodes, deployment=arguments.deployment, seed=arguments.seed,
        task=arguments.task, trust_task=arguments.trust_task,
    )  # fmt: skip
    if arguments.json:
        _common.print_json(found.plain())
        return 0
    measured = found.episodes
    print(
        f"policy of deployment {found.deployment} on {found.task}: "
        f"return {words.with_deviation(measured.mean_return, measured.deviation)} "
        f"over {words.count(len(measured.returns), 'episode')}"
    )
    for value, text in (
        (measured.model_return, "return under the model reward"),
        (measured.mean_length, "mean length"),
        (measured.speed, "speed"),
    ):
        if value is not None:
            print(f"  {text}: {words.number(value)}")
    return 0
