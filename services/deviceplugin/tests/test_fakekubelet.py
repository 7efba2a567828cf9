"""The fake kubelet admits pods as the real one beside a scheduler does."""

from pathlib import Path

from fakecluster.objects import pod
from fakekubelet.devices import Ids, Plugin
from fakekubelet.kubelet import FakeKubelet

from gpukube.testing.apiserver import FakeApiServer

WHOLE = "aliyun.com/gpu"


class GrantingPlugin(Plugin):
    """Grants what is requested, without a socket."""

    wants_preference = False

    async def call_allocate(self, ids: Ids) -> dict[str, str]:
        return {}


async def test_a_pod_is_admitted_once_the_node_offers_every_resource_of_it(tmp_path: Path) -> None:
    """A pod that comes before the plugin has registered a resource is not left without it."""
    cluster = FakeApiServer()
    async with FakeKubelet(tmp_path, cluster) as kubelet:
        cluster.pods.put(pod("first", [{}]))
        await kubelet.wait_for(lambda: kubelet.admitted("first"))
        cluster.pods.put(pod("plain", [{}]))
        cluster.pods.put(pod("early", [{"gpu": 1}]))
        await kubelet.wait_for(lambda: kubelet.admitted("plain"))
        kubelet.manager.plugins[WHOLE] = GrantingPlugin()
        kubelet.manager.healthy[WHOLE] = {"GPU-a"}
        await kubelet._tell()
        await kubelet.wait_for(lambda: kubelet.admitted("early"))
        assert kubelet.devices("early", WHOLE) == {"c0": {"GPU-a"}}
