"""Programs that a test starts, and their ends."""

import asyncio
from contextlib import suppress


def limited(files: int, *command: str) -> tuple[str, ...]:
    """The command that runs ``command`` with a limit of open files.

    A shell sets the limit: Python code between fork and exec is not safe beside other threads.
    """
    return ("sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command)


async def kill_and_reap(process: asyncio.subprocess.Process) -> None:
    """Kill a program, reap it and read its pipes to their ends.

    Its exit alone does not close the pipes: a loop that ends before it has seen their ends leaves
    open files, which the garbage collector reports in the middle of another test.
    """
    with suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.communicate()
