"""The same study three times: undisturbed, killed twice with -9, and on two Ray nodes of which one is lost on the way.

What comes of each is the final policy of every run, by its hash. Needs musbo[cluster].
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from musbo.campaign.summary import summary
from musbo.cluster.study import Cell, Study, Variant, cells

ALGOS, TASKS, SEEDS = ["musbo", "mopo"], ["pendulum", "pointmass"], [0, 1]
RAY = Path(sys.executable).with_name("ray")


def command(out: Path, *more: str) -> list[str]:
    words = ["--tasks", *TASKS, "--algos", *ALGOS, "--seeds", *map(str, SEEDS), "--preset", "quick"]
    return [sys.executable, "-m", "musbo", "study", *words, "--out", str(out), "--json", *more]


def every() -> list[Cell]:
    return cells(Study(tuple(TASKS), tuple(Variant(name, name) for name in ALGOS), tuple(SEEDS), "quick"))


def trained(out: Path) -> int:
    """Deployments that are over, in all runs."""
    begun = [out / cell.folder for cell in every() if (out / cell.folder / "ledger.sqlite").exists()]
    return sum(len(summary(folder).returns) for folder in begun)


def start(words: list[str]) -> "subprocess.Popen[bytes]":
    """With a process group of its own, so that it can be killed as a whole."""
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def bury(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(process: "subprocess.Popen[bytes]", out: Path, deployments: int) -> None:
    while trained(out) < deployments:
        if process.poll() is not None:
            sys.exit(f"{out} ended before {deployments} deployments were over")
        time.sleep(0.2)


def finish(process: "subprocess.Popen[bytes]", out: Path) -> dict[str, Any]:
    if process.wait():
        sys.exit(f"the study {out} failed")
    found = {cell.folder: summary(out / cell.folder) for cell in every()}
    return {name: {"policy": one.policy_sha256, "return": one.final_return} for name, one in found.items()}


def calm(work: Path) -> dict[str, Any]:
    return finish(start(command(work / "calm")), work / "calm")


def killed(work: Path) -> dict[str, Any]:
    """After a third and after two thirds of its deployments, and each time begun again by the same command."""
    out = work / "killed"
    for share in (1, 2):
        process = start(command(out))
        wait_for(process, out, share * len(every()) * 4 // 3)
        bury(process)
    return finish(start(command(out)), out)


def on_ray(work: Path) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    node = [str(RAY), "start", "--block", "--disable-usage-stats", "--num-cpus=1", "--node-ip-address=127.0.0.1"]
    head = start([*node, "--head", f"--port={port}", "--include-dashboard=false"])
    second = start([*node, f"--address=127.0.0.1:{port}"])
    try:
        for _ in range(60):
            time.sleep(2.0)
            seen = subprocess.run([str(RAY), "status", "--address", f"127.0.0.1:{port}"], capture_output=True)
            if b"/2.0 CPU" in seen.stdout:
                break
        else:
            sys.exit("the two nodes did not find each other")
        process = start(command(work / "ray", "--ray", f"127.0.0.1:{port}"))
        wait_for(process, work / "ray", len(every()) * 4 // 2)
        bury(second)
        return finish(process, work / "ray")
    finally:
        for one in (second, head):
            if one.poll() is None:
                bury(one)


WAYS = {"calm": calm, "killed": killed, "ray": on_ray}
