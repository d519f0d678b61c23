"""Which policy ran: what made a batch, the training that it came from, and so the incumbent."""

from musbo.campaign.events import Collected, Exported, Trained
from musbo.campaign.status import Status


def that_ran(batch: Collected, left: list[Exported]) -> Exported | None:
    """What made a batch, of all that left for its round; None where several did or nobody knows."""
    found = {export.bundle: export for export in left if export.bundle in batch.bundles}
    found = found or ({left[-1].bundle: left[-1]} if left and not batch.bundles else {})
    return next(iter(found.values())) if len(found) == 1 else None


def trained_as(export: Exported, now: Status) -> Trained | None:
    """The training that the policy of a bundle came from."""
    made = now.candidates.get(export.trained, ())
    return next((each for each in reversed(made) if export.policy in (each.policy, "")), None)


def collector(d: int, now: Status) -> Exported | None:
    """The bundle that collected the batch of round `d`."""
    return that_ran(now.collected[d], list(now.exports.get(d, ()))) if d in now.collected else None


def newest_collector(now: Status) -> Exported | None:
    """The bundle that collected the newest batch: the incumbent, or the site's own controller."""
    return collector(max(now.collected, default=0), now)
