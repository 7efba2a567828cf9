"""What daemons and clients of MPS share: of bounded size, cleaned, and closed to change."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from mpsstage import SECONDS, mps_stage

from gpudeviceplugin.isolation.mps.folders import lay_out, open_to_all, sweep

pytestmark = pytest.mark.slow

NAMESPACE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "-m")
CLIENT = """
import pathlib, socket, sys
pipe = pathlib.Path(sys.argv[1])
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(str(pipe / "control"))
peer.send(b"client")
print(peer.recv(100).decode().strip())
for change in ((pipe / "control").unlink, (pipe / "new").touch):
    try:
        change()
        print("changed")
    except OSError as error:
        print(error.strerror)
"""


def may_mount() -> bool:
    """This user may have mounts of its own."""
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs a mount namespace of its own")
async def test_a_client_gets_through_pipes_that_it_cannot_change(tmp_path: Path) -> None:
    """A socket on a read-only mount takes connections, and root there can replace nothing."""
    async with mps_stage() as stage:
        stage.run()
        await stage.serving()
        pipe, view = stage.folders.pipe, tmp_path / "pipe"
        view.mkdir()
        script = f"mount --bind {pipe} {view} && mount -o remount,bind,ro {view} && exec python3 -"
        client = await asyncio.create_subprocess_exec(
            *NAMESPACE, "sh", "-c", f"{script} {view}",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(SECONDS):
            output, _ = await client.communicate(CLIENT.encode())
        first, *rest = output.decode().splitlines()
        assert first.startswith("server")
        assert rest == ["Read-only file system"] * 2


def test_the_shared_memory_leads_to_the_volume_of_this_plugin(tmp_path: Path) -> None:
    """Its path on the host stays the same while each pod of the plugin brings its own volume."""
    root = tmp_path / "mps"
    lay_out(root)
    (root / "shm" / "old").touch()
    for pod in ("one", "two", "two"):
        lay_out(root, f"/pods/{pod}/shm")
        assert (root / "shm").readlink() == Path(f"/pods/{pod}/shm")
    assert [each.name for each in root.iterdir()] == ["shm"]


def test_users_remove_only_their_own_files(tmp_path: Path) -> None:
    """A volume of kubelet is open to all; this one is sticky like any /dev/shm."""
    open_to_all(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_leftovers_of_pods_go_and_segments_of_cuda_stay(tmp_path: Path) -> None:
    """A sweep empties files and folders, and follows no link out of the directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    shm = tmp_path / "shm"
    (shm / "folder").mkdir(parents=True)
    (shm / "folder" / "file").touch()
    (shm / "torch_1").touch()
    (shm / "cuda.shm.0.1f4.1").touch()
    (shm / "link").symlink_to(outside)
    sweep(shm, lambda: False)
    assert [each.name for each in shm.iterdir()] == ["cuda.shm.0.1f4.1"]
    assert (outside / "kept").exists()
