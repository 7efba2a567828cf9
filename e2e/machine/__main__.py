"""`python -m machine`: make what the cases on a machine in QEMU need, with its progress."""

import sys

from host.errors import SetupError
from host.stopping import heed_interrupts
from machine import inputs


def main() -> int:
    """Exit status 1, with the reason, where this machine lacks something."""
    heed_interrupts()
    try:
        inputs.ensure()
    except SetupError as error:
        print(f"machine: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
