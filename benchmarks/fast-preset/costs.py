"""What each alternative costs: floating-point operations per deployment, mean over a campaign.

    python benchmarks/fast-preset/costs.py

Writes the column `tera_operations` of trials.csv and the table of docs/log/fast-preset.md, counted as for the methods
(../methods/operations.py). Settings that no trial changed are those of `fast`.
"""

import csv
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.recipes import recipe, scale
from musbo.field.find import find_task
from musbo.learning.fit import FitSettings

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "methods")]
from document import between  # noqa: E402  # pyright: ignore[reportMissingImports]
from operations import per_deployment  # noqa: E402  # pyright: ignore[reportMissingImports]


def alternative(row: dict[str, Any]) -> ImaginedTRPO:
    method = recipe("musbo", "fast", row["task"])
    assert isinstance(method, ImaginedTRPO)
    rollouts, horizon = map(int, row["imagined"].split("x"))
    width = int(row["width"])

    def fit(which: str, settings: FitSettings) -> FitSettings:
        steps, epochs = int(row[f"fit_steps_{which}"]), int(row[f"fit_epochs_{which}"])
        return replace(settings, max_steps=steps, epochs=epochs, batch=int(row["fit_batch"]), hidden=(width,) * 4)

    return replace(
        method,
        dynamics=fit("M", method.dynamics),
        labeler=fit("P", method.labeler),
        policy=replace(method.policy, hidden=(width, width)),
        imagine=replace(method.imagine, rollouts=rollouts, horizon=horizon, starts=row["starts"]),
        updates=int(row["updates"]),
    )


def main() -> None:
    file = HERE / "trials.csv"
    rows: list[dict[str, Any]] = list(csv.DictReader(file.open()))
    table = ["| task | seed | trial | dynamics / labeler / improve | all | return after each deployment |"]
    table.append("|---|---|---|---|---|---|")
    counted = cache(lambda method, task: per_deployment(method, find_task(task), scale("fast", task)).values())
    for row in rows:
        each = counted(alternative(row), row["task"])
        row["tera_operations"] = f"{sum(each) / 1e12:.1f}"
        what = "{trial}; {imagined}, {updates} updates, delta {delta}, alpha {alpha}".format(**row)
        cost = " / ".join(f"{number / 1e12:.1f}" for number in each)
        ends = f"{row['tera_operations']} | {row['returns_per_deployment']}"
        table.append(f"| {row['task']} | {row['seed']} | {what} | {cost} | {ends} |")
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    between(HERE.parents[1] / "docs" / "log" / "fast-preset.md", "operations", table)


if __name__ == "__main__":
    main()
