"""Keep what a study has finished, small enough for the repository: of every run its ledger, without what is superseded.

    python benchmarks/keeping.py ../comparison/halfcheetah benchmarks/comparison/records/halfcheetah

The records are a study themselves: `musbo report` reads them, and `musbo study --out COPY` on a copy of them runs only
what is missing. What is not kept: metrics of the training, batches and networks.
"""

import argparse
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from musbo.campaign.places import LEDGER
from musbo.cluster.progress import look
from musbo.cluster.study import RECORD, cells, merge, recorded
from musbo.core import serial
from musbo.core.durable import write_whole
from musbo.core.errors import UserError


def keep(ledger: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_suffix(".new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(ledger)) as source, closing(sqlite3.connect(new)) as copy:
        source.backup(copy)
        copy.execute("DELETE FROM metrics")
        # The batches that came of shards stand for them. A ledger lets no event go, so its rules rest meanwhile.
        rules = copy.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rules:
            copy.execute(f"DROP TRIGGER {name}")
        copy.execute("DELETE FROM events WHERE kind = 'shard'")
        for _, rule in rules:
            copy.execute(rule)
        copy.commit()
        copy.execute("VACUUM")
    new.replace(target)


def keep_finished(study: Path, records: Path) -> None:
    """Of every run of the study that is done; those of earlier times stay."""
    asked = recorded(study)
    if asked is None:
        raise UserError(f"{study} holds no study.")
    records.mkdir(parents=True, exist_ok=True)
    before = recorded(records)  # of a study with other seeds, say: what is kept stays part of it
    whole = merge(before, asked) if before else asked
    write_whole(records / RECORD, json.dumps(serial.to_json(whole), indent=1).encode())
    for cell in cells(asked):
        if look(study, cell).state == "done":
            keep(study / cell.folder / LEDGER, records / cell.folder / LEDGER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("records", type=Path)
    chosen = parser.parse_args()
    keep_finished(chosen.study, chosen.records)


if __name__ == "__main__":
    main()
