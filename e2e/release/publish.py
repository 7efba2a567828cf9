"""One release from start to end: everything is built before anything is pushed."""

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from host import docker
from host.progress import step
from images import build, sbom
from release import (
    chartpush,
    charts,
    checksums,
    commandfiles,
    imagefiles,
    provenance,
    signature,
)
from release.cosign import Cosign
from release.version import Commit, is_loopback

CHARTS: Final = ("gpushare", "gpu-serving")


@dataclass(frozen=True, kw_only=True)
class Release:
    """What is released and where it goes.

    Attributes:
        version: a semantic version.
        commit: that is checked out.
        root: of the repository.
        into: folder of the artefacts; what it held before is removed.
        registry: host and optional path; "" pushes nothing.
        downloads: URL under which `cli` is published; "" writes no manifest for krew.
        key: that signs the list of checksums; None signs nothing.
        cosign: signs what was pushed, and with an identity the list of checksums.
    """

    version: str
    commit: Commit
    root: Path
    into: Path
    registry: str = ""
    downloads: str = ""
    key: EllipticCurvePrivateKey | None = None
    cosign: Cosign | None = None


def publish(release: Release, built: Iterable[str]) -> Path:
    """Write all artefacts of these images, push them if a registry is named, sign the checksums.

    Raises:
        SetupError: a step failed; there is no list of checksums then.
    """
    shutil.rmtree(release.into, ignore_errors=True)
    os.environ["SOURCE_DATE_EPOCH"] = str(release.commit.epoch)
    names = imagefiles.give_version(built, release.version)
    packages = _packages(release)
    _command(release)
    _image_files(release, names)
    pushed = _push(release, names, packages) if release.registry else {}
    if release.cosign is not None:
        release.cosign.sign_pushed(pushed)
    _summary(release, names, pushed)
    provenance.write(
        release.into,
        version=release.version,
        commit=release.commit.id,
        epoch=release.commit.epoch,
        pushed=pushed,
    )
    sums = checksums.write(release.into)
    if release.key is not None:
        signature.sign(sums, release.key)
    if release.cosign is not None:
        release.cosign.sign_file(sums)
    return sums


def _command(release: Release) -> None:
    folder, epoch = _folder(release, "cli"), release.commit.epoch
    commandfiles.write(release.root, release.version, epoch, folder, downloads=release.downloads)


def _packages(release: Release) -> list[Path]:
    into = _folder(release, "charts")
    return [
        charts.package(release.root / "helm" / chart, release.version, release.commit.epoch, into)
        for chart in CHARTS
    ]


def _image_files(release: Release, names: Iterable[str]) -> None:
    for name in names:
        with step(f"write the archive and the bill of materials of {name}"):
            imagefiles.archive(name, build.EPOCH, _folder(release, "images"))
            sbom.write(name, release.commit.epoch, _folder(release, _sbom_folder(release, name)))


def _sbom_folder(release: Release, name: str) -> str:
    """`sbom`, or `sbom/arm64` for an image of another architecture than this machine's."""
    _, _, architecture = name.partition(f":{release.version}-")
    return f"sbom/{architecture}" if architecture else "sbom"


def _push(release: Release, names: Iterable[str], packages: Iterable[Path]) -> dict[str, str]:
    """Push images, then the charts that name them; the digest of each by its name."""
    digests = {}
    for name in names:
        with step(f"push {name} to {release.registry}"):
            remote, digest = imagefiles.push(name, release.registry)
        digests[remote] = digest
    place = f"{release.registry}/charts"
    for chart, package in zip(CHARTS, packages, strict=True):
        with step(f"push chart {chart} to {place}"):
            digest = chartpush.push(package, place, plain_http=is_loopback(place))
        digests[f"{place}/{chart}:{release.version}"] = digest
    return digests


def _summary(release: Release, names: Iterable[str], pushed: dict[str, str]) -> None:
    """release.json: what was released, from which commit, and where it was pushed."""
    images = {name: docker.identity(name) for name in names}
    found = {
        "version": release.version,
        "commit": release.commit.id,
        "epoch": release.commit.epoch,
        "images": images,
        "pushed": pushed,
    }
    (release.into / "release.json").write_text(json.dumps(found, indent=2) + "\n")


def _folder(release: Release, name: str) -> Path:
    folder = release.into / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
