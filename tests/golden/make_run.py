"""Makes the golden run of the format that this version writes: `python -m tests.golden.make_run`.

The campaign of `tests/stories/tiny` with a check at every update, killed in the third update of its second training.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from musbo.campaign import folders, runner, schema
from musbo.campaign.news import News, Training
from tests.stories import tiny


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


def kill(news: News) -> None:
    if isinstance(news, Training) and (news.deployment, news.metrics.stage, news.metrics.index) == (2, "improve", 3):
        raise Killed


def main() -> None:
    run = Path(__file__).parent / f"run-v{schema.VERSION}"
    if run.exists():
        raise SystemExit(f"{run} is there: a golden file is never made again")
    settings = tiny.settings()
    check = replace(settings.method.check, every=1)  # type: ignore[attr-defined]
    folders.create(run, replace(settings, method=replace(settings.method, check=check)))  # type: ignore[type-var]
    runner.CHECKPOINT_SHARE = 0  # every report is checkpointed
    try:
        runner.advance(run, kill, checkpoint_seconds=0.0)
    except Killed:
        (run / "lock").unlink()
    shutil.rmtree(run / "__pycache__", ignore_errors=True)


if __name__ == "__main__":
    main()
