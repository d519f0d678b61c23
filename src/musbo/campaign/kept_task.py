"""A task that is a TOML file, kept inside its campaign: a copy on another machine needs no other file.

The file counts where the user named it as long as it is there, so that a change of it is noticed. Each version that
was kept lies in a folder named by its digest, which the ledger has.
"""

from pathlib import Path

from musbo.campaign.places import TASK
from musbo.campaign.settings import task_in
from musbo.core.durable import sync_folder, write_whole
from musbo.core.errors import UserError
from musbo.core.inside import inside
from musbo.tasks.toml import ENDING, is_toml, toml_digest, toml_files


def files_to_keep(name: str) -> dict[str, bytes]:
    """What a campaign keeps of the task of this name: nothing where it is no TOML file."""
    return toml_files(name) if is_toml(name) else {}


def keep(folder: Path, digest: str | None, files: dict[str, bytes]) -> None:
    """Write the files of a task into a campaign; the same again changes nothing."""
    if not files or digest is None:
        return
    place = inside(folder, TASK, digest)
    place.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_whole(inside(place, name), data)
    for each in (place.parent, folder):
        sync_folder(each)


def task_place(folder: Path, name: str, digest: str | None) -> str:
    """The name of the task of a campaign, for this process: as it was given, or what is kept where that is gone."""
    named = task_in(folder, name)
    if digest is None or not is_toml(named) or toml_digest(named) is not None:
        return named
    place = inside(folder, TASK, digest)
    found = sorted(place.glob(f"*{ENDING}")) if place.is_dir() else []
    if not found:
        return named
    kept = str(inside(place, found[0].name))
    if toml_digest(kept) != digest:
        raise UserError(f"{place} is not what was kept of the task: restore it from a copy, or name it with --task.")
    return kept
