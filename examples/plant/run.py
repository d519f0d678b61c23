"""Five rounds on an industrial plant: one command, from the logs of the site to a page.

    python examples/plant/run.py --seeds 0 1 2

Three processes, which share files and a pipe only:

    trainer      this program: musbo.Campaign, which has no simulator
    controller   controller.py: Python and numpy, and the runtime of the bundle that the trainer exported
    plant        plant.py: the Industrial Benchmark, at the other end of a pipe of the controller

The first call makes an environment for the site and installs the benchmark there. Whenever it is killed, the same
command goes on. Everything is in runs/plant; the page is index.html there.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import page

import musbo

HERE = Path(__file__).resolve().parent
PACKAGES = (("numpy==2.4.6", "scipy==1.17.1"), ("--no-deps", "industrial_benchmark_python==2.0"))
JUDGE = 9000
"""Seed of the disturbances that the last policies and the references meet; nothing is trained on them."""


@dataclass(frozen=True)
class Site:
    """A plant, and how it is worked on."""

    task: str
    python: str
    """The Python on site; the controller needs numpy."""
    plant: Sequence[str]
    """The command that starts the plant."""
    rules: tuple[tuple[float, float, float, float], ...]
    """The site's own controller and the fallback: of every action the column that it steers, the value that is wanted
    there, how strongly it is steered back, and the noise of the first round."""
    limits: Mapping[str, Any]
    """Of every bundle, in the hands of the site."""
    steps: int = 100
    episodes: int = 50
    """Of a round."""
    judged: int = 100
    """Episodes of the last policy."""
    budget: int = 5
    algo: str = "musbo"
    preset: Any = "quick"
    settings: Mapping[str, Any] = field(default_factory=dict)


# The site


def visit(site: Site, kept: Path, seed: int, episodes: int, *words: str | Path) -> dict[str, Any]:
    """The controller works on site, once: what it says is kept, after the files that it writes."""
    if not kept.exists():
        began = time.perf_counter()
        rules = [word for rule in site.rules for word in ("--rule", *rule)]
        size = ["--episodes", episodes, "--steps", site.steps, "--seed", seed]
        command = [site.python, HERE / "controller.py", *words, *rules, *size, "--", *site.plant]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"the controller stopped with code {done.returncode}; what it said is above.")
        write(kept, json.loads(done.stdout) | {"seconds": time.perf_counter() - began})
    return json.loads(kept.read_text())


def recorded(site: Site, place: Path, archive: Path, seed: int, episodes: int) -> tuple[Path, dict[str, Any]]:
    """A bundle goes to the site, into the folder `place`, and works there: its recording, and what was said of it.

    One that was cut off begins anew: this plant can do it again.
    """
    kept, recording = place.with_suffix(".json"), place / "recording.musbo"
    if not kept.exists():
        shutil.rmtree(place, ignore_errors=True)
        shutil.unpack_archive(archive, place)
    return recording, visit(site, kept, seed, episodes, "--bundle", place, "--record", recording)


def write(path: Path, said: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(said, indent=1) + "\n")
    os.replace(part, path)


# The trainer


def campaign(site: Site, folder: Path, seed: int) -> dict[str, Any]:
    """A whole campaign, or what is missing of it: the campaign knows what comes next."""
    away = folder / "site"
    away.mkdir(parents=True, exist_ok=True)
    logs = away / "logs.csv"
    visit(site, away / "logs.json", 100 * seed, site.episodes, "--logs", logs)
    place = folder / "campaign"
    if not (place / "ledger.sqlite").exists():
        musbo.Campaign.new(
            site.task,
            data=[logs],
            algo=site.algo,
            preset=site.preset,
            seed=seed,
            budget=site.budget,
            batch_size=site.episodes * site.steps,
            settings=site.settings,
            out=place,
        )
    trainer = musbo.Campaign(place, trust_task=True)
    while trainer.next.verb != "done":
        if trainer.next.verb == "train":
            trainer.train()
            continue
        number = trainer.status().rounds[-1].number
        bundle = trainer.export(limits=site.limits)
        place = away / f"round-{number}"
        recording, came = recorded(site, place, bundle.archive, 100 * seed + number, site.episodes)
        trainer.ingest([recording], accept=True)
        print(f"seed {seed}, round {number}: {came['reward']:.1f} per step", flush=True)
    bundle = trainer.export(limits=site.limits)
    _, last = recorded(site, away / "last", bundle.archive, JUDGE, site.judged)
    print(f"seed {seed}, last policy: {last['reward']:.1f} per step", flush=True)
    return described(trainer, away, seed)


def described(trainer: musbo.Campaign, away: Path, seed: int) -> dict[str, Any]:
    """What was promised of every round, and what came true."""
    every = trainer.status().summary.deployments
    visits = ["logs", *(f"round-{each.number}" for each in every[1:]), "last"]
    makers = [None, *every]
    rounds = []
    for name, maker in zip(visits, makers, strict=True):
        said = json.loads((away / f"{name}.json").read_text())
        kept = {key: said[key] for key in ("reward", "error", "steps", "fallbacks", "seconds", "shown")}
        promised = maker.imagined_per_step if maker else None
        rounds.append({"name": name, "promised": promised, "trained": maker.training.seconds if maker else None} | kept)
    return {"seed": seed, "rounds": rounds}


def references(site: Site, out: Path) -> dict[str, Any]:
    """What a policy has to beat, measured once: it does not depend on any training."""
    kept = out / "references.json"
    if not kept.exists():
        subprocess.run([site.python, HERE / "references.py", kept, "--seed", str(JUDGE)], check=True)
    return json.loads(kept.read_text())


# The industrial plant


def environment(place: Path) -> str:
    """The Python on site, in an environment of its own: the benchmark without its dependencies, numpy and scipy."""
    python, ready = place / "bin" / "python", place / "ready"
    if not ready.exists():
        print(f"an environment for the site, in {place}", flush=True)
        venv.create(place, with_pip=True, clear=True)
        for words in PACKAGES:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)
        ready.touch()
    return str(python)


def industrial(python: str) -> Site:
    """The benchmark, which starts with velocity, gain and shift at 50; the site is used to leave them there."""
    return Site(
        str(HERE / "plant.toml"),
        python,
        (python, str(HERE / "plant.py")),
        rules=((1, 50, 0.02, 1.0), (2, 50, 0.01, 0.3), (3, 50, 0.015, 0.6)),
        limits={"fallbacks": 1000},  # a fifth of a round
    )


def versions(site: Site, trainer: Path) -> dict[str, str]:
    """Where it ran, and with what on either side."""
    frozen = subprocess.run([site.python, "-m", "pip", "freeze"], stdout=subprocess.PIPE, text=True, check=True)
    on_site = ", ".join(frozen.stdout.split())
    made = musbo.Campaign(trainer, trust_task=True).status().summary.versions
    return {"trainer": ", ".join(f"{k} {v}" for k, v in made.items()), "site": on_site, "machine": platform.platform()}


def publish(folder: Path, results: dict[str, Any]) -> None:
    """What is kept in the repository: everything but what the plant showed at every step."""
    seeds = [
        each | {"rounds": [{key: value for key, value in one.items() if key != "shown"} for one in each["rounds"]]}
        for each in results["seeds"]
    ]
    write(folder / "results.json", results | {"seeds": seeds})
    (folder / "figure.svg").write_bytes(page.course(results["seeds"], results["references"]).svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/plant"))
    parser.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="the numbers and the figure, for benchmarks/plant"
    )
    said = parser.parse_args()
    out = said.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    site = industrial(environment(out / "site"))
    beaten = references(site, out)
    seeds = [campaign(site, out / f"seed-{seed}", seed) for seed in said.seeds]
    command = f"python examples/plant/run.py --seeds {' '.join(map(str, said.seeds))}"
    method = {"algo": site.algo, "preset": site.preset, "settings": dict(site.settings)}
    results = {
        "command": command,
        "method": method,
        "versions": versions(site, out / f"seed-{said.seeds[0]}" / "campaign"),
        "references": beaten,
        "seeds": seeds,
    }
    write(out / "results.json", results)
    if said.publish:
        publish(said.publish, results)
    print(f"the page: {page.write(out / 'index.html', results, musbo.find_task(site.task).obs_names)}")


if __name__ == "__main__":
    main()
