"""A Docker engine as one script: it saves a small image, and pushes by printing a digest."""

from typing import Final

SCRIPT: Final = """
import io, json, os, sys, tarfile

words = sys.argv[1:]
with open(os.environ["FAKE_DOCKER_CALLS"], "a") as calls:
    calls.write(" ".join(words[:2] if words[0] in {"save", "run"} else words) + "\\n")

def save(path, name):
    config = json.dumps({"rootfs": {"diff_ids": ["sha256:ab"]}, "config": {}}).encode()
    manifest = [{"Config": "c.json", "RepoTags": [name], "Layers": ["ab/layer.tar"]}]
    reported = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as archive:
        for file, content in (
            ("c.json", config), ("ab/layer.tar", b"layer"), ("manifest.json", reported)
        ):
            member = tarfile.TarInfo(file)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

match words:
    case ["save", "--output", path, name]:
        save(path, name)
    case ["push", name]:
        if os.environ.get("FAKE_DOCKER_REFUSES"):
            sys.exit("denied: " + name)
        print("0.2.0: digest: sha256:" + "c" * 64 + " size: 1234")
    case ["run", *_]:
        print(json.dumps({"python": "3.12.1", "os": ["debian", "12"], "deb": [], "pypi": []}))
    case ["image", "inspect", *_]:
        print("sha256:" + "d" * 64)
"""
