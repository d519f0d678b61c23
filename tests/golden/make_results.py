"""Makes `results-v1/`, what a finished run leaves for other programs: `python -m tests.golden.make_results`.

musbo does not read these files, but programs of users do: what was there stays there, as `tests/campaign/test_api.py`
checks.
"""

import shutil
import tempfile
from pathlib import Path

import musbo
from tests.stories import tiny

PLACE = Path(__file__).parent / "results-v1"


def main() -> None:
    if PLACE.exists():
        raise SystemExit(f"{PLACE} is there: a golden file is never made again")
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        musbo.run("pointmass", budget=1, batch_size=100, episodes=2, method=tiny.method(), out=run)
        PLACE.mkdir()
        for name in ("summary.json", "metrics.jsonl", "metrics.parquet"):
            shutil.copy(run / name, PLACE)


if __name__ == "__main__":
    main()
