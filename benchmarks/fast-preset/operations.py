"""What each alternative costs: matrix-product operations per deployment, from its settings.

    python benchmarks/fast-preset/operations.py

Writes the column `teraflop_per_deployment` of trials.csv and the table of README.md between its marks. Counted by
benchmarks/speed/limit.py: M's and P's fits at their full length, imagination, labels and TRPO steps with one try of the
line search. The parts that no trial changed are in SHARED.
"""

import csv
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "speed"))
import limit  # noqa: E402  # pyright: ignore[reportMissingImports]

BODIES = {"halfcheetah": (17, 6), "hopper": (11, 3)}  # numbers of an observation and of an action
SHARED = {"hidden": (200,) * 4, "batch": 250, "members": (5, 3), "steps_P": 3400, "policy": (200, 200), "stride": 10}
COLUMN = "teraflop_per_deployment"
MARKS = "<!-- operations -->", "<!-- end -->"


def parts(row: dict[str, str]) -> dict[str, limit.Products]:
    obs, act = BODIES[row["task"]]
    hidden, policy = SHARED["hidden"], (obs, *SHARED["policy"], act)
    M, P = (obs + act, *hidden, obs), (obs + act, *hidden, 2 * obs)
    rollouts, horizon = map(int, row["imagined"].split("x"))
    samples, updates = rollouts * horizon, int(row["updates"])
    n_M, n_P = SHARED["members"]
    return {
        "fit of M": limit.fit(int(row["fit_steps_M"]), n_M, SHARED["batch"], M),
        "fit of P": limit.fit(SHARED["steps_P"], n_P, SHARED["batch"], P),
        "imagination": limit.times(updates, limit.rollout(rollouts, horizon, policy, M)),
        "labels": limit.times(updates, limit.labels(samples, (obs + act, *hidden, obs))),
        "TRPO": limit.times(updates, limit.trpo(samples, SHARED["stride"], 10, 1, policy)),
    }


def tera(products: limit.Products) -> float:
    return sum(shape.operations * count for shape, count in products.items()) / 1e12


def main() -> None:
    file = HERE / "trials.csv"
    rows: list[dict[str, Any]] = list(csv.DictReader(file.open()))
    table = ["| task | seed | trial | M / P / imagination / labels / TRPO | all | return after each deployment |"]
    table.append("|---|---|---|---|---|---|")
    for row in rows:
        each = [tera(products) for products in parts(row).values()]
        row[COLUMN] = f"{sum(each):.1f}"
        what = "{trial}; {imagined}, {updates} updates, delta {delta}, alpha {alpha}".format(**row)
        cost = " / ".join(f"{number:.1f}" for number in each)
        table.append(
            f"| {row['task']} | {row['seed']} | {what} | {cost} | {row[COLUMN]} | {row['returns_per_deployment']} |"
        )
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    readme.write_text(f"{before}{MARKS[0]}\n" + "\n".join(table) + f"\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
