"""`musbo verify`: whether a run, a campaign or a bundle is what was written, and where copies part."""

import argparse
from pathlib import Path
from typing import Any

from musbo.cli import _common, _rounds

ORDER = 35
ON_SITE = "let it run on site, as its README.md says, and bring the recordings home with `musbo ingest`"
"""What comes after a sound bundle."""
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
    from musbo.campaign.verify import Verified, is_bundle, verify
    from musbo.core.errors import UserError
    from musbo.core.plain import plain

    found: dict[str, Verified] = {}
    for run in arguments.runs:
        try:
            found[str(run)] = verify(run)
        except UserError as error:  # its ledger cannot be read: nothing else can be checked
            found[str(run)] = Verified(0, 0, 0, 0, (str(error),))
    sound = [run for run in arguments.runs if not found[str(run)].problems and not is_bundle(run)]
    copies = {(str(one), str(other)): parting(one, other) for one, other in itertools.pairwise(sound)}
    apart = {pair: line for pair, line in copies.items() if line}
    compared = {run for pair in apart for run in pair}  # which of them goes on, a person has to say
    after = {str(run): _next(run, arguments) for run in arguments.runs if not found[str(run)].problems}
    after = {run: said for run, said in after.items() if run not in compared}
    if arguments.json:
        copy = {other: {"copy": line} for (_, other), line in apart.items()}
        _common.print_json(
            {run: {**plain(seen), **copy.get(run, {}), **after.get(run, ({}, ""))[0]} for run, seen in found.items()}
        )
    else:
        for run, seen in found.items():
            counts = (
                f"{seen.events} events, {seen.metrics} rows of metrics, {seen.artefacts} artefacts, {seen.files} files"
            )
            for line in seen.problems or (f"sound ({counts})",):
                print(f"{run}: {line}")
            if run in after and (line := after[run][1]):
                print(f"{run}: {line}")
        for line in apart.values():
            print(line)
    return 2 if any(seen.problems for seen in found.values()) else 0


def _next(run: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from musbo.campaign.verify import is_bundle

    return ({"next": ON_SITE}, f"next: {ON_SITE}") if is_bundle(run) else _rounds.following(run, arguments)
