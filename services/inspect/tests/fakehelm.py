"""A helm on PATH that keeps releases in a file: its arguments are what the tests look at."""

import json
import os
import sys
from pathlib import Path
from typing import Any

SCRIPT = """\
#!{python}
import sys
sys.path.insert(0, {here!r})
import fakehelm
fakehelm.main({state!r}, sys.argv[1:])
"""


class FakeHelm:
    """Puts itself into a folder for PATH.

    Args:
        folder: of the program and its state.
        releases: name to chart of what is there.
    """

    def __init__(self, folder: Path, **releases: str) -> None:
        self._state = folder / "helm-state.json"
        self._write({"releases": releases, "calls": [], "complaint": "", "refusal": ""})
        program = folder / "helm"
        here = str(Path(__file__).parent)
        program.write_text(SCRIPT.format(python=sys.executable, here=here, state=str(self._state)))
        program.chmod(0o755)
        self.path = os.pathsep.join([str(folder), os.environ["PATH"]])

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Arguments and values of each call."""
        return list(json.loads(self._state.read_text())["calls"])

    @property
    def releases(self) -> dict[str, str]:
        """Name to chart."""
        return dict(json.loads(self._state.read_text())["releases"])

    @property
    def values(self) -> dict[str, Any]:
        """Of the release that was installed last."""
        return dict([call for call in self.calls if call["args"][0] == "install"][-1]["values"])

    def complain(self, words: str) -> None:
        """Fail from now on."""
        self._write(json.loads(self._state.read_text()) | {"complaint": words})

    def refuse(self, words: str, *, status: str = "failed") -> None:
        """Refuse installations from now on; a release of the name stays, with this status."""
        state = json.loads(self._state.read_text())
        self._write(state | {"refusal": words, "status": status})

    def _write(self, state: dict[str, Any]) -> None:
        self._state.write_text(json.dumps(state))


def main(path: str, args: list[str]) -> None:
    """One call of the program."""
    state = json.loads(Path(path).read_text())
    values = json.loads(sys.stdin.read() or "{}") if "-" in args else {}
    state["calls"].append({"args": args, "values": values})
    complaint = state["complaint"] or _act(state["releases"], args, state.get("status", "deployed"))
    if args[0] == "install":
        complaint = complaint or state["refusal"]
    Path(path).write_text(json.dumps(state))
    if complaint:
        sys.exit(f"Error: {complaint}")


def _act(releases: dict[str, str], args: list[str], status: str) -> str:
    """Do it; what went wrong, or nothing."""
    match args:
        case ["template", name, chart, *_]:
            print(f"---\nname: {name}\nchart: {Path(chart).name}")
        case ["get", "metadata", name, *_]:
            if name not in releases:
                return "release: not found"
            print(json.dumps({"name": name, "chart": releases[name]}))
        case ["status", name, *_]:
            print(json.dumps({"name": name, "info": {"status": status}}))
        case ["install", name, chart, *_]:
            releases[name] = Path(chart).name
        case ["uninstall", name, *_]:
            del releases[name]
        case _:
            return f"unknown command {args}"
    return ""
