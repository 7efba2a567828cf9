"""Which Debian archive this machine trusts, read from its own apt configuration.

Other suites are fetched from the same address, so no host name is written in this project. Pure
parsing plus one reader of /etc; options that do not matter here are ignored.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

_ONE_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)$"
)


@dataclass(frozen=True)
class Source:
    """One archive: its address, a suite and the components named there."""

    uri: str
    suite: str
    components: tuple[str, ...]


def parse_one_line(text: str) -> Iterator[Source]:
    """The binary-package sources of a `sources.list` text."""
    for line in text.splitlines():
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match:
            yield Source(match["uri"], match["suite"], tuple(match["components"].split()))


def parse_deb822(text: str) -> Iterator[Source]:
    """The binary-package sources of a deb822 `.sources` text; disabled stanzas are left out."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled") == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Source(uri, suite, tuple(fields.get("components", "").split()))


def read(folder: Path = Path("/etc/apt")) -> list[Source]:
    """Every source the machine's apt is configured with."""
    lists = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    found = [source for path in lists if path.exists() for source in parse_one_line(_text(path))]
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        found.extend(parse_deb822(_text(path)))
    return found


def debian_archive(sources: Iterable[Source], *, codename: str) -> str:
    """The address that serves this machine's own release `codename`, hence the other suites too.

    Raises ClusterError where there is none, as on systems that are not Debian.
    """
    for source in sources:
        if source.suite == codename and "main" in source.components and "ubuntu" not in source.uri:
            return source.uri.rstrip("/")
    raise ClusterError(
        "the node image can be built from packages only on Debian (no apt source names the suite "
        f"{codename or 'of this system'} with component main): let docker pull kindest/node, or "
        "load such an image with `docker load`"
    )


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    """The release name of this system, such as `bookworm`; "" where it has none."""
    match = re.search(r'^VERSION_CODENAME="?([\w-]+)', _text(os_release), re.MULTILINE)
    return match[1] if match else ""


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
