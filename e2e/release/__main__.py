"""`python -m release --version=x.y.z [--registry HOST/PATH] [--key FILE]`: a release, in dist/.

Standard output has the path of the list of checksums, progress goes to stderr. Exit status 1 with
one sentence when something is refused or fails.
"""

import argparse
import sys
from pathlib import Path

from cluster import engine
from host.errors import SetupError
from images import build
from release import publish, signature, version
from release.imagefiles import SERVICES

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Make one release; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        release = _release(options)
        engine.ensure()
        built = build.ensure()
        print(publish.publish(release, [getattr(built, name) for name in SERVICES]))
    except SetupError as error:
        print(f"release: error: {error}", file=sys.stderr)
        return 1
    return 0


def _release(options: argparse.Namespace) -> publish.Release:
    """What the arguments name; SetupError before anything was built."""
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--version", required=True, help="semantic version, such as 0.2.0")
    parser.add_argument("--registry", default="", help="registry to push to; default: none")
    parser.add_argument("--downloads", default="", help="URL of cli/, for krew's manifest")
    parser.add_argument("--key", type=_file, help="private key that signs; default: no signature")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    return parser


def _file(text: str) -> Path | None:
    return Path(text) if text else None


if __name__ == "__main__":
    sys.exit(main())
