"""Tables that a benchmark writes into its README."""

from collections.abc import Sequence
from pathlib import Path


def between(readme: Path, name: str, lines: Sequence[str]) -> None:
    """Put `lines` between the marks `<!-- name -->` and `<!-- end of name -->`; all else stays."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = readme.read_text().partition(first)
    readme.write_text(f"{before}{first}\n" + "\n".join(lines) + f"\n{last}{rest.partition(last)[2]}")
