"""Makes the golden study of the format that this version writes: `python -m tests.golden.make_study`.

`study.toml` was written by hand; `study-v2.json` is the record of it, and `study-v1.json` that of musbo before commit
fdff759, which wrote no digest. `tests/cluster/test_study.py` has what they say.
"""

from pathlib import Path

from musbo.cluster import study

HERE = Path(__file__).parent


def main() -> None:
    record = HERE / f"study-v{study.VERSION}.json"
    if record.exists():
        raise SystemExit(f"{record} is there: a golden file is never made again")
    study.record(HERE / "new", study.load(str(HERE / "study.toml")))
    (HERE / "new" / study.RECORD).replace(record)
    (HERE / "new").rmdir()


if __name__ == "__main__":
    main()
