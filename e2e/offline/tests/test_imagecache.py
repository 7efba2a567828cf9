"""A built image is kept as a tar and read back into an engine that lost it."""

from pathlib import Path

from host.testing.fakeprograms import FakePrograms
from offline import imagecache

TAG = "example/image:1"
# A fake engine whose one image is the file `$HELD`; saving and loading only note themselves.
DOCKER = """
case "$1 $2" in
  "image inspect") [ -e "{held}" ] ;;
  "save --output") : > "$3" ;;
  "load --quiet") : > "{held}" ;;
esac
"""


def test_an_image_is_built_once_and_then_read_back(
    programs: FakePrograms, cache: Path, tmp_path: Path
) -> None:
    """After the engine forgot the image it comes from the cache, not from another build."""
    held = tmp_path / "held"
    programs.add("docker", DOCKER.format(held=held))
    builds: list[str] = []

    def build() -> None:
        builds.append(TAG)
        held.touch()

    def ensure() -> None:
        imagecache.ensure(TAG, kind="image", key="0123", build=build)

    ensure()
    assert (cache / "image-0123/image.tar").exists()
    assert not [call for call in programs.calls() if call.startswith("docker load")]
    held.unlink()
    ensure()
    assert held.exists()
    assert builds == [TAG]
