"""`python -m release.cli [--version x.y.z]`: the files of the command alone, in dist/cli."""

import argparse
import os
import shutil
import sys

from gpucore import VERSION
from host.errors import SetupError
from release import commandfiles, version
from release.__main__ import ROOT


def main() -> int:
    """Build the files of the commit that is checked out, with its changes; the exit status."""
    parser = argparse.ArgumentParser(prog="release.cli", description=__doc__)
    parser.add_argument("--version", default="", help="semantic version; default: of the code")
    parser.add_argument("--downloads", default="", help="URL of the folder, for krew's manifest")
    options = parser.parse_args()
    into = ROOT / "dist" / "cli"
    try:
        wanted = version.semantic_version(options.version or VERSION)
        downloads = version.downloads_url(options.downloads) if options.downloads else ""
        epoch = version.head(ROOT).epoch
        os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        commandfiles.write(ROOT, wanted, epoch, into, downloads=downloads)
    except SetupError as error:
        print(f"release: error: {error}", file=sys.stderr)
        return 1
    print(into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
