"""`musbo verify`: whether a run, a campaign or a bundle is what was written, and where copies part."""

import argparse
from pathlib import Path

from musbo.cli import _common

ORDER = 35
HELP = "Check that a run, campaign or bundle is what was written; compare copies."
EXAMPLES = """
  musbo verify runs/pendulum-musbo-quick-s0        after a copy, or before somebody else relies on it
  musbo verify studies/small/* --json
  musbo verify to-site.zip                         a bundle
  musbo verify here/line-3 there/line-3            two copies of one campaign: where they part
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="the directory of a run or a campaign, or a bundle"
    )
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    """2 where anything is wrong."""
    import itertools

    from musbo.campaign.history import parting
    from musbo.campaign.verify import Verified, is_bundle, verify, verify_bundle
    from musbo.core.errors import UserError
    from musbo.core.plain import plain

    found: dict[str, Verified] = {}
    for run in arguments.runs:
        try:
            found[str(run)] = verify_bundle(run) if is_bundle(run) else verify(run)
        except UserError as error:  # its ledger cannot be read: nothing else can be checked
            found[str(run)] = Verified(0, 0, 0, 0, (str(error),))
    sound = [run for run in arguments.runs if not found[str(run)].problems and not is_bundle(run)]
    apart = {str(other): line for one, other in itertools.pairwise(sound) if (line := parting(one, other))}
    if arguments.json:
        said = {run: {**plain(seen), **({"copy": apart[run]} if run in apart else {})} for run, seen in found.items()}
        _common.print_json(said)
    else:
        for run, seen in found.items():
            counts = (
                f"{seen.events} events, {seen.metrics} rows of metrics, {seen.artefacts} artefacts, {seen.files} files"
            )
            for line in seen.problems or (f"sound ({counts})",):
                print(f"{run}: {line}")
        for line in apart.values():
            print(line)
    return 2 if any(seen.problems for seen in found.values()) else 0
