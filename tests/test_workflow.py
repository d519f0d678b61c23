"""The workflow for forks: it can be read, and runs what a change has to pass on the Pythons that the package names."""

import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="comes with Ray, and is no dependency of its own")

ROOT = Path(__file__).parents[1]


def test_the_workflow_runs_the_check():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run PYTHON=python"]
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [line.rpartition(" ")[2] for line in about if line.startswith("Programming Language :: Python :: 3.")]
    assert job["strategy"]["matrix"]["python"] == named  # a bare 3.10 would be the number 3.1
