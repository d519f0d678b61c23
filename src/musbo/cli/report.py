"""`musbo report`: a page about runs or studies."""

import argparse
import math
from pathlib import Path

from musbo.cli import _common
from musbo.core.errors import UserError

ORDER = 70
HELP = "Make a page about runs or studies, with figures and tables as files."
EXAMPLES = """
  musbo report runs/pendulum-musbo-quick-s0          writes report/index.html into the run
  musbo report studies/small                         a comparison of its methods
  musbo report runs/a runs/b --out comparison        several together
  musbo report studies/novelty --score cheetah-run=550   how many deployments each method needs for that
  musbo report studies/small --tensorboard           for TensorBoard too
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folders", type=Path, nargs="+", metavar="DIR", help="a run, or a study")
    add("--out", type=Path, metavar="DIR", help="where it goes (default: report in the directory, if one)")
    add("--score", action="append", default=[], metavar="TASK=RETURN",
        help="count the deployments until this return is reached (once for each task)")  # fmt: skip
    add("--no-film", action="store_true", help="no pictures of the last policy, so no simulator is asked")
    _common.add_trust(parser)
    add("--tensorboard", action="store_true", help="write logs for TensorBoard as well")
    add("--json", action="store_true", help="what was written, as one object on standard output")


def action(arguments: argparse.Namespace) -> int:
    from musbo.core.plain import plain
    from musbo.reporting.api import report

    written = report(
        *arguments.folders, out=arguments.out, scores=_scores(arguments.score), film=not arguments.no_film,
        tensorboard_logs=arguments.tensorboard, trust_task=arguments.trust_task,
    )  # fmt: skip
    if arguments.json:
        _common.print_json(plain(written))
        return 0
    print(f"page: {written.page}")
    place = Path(written.page).parent
    print(f"figures: {len(written.figures)} files, tables: {len(written.tables)} files, in {place}")
    if written.tensorboard:
        print(f"logs: tensorboard --logdir {written.tensorboard}")
    return 0


def _scores(words: list[str]) -> dict[str, float]:
    found = {}
    for word in words:
        task, _, text = word.rpartition("=")
        try:
            found[task] = float(text)
        except ValueError:
            found[task] = math.nan
        if not task or not math.isfinite(found[task]):
            raise UserError(f"--score takes TASK=RETURN, such as cheetah-run=550, not {word!r}.")
    return found
