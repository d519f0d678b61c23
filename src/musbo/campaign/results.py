"""What came out of a campaign: the files that a person looks for, and one object that says it all."""

import io
import json
import os
from pathlib import Path
from typing import Any

from musbo.campaign import steps
from musbo.campaign.folders import LEDGER, STORE, open_settings, read_status, settings_of
from musbo.campaign.ledger import Ledger
from musbo.campaign.store import Store
from musbo.core import serial
from musbo.core.durable import is_temporary, write_whole
from musbo.core.errors import UserError
from musbo.models.frame import AnyPolicy


def export(folder: Path, ledger: Ledger, store: Store) -> None:
    """The policy, batches, metrics and summary under names that a person looks for, each file whole or absent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    now = steps.status(ledger.events())
    write_whole(folder / "policy.safetensors", store.get(now.trained[max(now.trained)]["policy"]))
    (folder / "data").mkdir(exist_ok=True)
    for d, item in now.batches.items():
        _same_file(store.path(item["batch"]), folder / "data" / f"deployment-{d}.parquet")
    rows = ledger.metrics()
    write_whole(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), table)
    write_whole(folder / "metrics.parquet", table.getvalue())
    outcome = {**summary(folder), "finished": True}
    write_whole(folder / "summary.json", json.dumps(outcome, indent=1).encode())
    for stray in folder.iterdir():
        if is_temporary(stray.name):  # of a process that was killed at this place
            stray.unlink()


def _same_file(source: Path, target: Path) -> None:
    """`target` as a second name of `source`, which costs no space, or a copy where a file system has no such names.

    Read-only: a program that wrote into the one would write into the other.
    """
    target.unlink(missing_ok=True)
    try:
        os.chmod(source, 0o444)
        os.link(source, target)
    except OSError:
        write_whole(target, source.read_bytes())


def whereabouts(folder: Path) -> dict[str, Any]:
    """What the run waits for or is doing, and how far its training is written down."""
    settings = open_settings(folder)
    with Ledger(folder / LEDGER) as ledger:
        events, metrics = ledger.events(), ledger.metrics()
    now = steps.status(events)
    words = {"collect": "collecting", "train": "training", "evaluate": "evaluating", "finished": "finished"}
    text = words[now.phase]
    if not now.finished:
        text += f" deployment {min(now.deployment, settings.deployments)} of {settings.deployments}"
    if now.phase == "train" and metrics and metrics[-1]["deployment"] == now.deployment:
        last = metrics[-1]
        of = last.get("epochs") or last.get("updates")
        text += f", {last['stage']} {last['index']}" + (f" of {of}" if of else "")
    return {"now": text + (", stopped" if now.stopped else ""), "phase": now.phase, "stopped": now.stopped}


def summary(folder: Path) -> dict[str, Any]:
    """One object that says what was run and what came out, finished or not."""
    now = read_status(folder)
    settings = settings_of(now)
    assert now.settings is not None
    returns = [now.evaluated[d].get("return") for d in sorted(now.evaluated)]
    last = now.trained[max(now.trained)] if now.trained else {}
    return {
        "task": settings.task,
        "algorithm": settings.algo,
        "preset": settings.preset,
        "seed": settings.seed,
        "deployments": len(now.batches),
        "transitions": sum(item["size"] for item in now.batches.values()),
        "returns": returns,
        "final_return": returns[-1] if returns else None,
        "policy_sha256": last.get("policy_sha256"),
        "seconds": sum(
            item.get("seconds", 0.0) for item in (*now.batches.values(), *now.trained.values(), *now.evaluated.values())
        ),
        "finished": now.finished,
        "evaluation_steps": sum(item.get("steps", 0) for item in now.evaluated.values()),
        "per_deployment": [
            {
                "deployment": d,
                "batch": {k: v for k, v in now.batches[d].items() if k != "batch"},
                "trained": {k: v for k, v in now.trained.get(d, {}).items() if k != "state"},
                "evaluated": now.evaluated.get(d, {}),
            }
            for d in sorted(now.batches)
        ],
        "versions": now.settings["versions"],
    }


def final_policy(folder: Path, deployment: int | None = None) -> tuple[AnyPolicy, int]:
    """The policy trained after `deployment` (the last one by default)."""
    trained = read_status(folder).trained
    if not trained:
        raise UserError(f"{folder} has no trained policy yet: continue it with `musbo resume {folder}`.")
    d = max(trained) if deployment is None else deployment
    if d not in trained:
        raise UserError(f"{folder} has no policy of deployment {d}: it has {', '.join(map(str, sorted(trained)))}.")
    return serial.decode(Store(folder / STORE).get(trained[d]["policy"])), d
