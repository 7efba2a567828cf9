"""`python -m offline`: build one part of a test cluster without an image registry.

Standard output holds only the value requested; everything else goes to stderr. Exit status 1 with
one sentence when something is missing. No registry is tried: `python -m cluster` does that first.
"""

import argparse
import sys
from collections.abc import Callable, Mapping

import offline
from host.errors import SetupError

_PARTS: Mapping[str, tuple[str, Callable[[], object]]] = {
    "programs": (
        "Kubernetes, etcd, containerd and CoreDNS; prints the folder",
        lambda: offline.ensure_programs(offline.chosen_version()),
    ),
    "node-image": (
        "the kind node image; prints its name",
        lambda: offline.ensure_node_image(offline.chosen_version()),
    ),
    "base-image": ("Debian with Python; prints the image's name", offline.ensure_base_image),
    "kind": ("the kind program; prints its path", offline.ensure_kind),
    "prometheus": (
        "Prometheus and promtool; prints the folder",
        lambda: offline.ensure_prometheus().prometheus.parent,
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Build the part that the arguments name; the exit status."""
    parser = argparse.ArgumentParser(prog="offline", description=__doc__)
    commands = parser.add_subparsers(dest="part", required=True)
    for name, (text, _) in _PARTS.items():
        commands.add_parser(name, help=text)
    options = parser.parse_args(arguments)
    try:
        print(_PARTS[options.part][1]())
    except SetupError as error:
        print(f"offline: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
