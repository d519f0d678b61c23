"""`musbo export`: the policy of a run as a bundle for the field."""

import argparse
from pathlib import Path

from musbo.cli import _common

ORDER = 45
HELP = "Write the newest policy of a run as a bundle for the field: numpy, ONNX, C."
EXAMPLES = """
  musbo export runs/pendulum-musbo-quick-s0                        to bundles/ inside the run
  musbo export runs/pendulum-musbo-quick-s0 --out to-site --limits limits.toml
  musbo export runs/pendulum-musbo-quick-s0 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    _common.add_run(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="a new folder; the archive is written beside it")
    parser.add_argument("--limits", type=Path, metavar="FILE", help="TOML with the limits of the site")
    _common.add_json(parser)


def action(arguments: argparse.Namespace) -> int:
    from musbo.campaign import bundles

    made = bundles.export(arguments.run, out=arguments.out, limits=arguments.limits)
    if arguments.json:
        _common.print_json(made.plain())
        return 0
    print(f"bundle {made.id[:12]}: policy of deployment {made.deployment} on {made.task}")
    print(f"  {made.folder}: {', '.join(made.files)}")
    print(f"  {made.archive}")
    for note in made.notes:
        print(f"note: {note}")
    explores = "explores to collect the next batch" if made.explores else "acts without exploration"
    print(f"by default the runtime {explores}; README.md tells the engineer on site what to do")
    return 0
