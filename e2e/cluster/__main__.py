"""`python -m cluster`: each part of a test cluster on its own, or the whole.

Standard output holds only the value requested, one per line; everything else goes to stderr. Exit
status 1 with one sentence when something is missing.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import offline
from cluster import baseimage, engine, kindconfig, lifecycle, nodeimage, tools
from host import cachedir
from host.ci import in_ci
from host.errors import SetupError
from host.progress import say

_WORKERS = 2


def main(arguments: list[str] | None = None) -> int:
    """Run one sub command; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        for line in _COMMANDS[options.command](options):
            print(line)
    except SetupError as error:
        print(f"cluster: error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("engine", help="a Docker engine that answers")
    commands.add_parser("tools", help="kind and kubectl; prints their paths")
    commands.add_parser("node-image", help="the kind node image; prints its name")
    commands.add_parser("base-image", help="the base of service images; prints its name")
    commands.add_parser("prepare", help="all of these, for the cases; only CI=true demands them")
    up = commands.add_parser("up", help="a cluster; prints the path of its kubeconfig")
    up.add_argument("--name", required=True)
    up.add_argument("--config", type=Path, help="kind's configuration (default: two workers)")
    up.add_argument("--kubeconfig", type=Path, help="where to write it (default: in the cache)")
    down = commands.add_parser("down", help="remove a cluster")
    down.add_argument("--name", required=True)
    return parser


def _engine(_: argparse.Namespace) -> list[str]:
    engine.ensure()
    return []


def _tools(_: argparse.Namespace) -> list[str]:
    engine.ensure()
    programs = tools.ensure(nodeimage.ensure())
    return [str(programs.kind), str(programs.kubectl)]


def _node_image(_: argparse.Namespace) -> list[str]:
    engine.ensure()
    return [nodeimage.ensure().name]


def _base_image(_: argparse.Namespace) -> list[str]:
    engine.ensure()
    return [baseimage.ensure()]


def _prepare(_: argparse.Namespace) -> list[str]:
    """What takes minutes the first time, with its progress; the cases themselves say what lacks."""
    try:
        offline.ensure_programs(offline.chosen_version())
        engine.ensure()
        image = nodeimage.ensure()
        say(image.described())
        tools.ensure(image)
        baseimage.ensure()
        offline.ensure_prometheus()
        offline.ensure_mps_control()
        offline.ensure_nvml()
    except SetupError as reason:
        if in_ci():
            raise
        say(f"going on without: {reason}")
    for name in cachedir.prune(now=time.time()):
        say(f"{name} was not used for two weeks: removed from the cache")
    return []


def _up(options: argparse.Namespace) -> list[str]:
    kubeconfig = options.kubeconfig or cachedir.root() / f"{options.name}.kubeconfig"
    lifecycle.up(options.name, config=options.config or _default_config(), kubeconfig=kubeconfig)
    return [str(kubeconfig)]


def _default_config() -> Path:
    engine.ensure()
    text = kindconfig.render(nodeimage.ensure(), workers=[kindconfig.NodeConfig()] * _WORKERS)
    path = cachedir.root() / "kind-default.json"
    path.write_text(text)
    return path


def _down(options: argparse.Namespace) -> list[str]:
    lifecycle.down(options.name)
    return []


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], list[str]]] = {
    "engine": _engine,
    "tools": _tools,
    "node-image": _node_image,
    "base-image": _base_image,
    "prepare": _prepare,
    "up": _up,
    "down": _down,
}

if __name__ == "__main__":
    sys.exit(main())
