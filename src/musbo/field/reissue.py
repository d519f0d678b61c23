"""A bundle that left before goes out again: the same policy and the same runtime, for another round.

Its recordings have to be told from those of its first time, so what the manifest says of the round is new, and with it
the id. A bundle of an older version goes out in the version of now, with its runtime.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musbo.core.errors import UserError
from musbo.core.text import parse_json
from musbo.field import runtime
from musbo.field.bundle import Contents, checksums, json_bytes
from musbo.field.limits_file import limits_text
from musbo.field.readme import readme


@dataclass(frozen=True)
class Reissue:
    """What is new about it."""

    round: int | None
    ledger: str
    explores: bool
    """Whether data are awaited."""
    limits: dict[str, Any]
    """Those that the user sets now; the others stay as they were."""


def reissued(archive: bytes, new: Reissue) -> tuple[Contents, str, int]:
    """The bundle, its task, and the deployment that its policy was trained after."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:  # it is ours: its hash is in the ledger
        files = {name: opened.read(name) for name in opened.namelist()}
    said = parse_json(files["manifest.json"], "manifest.json")
    # The bounds of training, and not narrower ones that were set later, are what new limits have to lie within.
    old, bounds = said["limits"], said["action"]
    usual = {**old, "low": bounds["low"], "high": bounds["high"]}
    try:
        limits = runtime.merge_limits(usual, {"low": old["low"], "high": old["high"], **new.limits}, "the limits")
    except runtime.FieldError as error:
        raise UserError(str(error)) from error
    if said.get("round", "unknown") == new.round and limits == old:  # it left for this very round: it is the same
        return Contents(files, bool(said["explore"]["default"]), ()), str(said["task"]), int(said["deployment"])
    explores = new.explores and said["explore"]["kind"] != "none"
    said |= {"round": new.round, "ledger": new.ledger, "limits": limits}
    said["explore"] |= {"default": explores}
    if said["version"] < runtime.VERSION:
        said |= {"version": runtime.VERSION, "history": 0}
        files["runtime.py"] = Path(runtime.__file__).read_bytes()
        del files[runtime.FORMER_LIMITS]
    files["manifest.json"], files[runtime.LIMITS] = json_bytes(said), limits_text(limits).encode()
    forms = tuple(name for name in runtime.OPTIONAL if name in files)
    why = said["explore"]["why"]
    notes = (f"the runtime will not explore: {why}",) if why else ()
    files["README.md"] = readme(said, forms, notes).encode()
    files[runtime.CHECKSUMS] = checksums(files)
    return Contents(files, explores, notes), str(said["task"]), int(said["deployment"])
