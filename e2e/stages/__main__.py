"""Run the stages of `make test`.

    python -m stages test [--keep-going]     what a change must pass
    python -m stages all [--keep-going]      the cases on demand too, which take long

The first stage that fails ends the run; the last lines name it, its reason, and what did not run.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from host.errors import SetupError
from host.solerun import sole_run
from host.stopping import heed_interrupts
from stages import summary
from stages.plan import plan
from stages.runner import Run, not_run

LOGS = Path("build/stages")
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 where every stage passed."""
    parser = argparse.ArgumentParser(
        prog="stages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", choices=("test", "all"))
    parser.add_argument("--cluster", default="gpushare-e2e", help="name of the cases' cluster")
    parser.add_argument("--keep-going", action="store_true", help="run all, whatever fails")
    options = parser.parse_args(arguments)
    heed_interrupts()
    _end_in_order()
    try:
        # Another run of the cases would remove the clusters of this one.
        with sole_run("cases") as lock:
            return _run(options, lock)
    except SetupError as error:
        print(f"stages: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stages: interrupted before the first stage", file=sys.stderr)
        return INTERRUPTED


def _end_in_order() -> None:
    """Let SIGTERM and a lost terminal end the run as Ctrl-C does; ``nohup`` keeps its effect."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def _run(options: argparse.Namespace, lock: tuple[int, ...]) -> int:
    os.environ["GPUSHARE_FAIL_FAST"] = "" if options.keep_going else "1"
    phases = plan(
        cluster=options.cluster,
        ondemand=options.plan == "all",
        arguments=os.environ.get("ARGS", ""),
    )
    run = Run(LOGS, keep_going=options.keep_going, lock=lock)
    status = 0
    try:
        run.run(phases)
    except KeyboardInterrupt:
        status = INTERRUPTED
    print(f"\n{summary.table(run.results, not_run(phases, run.results))}")
    if run.failures:
        print(f"\n{summary.reasons(run.failures, LOGS)}")
    return status or int(bool(run.failures))


if __name__ == "__main__":
    sys.exit(main())
