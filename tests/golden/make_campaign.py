"""Makes the golden campaign in the field: `python -m tests.golden.make_campaign`. Its round 2 is in the field."""

from pathlib import Path

from tests.stories.test_rounds import begin, deploy


def main() -> None:
    place = Path(__file__).parent / "campaign-v1"
    if place.exists():
        raise SystemExit(f"{place} is there: a golden file is never made again")
    campaign = begin(place)
    campaign.train()
    bundle = campaign.export(out=place.parent / "gone")
    campaign.withdraw(2)
    campaign.export(out=place.parent / "gone")
    campaign.amend(budget=4, reason="one more")
    deploy(bundle.folder, place / "monday.musbo", 1)
    (place / "lock").unlink()


if __name__ == "__main__":
    main()
