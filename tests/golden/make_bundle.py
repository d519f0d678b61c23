"""Writes the golden bundle of format 2: `python -m tests.golden.make_bundle`, from the repository's root.

It is never written again: newer versions have to read it. Those of format 1, and the recording, were written by the
version of musbo that had them; the format of a recording is still that one.
"""

import json
from pathlib import Path

import numpy as np

from musbo.field.bundle import zip_bytes
from musbo.field.runtime import Runtime
from tests.field import shipped
from tests.field.test_history import made

HERE = Path(__file__).parent


def main() -> None:
    archive = HERE / "bundle-v2.zip"
    archive.write_bytes(zip_bytes(made()))
    with Runtime(archive, fallback=[0, 1, 0], explore=False) as controller:
        acts = [controller.act(row) for row in shipped.observations(6, seed=42)]
    said = {"bundle": controller.bundle.id, "acts": [np.asarray(act).tolist() for act in acts]}
    (HERE / "bundle-v2.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
