"""Pods with claims are counted as the informers bring them and what they refer to."""

import json
from typing import Any

import pytest
from claimbench import Bench
from claimside import kind
from test_claim_mix import SELECTOR, SPEC, in_team, pod
from test_following import following

from gpucore.claims.arrivals import ClaimArrivals
from gpucore.steps import complete
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.pod.spec import decode_pod
from gpuextender.claims.counting import count_claims
from gpuextender.informers import DEVICE_CLASSES, TEMPLATES
from gpukube.watch.collection import Collection

Object = dict[str, Any]
CLAIM = decode_claim(json.dumps(in_team(kind("ResourceClaim", "own", SPEC))).encode())
OTHER = decode_claim(json.dumps(in_team(kind("ResourceClaim", "other", SPEC))).encode())
TEMPLATE = decode_claim_template(
    json.dumps(in_team(kind("ResourceClaimTemplate", "eight", {"spec": SPEC}))).encode()
)
CLASS = decode_device_class(
    json.dumps(kind("DeviceClass", "gpushare", {"selectors": [SELECTOR]})).encode()
)
OWN, SECOND = (
    decode_pod(json.dumps(pod(name, resourceClaimName="own")).encode()) for name in ("p", "q")
)
MADE = decode_pod(json.dumps(pod("t", resourceClaimTemplateName="eight")).encode())


class Counting:
    """The informers of an extender, with or without nominations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, nominating: bool = False) -> None:
        self.followed: dict[str, Any] = {}
        self.informers, _ = following(claims=True)
        monkeypatch.setattr(self.informers, "follow", self._follow)
        self.nominator = Bench().nominator if nominating else None
        if self.nominator is not None:
            for each in (self.nominator.templates, self.nominator.classes):
                each.on_replace([])
        self.arrivals: ClaimArrivals = count_claims(self.informers, self.nominator)

    def _follow(self, collection: Collection[Any], handler: object) -> None:
        self.followed[collection.path] = handler

    @property
    def counted(self) -> int:
        """Pods that are counted now."""
        complete(self.arrivals.count())
        return len(self.informers.state.mix.history)


def test_a_pod_counts_once_its_claim_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an event or by a list; a claim that goes takes no pod back."""
    for listed in (False, True):
        counting = Counting(monkeypatch)
        counting.informers.pods.on_update(OWN, b"")
        counting.informers.claims.on_update(OTHER, b"")
        assert (counting.counted, len(counting.arrivals)) == (0, 1)
        if listed:
            counting.informers.claims.on_replace([CLAIM])
        else:
            counting.informers.claims.on_update(CLAIM, b"")
        assert (counting.counted, len(counting.arrivals)) == (1, 0)
        counting.informers.claims.on_delete(CLAIM)
        assert counting.counted == 1
        counting.informers.pods.on_update(SECOND, b"")
        assert (counting.counted, len(counting.arrivals)) == (1, 1)


def test_a_pod_that_went_before_its_claim_came_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it was deleted, or a list has it no more."""
    counting = Counting(monkeypatch)
    counting.informers.pods.on_replace([OWN, SECOND, MADE])
    assert (counting.counted, len(counting.arrivals)) == (0, 3)
    counting.informers.pods.on_delete(MADE)
    assert len(counting.arrivals) == 2
    counting.informers.pods.on_replace([SECOND])
    counting.informers.claims.on_update(CLAIM, b"")
    assert counting.counted == 1


def test_templates_and_classes_are_those_of_the_nominator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which stores them, before the pods that wait for them are counted."""
    counting = Counting(monkeypatch, nominating=True)
    assert set(counting.followed) == {TEMPLATES.path, DEVICE_CLASSES.path}
    counting.informers.pods.on_replace([OWN, MADE])
    counting.informers.claims.on_replace([CLAIM])
    assert (counting.counted, len(counting.arrivals)) == (0, 2)
    counting.followed[DEVICE_CLASSES.path].on_replace([CLASS])
    assert (counting.counted, len(counting.arrivals)) == (1, 1)
    counting.followed[TEMPLATES.path].on_update(TEMPLATE, b"")
    assert (counting.counted, len(counting.arrivals)) == (2, 0)


def test_without_nominations_neither_templates_nor_classes_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod counts by its claim; one with a template alone waits."""
    counting = Counting(monkeypatch)
    assert not counting.followed
    counting.informers.pods.on_replace([OWN, MADE])
    counting.informers.claims.on_replace([CLAIM])
    assert (counting.counted, len(counting.arrivals)) == (1, 1)
