"""Writes the golden bundle and recording of format 1: `python -m tests.golden.make_bundle`, from the repository's root.

They are never written again: newer versions have to read them.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from musbo.field.bundle import zip_bytes
from musbo.field.runtime import Runtime
from tests.field import shipped

HERE = Path(__file__).parent


def main() -> None:
    archive = HERE / "bundle-v1.zip"
    archive.write_bytes(zip_bytes(shipped.made(*shipped.actors()["seeking"]).files))
    obs = shipped.observations(12, seed=42)
    with tempfile.TemporaryDirectory() as place:
        recording = Path(place) / "r.musbo"
        now = iter(np.arange(1000.0, 2000.0, 0.5))
        with Runtime(
            archive, fallback=[0, 1, 0], record=recording, machine="mill-2", seed=0, clock=lambda: float(next(now))
        ) as controller:
            acts = [controller.act(row, reward=None if i == 0 else i) for i, row in enumerate(obs[:7])]
            controller.end(obs[7], terminated=True, reward=7)
            for i, row in enumerate(obs[8:11]):
                acts.append(controller.act(row if i != 1 else row * 1e6, reward=None if i == 0 else 8 + i))
            controller.end(obs[11], reward=11)
        (HERE / "recording-v1.musbo").write_bytes(recording.read_bytes())
    said = {"bundle": controller.bundle.id, "acts": [np.asarray(act).tolist() for act in acts]}
    (HERE / "recording-v1.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
