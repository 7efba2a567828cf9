"""SHA256SUMS, as `sha256sum --check` reads it."""

import hashlib
from pathlib import Path
from typing import Final

NAME: Final = "SHA256SUMS"


def write(folder: Path) -> Path:
    """Write the digests of all files below a folder, sorted by path; the path of the list."""
    files = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    lines = [f"{_digest(folder / name)}  {name}\n" for name in files if name != NAME]
    (folder / NAME).write_text("".join(lines))
    return folder / NAME


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
