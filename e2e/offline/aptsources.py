"""Which Debian archive this machine trusts, read from its own apt configuration.

Other suites are fetched from the same address, so no host name is written in this project. Pure
parsing plus one reader of /etc; options that do not matter here are ignored.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from host.errors import SetupError

_ONE_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)$"
)


@dataclass(frozen=True)
class AptSource:
    """One archive: its address, a suite and the components named there."""

    uri: str
    suite: str
    components: tuple[str, ...]


def parse_one_line(text: str) -> Iterator[AptSource]:
    """The binary-package sources of a `sources.list` text."""
    for line in text.splitlines():
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match:
            yield AptSource(match["uri"], match["suite"], tuple(match["components"].split()))


def parse_deb822(text: str) -> Iterator[AptSource]:
    """The binary-package sources of a deb822 `.sources` text; disabled stanzas are left out."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled") == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield AptSource(uri, suite, tuple(fields.get("components", "").split()))


def read(folder: Path = Path("/etc/apt")) -> list[AptSource]:
    """Every source the machine's apt is configured with."""
    lists = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    found = [source for path in lists if path.exists() for source in parse_one_line(_text(path))]
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        found.extend(parse_deb822(_text(path)))
    return [replace(source, uri=_address(source.uri)) for source in found]


def debian_archive(sources: Iterable[AptSource], *, codename: str) -> str:
    """The address that serves this machine's own release `codename`, hence the other suites too.

    Raises SetupError where there is none, as on systems that are not Debian.
    """
    named = list(sources)
    found = [s.uri for s in named if s.suite == codename and "main" in s.components]
    found = [uri for uri in found if uri.startswith("http") and "ubuntu" not in uri]
    if not found:
        raise SetupError(
            f"apt on this machine names no Debian archive (suite {codename or 'unknown'}, "
            "component main), so nothing can be fetched from Debian's packages"
        )
    # Other vendors use the same suite names; only Debian itself has the suite of updates.
    updated = {source.uri for source in named if source.suite == f"{codename}-updates"}
    return min(found, key=lambda uri: uri not in updated).rstrip("/")


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    """The release name of this system, such as `bookworm`; "" where it has none."""
    match = re.search(r'^VERSION_CODENAME="?([\w-]+)', _text(os_release), re.MULTILINE)
    return match[1] if match else ""


def _address(uri: str) -> str:
    """The first mirror of a `mirror+file:` list, as Debian's cloud images have it; else `uri`."""
    scheme, _, path = uri.partition(":")
    if scheme != "mirror+file":
        return uri
    lines = [line.partition("#")[0].split() for line in _text(Path(path)).splitlines()]
    return next((words[0] for words in lines if words), uri)


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
