"""Where a release comes from: an in-toto statement with SLSA's provenance predicate.

It has no times, so that the same commit gives the same statement. Nobody signs it by itself: the
list of checksums names it, and that list is signed.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAME: Final = "provenance.intoto.json"
BUILD_TYPE: Final = "urn:gpushare:make-release:v1"
_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://slsa.dev/provenance/v1"
_BY_HAND: Final = "urn:gpushare:make-release"


def write(
    folder: Path, *, version: str, commit: str, epoch: int, pushed: Mapping[str, str]
) -> Path:
    """Write the statement about all files of a folder and about what was pushed; its path.

    Args:
        folder: of the artefacts.
        version: of the release.
        commit: that was checked out.
        epoch: the time that artefacts bear, in seconds.
        pushed: digests, such as ``sha256:...``, by name in the registry.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    subjects = [_subject(path.relative_to(folder).as_posix(), _digest(path)) for path in files]
    subjects += [_subject(name, digest.removeprefix("sha256:")) for name, digest in pushed.items()]
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"version": version},
        "internalParameters": {"SOURCE_DATE_EPOCH": epoch},
        "resolvedDependencies": [{"uri": _source(), "digest": {"gitCommit": commit}}],
    }
    statement = {
        "_type": _STATEMENT,
        "subject": subjects,
        "predicateType": _PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": {"builder": {"id": _builder()}}},
    }
    path = folder / NAME
    path.write_text(json.dumps(statement, indent=2) + "\n")
    return path


def _subject(name: str, digest: str) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": digest}}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _source() -> str:
    """The repository, as GitHub Actions names it; elsewhere nobody knows where it is served."""
    server, name = (os.environ.get(f"GITHUB_{word}", "") for word in ("SERVER_URL", "REPOSITORY"))
    return f"git+{server}/{name}" if server and name else "git+local"


def _builder() -> str:
    server, name = (os.environ.get(f"GITHUB_{word}", "") for word in ("SERVER_URL", "WORKFLOW_REF"))
    return f"{server}/{name}" if server and name else _BY_HAND
