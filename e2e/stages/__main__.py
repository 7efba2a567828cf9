"""Run a command as a stage of `make test`, or print the table of the stages that ran.

    python e2e/stages/__main__.py run FILE NAME COMMAND...    run it, note in FILE how long it took
    python e2e/stages/__main__.py table FILE                  print what FILE holds

The exit status of `run` is the command's. Stages may run beside each other, so that their times add
up to more than the whole.
"""

import subprocess
import sys
import time
from pathlib import Path

PASSED, FAILED = "passed", "failed"


def main(arguments: list[str]) -> int:
    """Run one of the two sub commands; the exit status."""
    match arguments:
        case ["run", file, name, *command] if command:
            return run_stage(Path(file), name, command)
        case ["table", file]:
            print(table(Path(file)))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


def run_stage(file: Path, name: str, command: list[str]) -> int:
    """Run a command and add a line to the file: name, seconds, outcome; the command's status."""
    begin = time.monotonic()
    # Open files are left to it: make hands its job slots down by them.
    status = subprocess.run(command, check=False, close_fds=False).returncode
    seconds = time.monotonic() - begin
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as sink:
        sink.write(f"{name}\t{seconds:.0f}\t{FAILED if status else PASSED}\n")
    return status


def table(file: Path) -> str:
    """The stages in the order in which they ended."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [line.split("\t") for line in lines]
    width = max([len("STAGE"), *(len(name) for name, *_ in rows)])
    shown = [f"{'STAGE':{width}}  {'TIME':>8}  OUTCOME"]
    shown += [f"{name:{width}}  {_clock(int(took)):>8}  {outcome}" for name, took, outcome in rows]
    return "\n".join(shown)


def _clock(seconds: int) -> str:
    return f"{seconds // 60}m {seconds % 60:02}s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
