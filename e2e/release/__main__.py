"""`python -m release --version=x.y.z [--registry HOST/PATH] [--key FILE|--identity]`: a release.

Standard output has the path of the list of checksums, progress goes to stderr. Exit status 1 with
one sentence when something is refused or fails.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import offline
from cluster import engine
from host import architecture
from host.errors import SetupError
from images import build
from release import publish, signature, version
from release.cosign import Cosign
from release.imagefiles import SERVICES

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Make one release; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        targets = [architecture.named(name) for name in options.architectures.split() or [""]]
        release = _signing(_release(options), options)
        engine.ensure()
        built = [build.ensure(target=target) for target in targets]
        images = [getattr(each, name) for each in built for name in SERVICES]
        print(publish.publish(release, images))
    except SetupError as error:
        print(f"release: error: {error}", file=sys.stderr)
        return 1
    return 0


def _release(options: argparse.Namespace) -> publish.Release:
    """What the arguments name; SetupError before anything was built."""
    if options.identity and options.key:
        raise SetupError("KEY and IDENTITY exclude each other: one of them signs")
    key = signature.read_key(options.key) if options.key else None
    return publish.Release(
        version=version.semantic_version(options.version),
        registry=version.registry_path(options.registry) if options.registry else "",
        downloads=version.downloads_url(options.downloads) if options.downloads else "",
        commit=version.clean_commit(options.root),
        root=options.root,
        into=options.root / "dist",
        key=key,
    )


def _signing(release: publish.Release, options: argparse.Namespace) -> publish.Release:
    """With cosign where an identity signs, or a key what is pushed; nothing else was built yet."""
    if options.identity or (release.key is not None and release.registry):
        return dataclasses.replace(release, cosign=Cosign(offline.ensure_cosign(), options.key))
    return release


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--version", required=True, help="semantic version, such as 0.2.0")
    parser.add_argument("--registry", default="", help="registry to push to; default: none")
    parser.add_argument("--downloads", default="", help="URL of cli/, for krew's manifest")
    parser.add_argument("--key", type=_file, help="private key that signs; default: no signature")
    parser.add_argument(
        "--identity",
        type=_yes,
        default=False,
        metavar="1",
        help="1: sign with the identity of this workflow, by cosign; not with --key",
    )
    parser.add_argument(
        "--architectures",
        default="",
        help="of the images, such as 'amd64 arm64'; default: this machine's",
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    return parser


def _file(text: str) -> Path | None:
    return Path(text) if text else None


def _yes(text: str) -> bool:
    if text not in {"", "1"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1")
    return text == "1"


if __name__ == "__main__":
    sys.exit(main())
