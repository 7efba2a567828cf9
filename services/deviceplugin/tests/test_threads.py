"""Work in threads on a node that has no free process ID for another one."""

import threading

import pytest

from gpudeviceplugin.threads import ThreadPool

SECONDS = 60.0


def refuse(_: threading.Thread) -> None:
    """As Python does where the node has no process ID for a thread."""
    raise RuntimeError("can't start new thread")


def test_work_waits_for_a_thread_where_no_other_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is done once the thread that there is has finished its own."""
    busy, leave = threading.Event(), threading.Event()
    with ThreadPool(name="test") as pool:
        pool.submit(int).result(SECONDS)
        monkeypatch.setattr(threading.Thread, "start", refuse)

        def occupy() -> None:
            busy.set()
            leave.wait(SECONDS)

        pool.submit(occupy)
        assert busy.wait(SECONDS)
        waiting = pool.submit(lambda: "done")
        assert not waiting.done()
        leave.set()
        assert waiting.result(SECONDS) == "done"


def test_threads_are_started_up_to_the_maximum() -> None:
    """Work is done at once while there may be more of them."""
    both = threading.Barrier(2, timeout=SECONDS)
    with ThreadPool(2, name="test") as pool:
        for each in [pool.submit(both.wait), pool.submit(both.wait)]:
            each.result(SECONDS)


def test_a_pool_without_any_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would ever do its work."""
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        ThreadPool(name="test")
