"""`musbo ingest`: data come home."""

import argparse
from pathlib import Path

from musbo.cli import _common, _rounds

ORDER = 23
HELP = "Take the data of a round home, after the doctor has seen them."
EXAMPLES = """
  musbo ingest campaigns/line-3 monday.musbo tuesday.musbo     all recordings of a round at once
  musbo ingest campaigns/line-3 monday.musbo --accept          after you have looked at the warnings
  musbo ingest campaigns/line-3 plant.csv --mapping mapping.toml --bundle 1f0c   a historian does not name the bundle
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _rounds.add_campaign(parser)
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="recordings (.musbo), .csv, .parquet, .npz, .hdf5, minari:NAME"
    )
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML that says what the columns mean")
    parser.add_argument(
        "--bundle", metavar="ID", help="the bundle that made data which do not name it, or the beginning of its id"
    )
    parser.add_argument("--accept", action="store_true", help="take them in spite of warnings")


def action(arguments: argparse.Namespace) -> int:
    """2 where they are refused."""
    from musbo.campaign.homecoming import Unaccepted
    from musbo.core.plain import plain

    campaign = _rounds.campaign_of(arguments)
    try:
        came = campaign.ingest(
            arguments.files, mapping=arguments.mapping, bundle=arguments.bundle, accept=arguments.accept
        )
    except Unaccepted as error:
        if not arguments.json:
            raise
        _common.print_json({"refused": str(error), "findings": plain(list(error.findings))})
        return 2
    text = f"round {came.round} has its data: {came.transitions:,} transitions; it is spent"
    if came.again:
        text = f"these recordings came home in round {came.round} already: nothing was changed"
    if not arguments.json:
        for finding in came.findings:
            print(f"{finding.level}: {finding.source}: {finding.text}")
    return _rounds.close(arguments.run, arguments, plain(came), text)
