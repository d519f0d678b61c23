"""Runs as logs for TensorBoard: what a deployment gave by its number, what training said by its update."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from musbo.campaign.ledger import Ledger
from musbo.campaign.places import LEDGER
from musbo.core.diagnostics import Quantiles
from musbo.core.errors import UserError
from musbo.reporting.gather import Run
from musbo.reporting.run_tables import rows
from musbo.reporting.sheets import quantile_columns, record


def require() -> None:
    if find_spec("tensorboardX") is None:
        raise UserError("logs for TensorBoard need the package tensorboardX: pip install 'musbo[tensorboard]'.")


def write(runs: Sequence[Run], out: Path) -> str:
    """A directory per run; what an earlier report wrote there is replaced."""
    require()
    from tensorboardX import SummaryWriter

    for run in runs:
        place = out / f"{run.group.slug}-{run.method}-s{run.seed}"
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        with SummaryWriter(str(place)) as writer:
            for name, value, step in scalars(run):
                writer.add_scalar(name, value, step)
    return str(out)


def scalars(run: Run) -> Iterator[tuple[str, float, int]]:
    """Name, value and step of every number."""
    for row in rows(run.summary):
        numbers = {name: value for name, value in record(row).items() if name != "deployment"}
        yield from ((f"deployment/{name}", value, row.deployment) for name, value in _numbers(numbers, set()))
    with Ledger(run.folder / LEDGER) as ledger:
        metrics, under_way = ledger.metrics(), ledger.status().checkpoint
    shown = [each for item in run.summary.deployments for each in item.diagnostics]
    if under_way:
        shown += [each for _, findings in under_way.findings for each in findings.diagnostics]
    quantiles = {(each.series, each.name) for each in shown if isinstance(each.value, Quantiles)}
    # Indices begin anew in every deployment, some at 0; on the axis they follow each other.
    seen: dict[str, tuple[int, int, int]] = {}
    for row in metrics:
        d, before, last = seen.get(row.stage, (row.deployment, 0, 0))
        if d != row.deployment:
            before += last + (row.index == 0)
        seen[row.stage] = (row.deployment, before, row.index)
        own = {name for series, name in quantiles if series == row.stage}
        for name, value in _numbers(row.numbers, own):
            yield f"{row.stage}/{name}", value, before + row.index


def _numbers(values: Mapping[str, Any], quantiles: set[str]) -> Iterator[tuple[str, float]]:
    """Lists are numbered; those in `quantiles` are named by what they are."""
    for name, value in values.items():
        pairs: Iterator[tuple[str, Any]] = iter([(name, value)])
        if isinstance(value, list):
            pairs = ((f"{name}_{i}", one) for i, one in enumerate(value))
            if name in quantiles and len(value) == 3:
                pairs = quantile_columns(name, value)
        for key, one in pairs:
            if isinstance(one, int | float) and not isinstance(one, bool):
                yield key, float(one)
