"""Runs as logs for TensorBoard: what a deployment gave by its number, what training said by its update."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from musbo.campaign.folders import LEDGER
from musbo.campaign.ledger import Ledger
from musbo.core.errors import UserError
from musbo.report.gather import Run
from musbo.report.tables import flat, rows


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
    for row in rows(run.summary):
        d = row["deployment"]
        yield from ((f"deployment/{name}", value, d) for name, value in _numbers(row) if name != "deployment")
    with Ledger(run.folder / LEDGER) as ledger:
        metrics = ledger.metrics()
    # Indices begin anew in every deployment, some at 0; on the axis they follow each other.
    seen: dict[str, tuple[int, int, int]] = {}
    for row in metrics:
        stage, index = row["stage"], row["index"]
        d, before, last = seen.get(stage, (row["deployment"], 0, 0))
        if d != row["deployment"]:
            before += last + (index == 0)
        seen[stage] = (row["deployment"], before, index)
        numbers = _numbers({k: v for k, v in row.items() if k not in ("deployment", "stage", "index")})
        yield from ((f"{stage}/{name}", value, before + index) for name, value in numbers)


def _numbers(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in flat(row).items():
        several = name.endswith("_per_member")
        for key, one in ((f"{name}_{i}", one) for i, one in enumerate(value)) if several else ((name, value),):
            if isinstance(one, int | float) and not isinstance(one, bool):
                yield key, float(one)
