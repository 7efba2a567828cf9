"""The bill of materials of an image: what is really in it, as CycloneDX JSON.

The image is read, not the lock: Debian's packages from dpkg's list, Python's from the metadata of
what is installed. Equal images give equal documents: the serial number follows from the image's
tag and the time is that of its files.
"""

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from host.commands import run_command

ANSWER_SECONDS: Final = 120
_SPACE: Final = uuid.UUID("6d1f8f5e-0c8b-5a52-9a1e-3f0c5a0f7b11")
_PROBE: Final = """
import json, platform
from importlib import metadata
from pathlib import Path

def fields(stanza):
    lines = [line for line in stanza.splitlines() if line and not line[0].isspace()]
    return dict(line.split(": ", 1) for line in lines if ": " in line)

status = Path("/var/lib/dpkg/status")
stanzas = status.read_text().split("\\n\\n") if status.exists() else []
release = platform.freedesktop_os_release()
print(json.dumps({
    "python": platform.python_version(),
    "os": [release["ID"], release.get("VERSION_ID", "")],
    "deb": [[f["Package"], f["Version"], f["Architecture"]]
            for f in map(fields, stanzas) if f.get("Status", "").endswith(" installed")],
    "pypi": [[d.metadata["Name"], d.version] for d in metadata.distributions()],
}))
"""


def write(image: str, epoch: int, folder: Path) -> Path:
    """Ask an image of the engine what it is made of, and write the document; its path.

    Args:
        image: repository and tag.
        epoch: the time that the document bears, in seconds.
        folder: where it is written.
    """
    options = ["--rm", "--network=none", "--read-only", "--entrypoint", "python3"]
    answer = run_command(["docker", "run", *options, image, "-c", _PROBE], timeout_s=ANSWER_SECONDS)
    name = image.rpartition("/")[2].partition(":")[0]
    path = folder / f"{name}.cdx.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(document(image, json.loads(answer), epoch))
    return path


def document(image: str, found: Mapping[str, Any], epoch: int) -> str:
    """The document of an image that gave this answer."""
    name, _, version = image.partition(":")
    whole = Component(type=ComponentType.CONTAINER, name=name, version=version, bom_ref=image)
    parts = [*_debian(found), *_python(found)]
    bom = Bom(components=parts, serial_number=uuid.uuid5(_SPACE, image))
    bom.metadata.timestamp = dt.datetime.fromtimestamp(epoch, tz=dt.UTC)
    bom.metadata.component = whole
    bom.register_dependency(whole, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _debian(found: Mapping[str, Any]) -> list[Component]:
    system, release = found["os"]
    about = {"distro": f"{system}-{release}"}
    return [
        _library(PackageURL("deb", system, name, version, about | {"arch": arch}))
        for name, version, arch in found["deb"]
    ]


def _python(found: Mapping[str, Any]) -> list[Component]:
    """The packages, and the interpreter, which the official base image has from no package."""
    packages = [_library(PackageURL("pypi", None, *each)) for each in found["pypi"]]
    interpreter = PackageURL("generic", None, "python", found["python"])
    return [*packages, _library(interpreter)]


def _library(purl: PackageURL) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=purl.name,
        version=purl.version,
        purl=purl,
        bom_ref=purl.to_string(),
    )
