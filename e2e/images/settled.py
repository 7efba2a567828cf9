"""Gives an image the id that follows from its content: equal inputs make equal images.

The engine's builder writes into an image's configuration when and in which container each step ran,
so that equal layers bear another id every time. An image is exported, given one time and no
container, and put back. Layers are carried over as they are: that these are equal is the
Dockerfiles' own work.
"""

import hashlib
import io
import json
import posixpath
import tarfile
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from host import cachedir, docker

_OF_THE_BUILD: Final = ("container", "container_config", "docker_version")
_OF_A_CONTAINER: Final = ("Hostname", "Domainname", "Image")
_MANIFEST: Final = "manifest.json"

Object = dict[str, Any]


def settle(image: str, name: str, epoch: int, *, architecture: str) -> None:
    """Give the engine an image `name` that is `image` with `epoch` seconds as its only time.

    The engine's builder names its own architecture, also where another one was emulated.

    Raises:
        SetupError: the engine failed; states which command.
    """
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="settled-") as folder:
        built, settled = Path(folder) / "built.tar", Path(folder) / "settled.tar"
        docker.save([image], built)
        rewrite(built, settled, name, epoch, architecture=architecture)
        docker.load(settled)


def rewrite(built: Path, settled: Path, name: str, epoch: int, *, architecture: str = "") -> None:
    """Write the archive of one image anew; equal content makes equal bytes.

    Args:
        built: as `docker save` wrote it.
        settled: is written; for `docker load`.
        name: repository and tag that the image gets.
        epoch: the time that the image bears, in seconds.
        architecture: that the image is for; "" leaves what the archive names.
    """
    with tarfile.open(built) as old, tarfile.open(settled, "w") as new:
        (manifest,) = json.loads(_bytes(old, _MANIFEST))
        found = json.loads(_bytes(old, manifest["Config"]))
        config = configuration(found, epoch, architecture=architecture)
        text = _json(config)
        layers = [f"{digest.rpartition(':')[2]}.tar" for digest in config["rootfs"]["diff_ids"]]
        for layer, source in dict(zip(layers, manifest["Layers"], strict=True)).items():
            content = _found(old, source)
            _add(new, layer, content.size, old.extractfile(content))
        own = f"{hashlib.sha256(text).hexdigest()}.json"
        manifest_json = _json([{"Config": own, "RepoTags": [name], "Layers": layers}])
        for file, written in ((own, text), (_MANIFEST, manifest_json)):
            _add(new, file, len(written), io.BytesIO(written))


def configuration(found: Mapping[str, Any], epoch: int, *, architecture: str = "") -> Object:
    """The configuration of an image without what is different at every build."""
    time = datetime.fromtimestamp(epoch, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept = {key: value for key, value in found.items() if key not in _OF_THE_BUILD}
    started = {k: v for k, v in found["config"].items() if k not in _OF_A_CONTAINER}
    history = [{**each, "created": time} for each in found.get("history", ())]
    own = {"architecture": architecture} if architecture else {}
    return {**kept, **own, "config": started, "created": time, "history": history}


def _found(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """The file of this name; a layer that occurs twice is a link to its first occurrence."""
    member = archive.getmember(name)
    while member.issym():
        member = archive.getmember(posixpath.normpath(f"{name}/../{member.linkname}"))
    return member


def _bytes(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(_found(archive, name))
    return b"" if file is None else file.read()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes] | None) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, content)
