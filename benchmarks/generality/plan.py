"""What the bench consists of: tasks with their budgets, methods, and the runs that they make together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from musbo.campaign.settings import slug
from musbo.core.errors import UserError

OWN_TASKS = Path(__file__).parent / "tasks.py"
EPISODES = 10  # after every deployment; more of them would be the main cost of the small tasks

METHODS = ("uvg", "musbo", "bremen", "me-trpo", "mopo", "sac")
"""Ours is the first: the others are compared with it."""


@dataclass(frozen=True)
class Entry:
    """A task of the bench."""

    name: str
    budget: int
    batch_size: int
    own: bool = False
    """Declared in tasks.py, and not a task that comes with musbo."""

    @property
    def task(self) -> str:
        """As `musbo run` takes it."""
        return f"{OWN_TASKS}:{self.name}" if self.own else self.name


# The five whose reward is learned are those of which a user would have the simulator and no formula: double_pendulum,
# reacher, swimmer, cartpole_swingup and walker_walk. The small ones are first, so that a mistake is seen early.
ENTRIES = (
    Entry("pendulum", 4, 500),
    Entry("mountain_car", 3, 2_000, own=True),
    Entry("double_pendulum", 4, 2_500, own=True),
    Entry("reacher", 4, 2_500, own=True),
    Entry("swimmer", 4, 4_000, own=True),
    Entry("cartpole_swingup", 4, 4_000, own=True),
    Entry("walker_walk", 5, 10_000, own=True),
    Entry("hopper", 5, 10_000),
    Entry("halfcheetah", 5, 10_000),
    Entry("walker2d", 5, 10_000),
)


@dataclass(frozen=True)
class Run:
    """One campaign of the bench."""

    entry: Entry
    method: str
    """An algorithm, or one with settings of its own: `musbo label.alpha=auto updates=100`."""
    preset: str
    seed: int
    episodes: int = EPISODES

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"{self.entry.name}-{slug(self.method)}-{self.preset}-s{self.seed}"

    def words(self, folder: Path) -> list[str]:
        """The command that begins it, after `musbo`."""
        algo, *settings = settings_of(self.method)
        entry = self.entry
        return [
            "run", entry.task, "--algo", algo, "--preset", self.preset, "--seed", str(self.seed), "--budget",
            str(entry.budget), "--batch-size", str(entry.batch_size), "--episodes", str(self.episodes), "--out",
            str(folder), *settings,
        ]  # fmt: skip


def settings_of(method: str) -> list[str]:
    """The algorithm that a method is, and the words of its own settings; `hidden=64,64` are two numbers."""
    algo, *settings = method.split()
    words = [algo]
    for setting in settings:
        flag, equals, value = setting.partition("=")
        if not (flag and equals and value) or flag.startswith("-"):
            raise UserError(f"a setting of a method is written as label.alpha=auto, not {setting!r}.")
        words += [f"--{flag}", *value.split(",")]
    return words


def with_settings(methods: Iterable[str], settings: Sequence[str]) -> list[str]:
    """The methods, each with these settings on top of its own."""
    return [" ".join((method, *settings)) for method in methods]


def runs(entries: Iterable[Entry], methods: Iterable[str], preset: str, seeds: Iterable[int]) -> list[Run]:
    """One seed of everything before the second."""
    entries, methods = list(entries), list(methods)
    return [Run(entry, method, preset, seed) for seed in seeds for entry in entries for method in methods]


def chosen_entries(names: Sequence[str], entries: Sequence[Entry] = ENTRIES) -> list[Entry]:
    """Those of these names, in the order of the bench; all of them without a name."""
    known = {entry.name: entry for entry in entries}
    if strangers := [name for name in names if name not in known]:
        raise UserError(f"the bench has no task {strangers[0]!r}: choose among {', '.join(known)}.")
    return [entry for entry in entries if not names or entry.name in names]
