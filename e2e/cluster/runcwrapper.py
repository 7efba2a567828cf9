#!/usr/bin/python3 -IS
"""An OCI runtime that is runc without CAP_SYS_RESOURCE, for hosts that were not given it.

Docker requests every capability when a container is privileged, and runc then fails with
"unable to apply caps". This file is copied next to the daemon and named there as its runtime: it
edits the container's description and becomes runc. It stands alone and imports nothing of ours.
It does not check that the capability is missing; whoever installs it does.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

_RUNC = "runc"
_MISSING = "CAP_SYS_RESOURCE"


def option(arguments: list[str], names: tuple[str, ...]) -> str | None:
    """The value of an option given as `--name value` or `--name=value`, None when absent."""
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(arguments[position + 1 :]), None)
    return None


def description(arguments: list[str]) -> Path | None:
    """Path of the JSON file that describes the process runc is about to make, None if none."""
    if "exec" in arguments:
        process = option(arguments[arguments.index("exec") :], ("--process", "-p"))
        return Path(process) if process else None
    for command in ("create", "run"):
        if command in arguments:
            bundle = option(arguments[arguments.index(command) :], ("--bundle", "-b"))
            return Path(bundle or ".") / "config.json"
    return None


def without_capability(spec: dict[str, Any]) -> dict[str, Any]:
    """A container (or, for exec, process) description that requests what this host can give.

    Lowering an OOM score below 0 needs the same capability, so a negative score becomes 0.
    """
    process = spec.get("process", spec)
    for names in (process.get("capabilities") or {}).values():
        if _MISSING in names:
            names.remove(_MISSING)
    if (process.get("oomScoreAdj") or 0) < 0:
        process["oomScoreAdj"] = 0
    return spec


def main(arguments: list[str]) -> None:
    """Edit the description in place, then become runc with the same arguments."""
    path = description(arguments)
    if path is not None:
        spec = without_capability(json.loads(path.read_text()))
        path.write_text(json.dumps(spec))
    os.execvp(_RUNC, [_RUNC, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
