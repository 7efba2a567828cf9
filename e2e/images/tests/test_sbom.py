"""The bill of materials: what an image reports of itself, in the words of CycloneDX."""

import json
from typing import Any

from images import sbom

EPOCH = 1_767_225_600
FOUND: dict[str, Any] = {
    "python": "3.11.2",
    "os": ["debian", "12"],
    "deb": [["libssl3", "3.0.17-1~deb12u2", "amd64"], ["dash", "0.5.12-2", "amd64"]],
    "pypi": [["msgspec", "0.22.0"], ["gpucore", "0.1.0"]],
}


def _document(image: str = "gpushare/extender:abc") -> dict[str, Any]:
    read: dict[str, Any] = json.loads(sbom.document(image, FOUND, EPOCH))
    return read


def test_every_part_has_its_package_url() -> None:
    """Debian's packages, Python's and the interpreter are named as scanners look them up."""
    assert {part["purl"] for part in _document()["components"]} == {
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12",
        "pkg:deb/debian/dash@0.5.12-2?arch=amd64&distro=debian-12",
        "pkg:pypi/msgspec@0.22.0",
        "pkg:pypi/gpucore@0.1.0",
        "pkg:generic/python@3.11.2",
    }


def test_it_names_the_image_it_is_of() -> None:
    """The document is CycloneDX about one container image, dated as the image's files are."""
    found = _document()
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["type"] == "container"
    assert found["metadata"]["component"]["bom-ref"] == "gpushare/extender:abc"
    assert found["metadata"]["timestamp"].startswith("2026-01-01T00:00:00")


def test_equal_images_have_equal_documents() -> None:
    """Nothing of the moment is in it; another tag is another document."""
    assert _document() == _document()
    assert _document()["serialNumber"] != _document("gpushare/extender:def")["serialNumber"]
