"""`musbo export`: the policy of a run as a bundle for the field."""

import argparse
from pathlib import Path

from musbo.cli import _common, _rounds

ORDER = 45
HELP = "Write the policy as a bundle for the field: numpy, ONNX, C."
EXAMPLES = """
  musbo export runs/pendulum-musbo-quick-s0                        to bundles/ inside the run
  musbo export runs/pendulum-musbo-quick-s0 --out to-site --limits limits.toml
  musbo export runs/pendulum-musbo-quick-s0 --json
  musbo export campaigns/line-3 --bundle 3f9a21     go back to a bundle that left before
  musbo export campaigns/line-3 --candidate 1       of several policies of a round, the first
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="a new folder; the archive is written beside it")
    parser.add_argument("--limits", type=Path, metavar="FILE", help="TOML with the limits of the site")
    parser.add_argument("--bundle", metavar="ID", help="in a campaign: one that was exported before, by its id")
    parser.add_argument("--candidate", type=int, metavar="N", help="in a campaign: which of several, from 1")
    _common.add_task(parser)
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign import bundles
    from musbo.campaign.summary import read_status
    from musbo.core.errors import UserError

    field = read_status(arguments.run).field
    if field:
        campaign = _rounds.campaign_of(arguments)
        made = campaign.export(
            out=arguments.out, limits=arguments.limits, bundle=arguments.bundle, candidate=arguments.candidate
        )
    elif arguments.bundle or arguments.candidate is not None:
        raise UserError(
            "--bundle and --candidate are for campaigns in the field; a run has one bundle, that of its newest policy."
        )
    else:
        made = bundles.export(arguments.run, out=arguments.out, limits=arguments.limits)
    if arguments.json and not field:
        _common.print_json(made.plain())
        return 0
    if arguments.json:
        return _rounds.close(arguments.run, arguments, made.plain(), "")
    what = (
        f"policy of deployment {made.deployment}" if made.deployment else "your own controller, with noise around it,"
    )
    print(f"bundle {made.id[:12]}: {what} on {made.task}")
    print(f"  {made.folder}: {', '.join(made.files)}")
    print(f"  {made.archive}")
    for note in made.notes:
        print(f"note: {note}")
    explores = "explores to collect the next batch" if made.explores else "acts without exploration"
    said = f"by default the runtime {explores}; README.md tells the engineer on site what to do"
    if field:
        return _rounds.close(arguments.run, arguments, {}, said)
    print(said)
    return 0
