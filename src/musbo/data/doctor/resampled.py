"""What was left out when a log was brought to even steps."""

from collections.abc import Iterator

from musbo.data.finding import Finding
from musbo.data.logs import Logs


def resampled(logs: Logs) -> Iterator[Finding]:
    done = logs.resampled
    if done is None:
        return
    if done.bad:
        what = f"{done.bad:,} values are of bad quality, and were not used"
        yield Finding(
            "bad quality", "note", what, "nothing; episodes are split where a value is missing", rows=done.bad
        )
    if done.lost:
        columns = tuple(name for name, count in done.lost.items() if count)
        most = max(done.lost, key=lambda name: done.lost[name])
        share = done.lost[most] / max(1, done.steps)
        yield Finding(
            "no value",
            "warning" if share > 0.5 else "note",
            f"at {done.lost[most]:,} of {done.steps:,} even steps ({share:.0%}) there is no good value of {most}, and "
            "episodes were split there",
            "see whether hold is too short for it, or leave the column out",
            columns,
            rows=done.lost[most],
        )
    if done.conflicts:
        what = f"{done.conflicts:,} values have the time of another value of the same column, and differ from it"
        yield Finding(
            "conflicting rows", "warning", what, "the last one was used: remove the others", rows=done.conflicts
        )
    if done.repeated:
        what = f"{done.repeated:,} values are there twice, with the same time"
        yield Finding("duplicated steps", "note", what, "nothing; one of each was used", rows=done.repeated)
