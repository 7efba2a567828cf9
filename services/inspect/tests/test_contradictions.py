"""Sentences of one answer agree with each other."""

from invoking import Run
from test_memory_words import many


def test_a_changed_annotation_is_the_reason(run: Run) -> None:
    """The scheduler did call the extender: what it wrote was changed since."""
    fault = "annotation ALIYUN_COM_GPU_MEM_IDX is not the index of a GPU"
    text = run("explain", "pod", "research/odd", on=many()).out
    assert fault in text
    assert "the annotations that name its GPU were changed: create the pod again" in text
    assert "did not call the extender" not in text
    assert f"on no known GPU: {fault}" in run("pending", "-n", "research", on=many()).out


def test_a_pod_of_a_gang_fits_alone(run: Run) -> None:
    """Its state is that the gang does not fit, so a bare "it fits" would contradict it."""
    text = run("explain", "pod", "member", on=many()).out
    assert "pending: not all pods of its gang fit" in text
    assert "Alone it fits on 2 nodes" in text
