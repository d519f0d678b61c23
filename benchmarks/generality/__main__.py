"""A bench for generality: ten tasks, six methods, few deployments.

    python -m benchmarks.generality run --out ../generality --seeds 100 --methods uvg sac
    python -m benchmarks.generality table --out ../generality
    python -m benchmarks.generality reference --out ../generality-reference

A call that was killed is repeated: runs that are done stay, and the others go on. Runs that are in the committed
results.csv are done too: on a new machine the bench goes on from there. Runs have one thread and one core.
Tuning is done on the seeds 100 to 199; 1000 to 1002 are for the report, run once when the settings are frozen.
"""

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.document import between
from benchmarks.generality import figure, kept, score, table, work
from benchmarks.generality.plan import ENTRIES, METHODS, chosen_entries, runs, settings_of, with_settings
from musbo.algorithms.recipes import PRESETS
from musbo.campaign.versions import versions
from musbo.core.durable import write_whole
from musbo.core.errors import UserError

HERE = Path(__file__).parent


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="carry out what is missing")
    reference = verbs.add_parser("reference", help="measure where a score is 0 and 1; hours, once")
    tables = verbs.add_parser("table", help="results.csv, table.md and scores.svg of what is done")
    for each in (run, reference, tables):
        each.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the runs are, not in here")
        each.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help="some of the tasks (default: all)")
    for each in (run, reference):
        each.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
        each.add_argument("--list", action="store_true", help="show what is done and what is missing; run nothing")
    for each in (run, tables):
        each.add_argument("--preset", default="fast", choices=tuple(PRESETS), help="(default: fast)")
        each.add_argument(
            "--methods", nargs="+", metavar="METHOD",
            help=f"(default: {' '.join(METHODS)}; table: also all that were run); with settings: 'uvg updates=900'",
        )  # fmt: skip
        each.add_argument("--seeds", nargs="+", type=int, metavar="N", help="(default: 100; table: all that were run)")
        each.add_argument(
            "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings for all methods: label.alpha=auto"
        )
        each.add_argument(
            "--kept", type=Path, default=HERE / "results.csv", metavar="FILE",
            help="results of runs that need not be repeated (default: the committed)",
        )  # fmt: skip
    for each in (reference, tables):
        each.add_argument(
            "--references", type=Path, default=HERE / "references.csv", metavar="FILE", help="(default: the committed)"
        )
    tables.add_argument("--publish", action="store_true", help="write to the folder of the bench, and into its README")
    return parser


def wanted_of(said: argparse.Namespace) -> list:
    """The runs that the words ask for."""
    entries, methods, seeds = chosen_entries(said.tasks), said.methods, said.seeds
    if said.verb == "table":  # what is not said is what was run, and what should have been beside it
        every = [*kept.read(said.kept), *work.begun(said.out)]
        before = [run for run in every if run.preset == said.preset and run.entry in ENTRIES]
        methods = methods or list(dict.fromkeys((*METHODS, *(run.method for run in before))))
        seeds = seeds or sorted({run.seed for run in before})
        if not seeds:
            raise UserError(f"{said.out} has no runs of the preset {said.preset}: begin with `run`.")
    methods = with_settings(methods or METHODS, said.set)
    for method in methods:
        settings_of(method)  # refuses what is not written as a setting
    return runs(entries, methods, said.preset, seeds or [100])


def carry_out(said: argparse.Namespace, wanted: list) -> int:
    known = kept.read(said.kept) if said.verb == "run" else {}
    if said.list:
        print("\n".join(work.listing({run: kept.look(said.out, run, known) for run in wanted})))
        return 0
    failed = work.carry_out(said.out, [run for run in wanted if run not in known], said.jobs)
    print("\n".join(failed), file=sys.stderr) if failed else None
    return 1 if failed else 0


def measure_references(said: argparse.Namespace) -> int:
    """The short runs of random actions first, then SAC, the small tasks first."""
    entries = chosen_entries(said.tasks)
    pairs = [score.reference_runs(entry) for entry in entries]
    code = carry_out(said, [pair[0] for pair in pairs] + [pair[1] for pair in pairs])
    if not said.list:
        found = score.measured(said.out, entries)
        kept = score.read(said.references) | found
        score.write(said.references, kept, [entry.name for entry in ENTRIES])
        machine = versions() | {"processor": platform.processor() or platform.machine(), "threads per run": "1"}
        path = said.references.with_name("environment.json")
        write_whole(path, (json.dumps(machine, indent=1) + "\n").encode())
        print(f"{len(kept)} of {len(ENTRIES)} tasks have a reference: {said.references}")
    return code


def show(said: argparse.Namespace) -> int:
    results = table.gather(said.out, wanted_of(said), score.read(said.references), kept.read(said.kept))
    place = HERE if said.publish else said.out
    lines, drawn = table.told(results), figure.draw(results)
    write_whole(place / "results.csv", table.to_csv(results.rows).encode())
    write_whole(place / f"{drawn.name}.svg", drawn.svg)
    if said.publish:
        between(HERE / "README.md", "results", ["", f"![{drawn.title}]({drawn.name}.svg)", "", *lines, ""])
    else:
        write_whole(place / "table.md", ("\n".join(lines) + "\n").encode())
        write_whole(place / f"{drawn.name}.png", drawn.png)
    print("\n".join(lines))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    said = parser_of().parse_args(words)
    try:
        if said.verb == "table":
            return show(said)
        if said.verb == "reference":
            return measure_references(said)
        return carry_out(said, wanted_of(said))
    except UserError as error:
        print(f"generality: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("generality: stopped; the same command goes on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
