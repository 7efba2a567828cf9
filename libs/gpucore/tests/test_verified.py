"""The annotation with results of ``gpushare verify``."""

from gpucore.wire.verified import MOST_BYTES, VerifiedNode, decode_verified, encode_verified

FOUND = VerifiedNode(at=1_800_000_000, gpus={"0": {"memory": "pass", "share": "fail"}})


def test_results_are_read_as_they_were_written() -> None:
    """Verdicts by GPU and row, and the time of the run."""
    assert decode_verified(encode_verified(FOUND)) == FOUND


def test_what_cannot_be_read_is_no_result() -> None:
    """Anybody who may annotate the pod can write anything."""
    for text in ("", "[]", "{", '{"at": "x", "gpus": {}}', " " * (MOST_BYTES + 1)):
        assert decode_verified(text) is None
    rows = '{"0": {"memory": "%s"}}'
    for at in (-1, 2**38, 10**15, 10**30):
        assert decode_verified(f'{{"at": {at}, "gpus": {rows % "pass"}}}') is None
    for verdict in ("passed", "", "pass\\n"):
        assert decode_verified(f'{{"at": 1, "gpus": {rows % verdict}}}') is None
    assert decode_verified(f'{{"at": 1, "gpus": {{"0": {{"{"r" * 64}": "pass"}}}}}}') is None
    assert decode_verified("[" * 10_000) is None
    many = VerifiedNode(at=1, gpus={str(n): {} for n in range(65)})
    assert decode_verified(encode_verified(many)) is None
