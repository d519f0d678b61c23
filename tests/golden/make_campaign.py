"""Makes the golden campaigns in the field: `python -m tests.golden.make_campaign`. Their round 2 is in the field.

The first begins with logs; the second with the controller of the site, and has candidates, a verdict and a policy that
went back.
"""

from collections.abc import Callable
from pathlib import Path

from tests.stories.test_rounds import begin, deploy, imitating

HERE = Path(__file__).parent


def first(place: Path) -> None:
    campaign = begin(place)
    campaign.train()
    bundle = campaign.export(out=place.parent / "gone")
    campaign.withdraw(2)
    campaign.export(out=place.parent / "gone")
    campaign.amend(budget=4, reason="one more")
    deploy(bundle.folder, place / "monday.musbo", 1)


def second(place: Path) -> None:
    campaign = imitating(place)
    began = campaign.export(out=place.parent / "began", limits={"noise": 0.3})
    campaign.ingest([deploy(began.folder, place / "sunday.musbo", 1)], accept=True)
    campaign.train()
    campaign.judge(False, "too bold")
    campaign.train(again=True)
    campaign.judge(True, "calm")
    bundle = campaign.export(out=place.parent / "gone")
    campaign.export(out=place.parent / "back", bundle=began.id)
    deploy(bundle.folder, place / "monday.musbo", 2)


EVERY: dict[str, Callable[[Path], None]] = {"campaign-v1": first, "campaign-v2": second}


def main() -> None:
    for name, make in EVERY.items():
        place = HERE / name
        if not place.exists():  # a golden file is never made again
            make(place)
            (place / "lock").unlink()


if __name__ == "__main__":
    main()
