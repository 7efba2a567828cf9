"""Everything of a release with which a person installs the `gpushare` command."""

from pathlib import Path

from host import architecture
from host.progress import step
from release import commandwheel, krew, singlefile


def write(root: Path, version: str, epoch: int, into: Path, *, downloads: str = "") -> None:
    """Write the wheel, the single files and krew's archives; the time is SOURCE_DATE_EPOCH.

    Args:
        root: the repository.
        version: of the release.
        epoch: the same time, for the archives.
        into: an existing folder.
        downloads: URL under which the folder is published; with it krew's manifest is written.
    """
    with step("build the wheel of the command"):
        wheel = commandwheel.write(root, version, into)
    archives = {}
    for target in architecture.ALL:
        with step(f"build the command as one file for {target.name}"):
            program = singlefile.write(wheel, into / "requirements.txt", into, target)
            archives[target.name] = krew.archive(program, root, epoch)
    if downloads:
        krew.write(archives, version, downloads, into)
