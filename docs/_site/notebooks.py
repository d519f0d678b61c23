"""The tutorials as notebooks: `python docs/_site/notebooks.py` writes `examples/*.ipynb` from `docs/tutorials/*.md`.

A Python block becomes a cell of code, everything between two of them a cell of text. Outputs are left out.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RELATIVE = re.compile(r"\[([^\[\]]*)\]\((?![a-z]+:)[^)]*\)")  # a notebook travels alone: no links to other files


def notebook(text: str) -> str:
    cells = []
    for i, part in enumerate(BLOCK.split(text)):
        lines = (part if i % 2 else RELATIVE.sub(r"\1", part)).strip("\n").splitlines(keepends=True)
        if not lines:
            continue
        cell = {"cell_type": "code" if i % 2 else "markdown", "id": f"cell-{len(cells)}", "metadata": {}}
        outputs = {"execution_count": None, "outputs": []} if i % 2 else {}
        cells.append({**cell, **outputs, "source": lines})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def notebooks() -> dict[Path, str]:
    """What every notebook has to hold."""
    pages = sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "README")
    return {ROOT / "examples" / f"{page.stem}.ipynb": notebook(page.read_text()) for page in pages}


if __name__ == "__main__":
    for path, content in notebooks().items():
        path.write_text(content)
