"""Makes the golden verdict of the gate: `python -m tests.golden.make_judged`."""

import json
from dataclasses import replace
from pathlib import Path

from musbo.campaign import events
from tests.campaign.test_foreseen import said

HERE = Path(__file__).parent


def main() -> None:
    place = HERE / "judged-v1.json"
    if not place.exists():  # a golden file is never made again
        made = replace(said("policy", 3.0, override="an expert stands by"), go=True)
        place.write_text(json.dumps(json.loads(events.to_text(made)), indent=1) + "\n")


if __name__ == "__main__":
    main()
