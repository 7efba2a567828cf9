"""The file with what a daemon prints: its size, and the length of its lines."""

from pathlib import Path

from gpudeviceplugin.isolation.mps.folders import LOG_BYTES
from gpudeviceplugin.isolation.mps.output import LINE_BYTES, LOG_FILE, DaemonOutput

CHUNK = 4096


def test_the_log_never_exceeds_its_limit(tmp_path: Path) -> None:
    """However much clients make a daemon print between two checks; the newest lines are kept."""
    output, log = DaemonOutput(tmp_path), tmp_path / LOG_FILE
    log.write_bytes(b"x" * (LOG_BYTES - CHUNK // 2))
    for number in range(2 * LOG_BYTES // CHUNK):
        line = b"%08d\n" % number
        output.add(line * (CHUNK // len(line)))
        assert log.stat().st_size <= LOG_BYTES
    assert log.read_bytes().endswith(line)


def test_a_long_line_is_cut_wherever_its_parts_end(tmp_path: Path) -> None:
    """A client's command fills no log, and the lines beside it are whole."""
    output = DaemonOutput(tmp_path)
    text = b"before\n" + b"a" * 5000 + b"\nafter\n" + b"b" * LINE_BYTES + b"\nlast"
    for start in range(0, len(text), 700):
        output.add(text[start : start + 700])
    assert (tmp_path / LOG_FILE).read_bytes().split(b"\n") == [
        b"before", b"a" * LINE_BYTES, b"after", b"b" * LINE_BYTES, b"last",
    ]  # fmt: skip
    assert output.words.endswith("last")
