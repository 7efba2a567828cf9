"""``python -m gpukube.issuing``: fill the Secrets of a release with certificates.

The chart runs it as a Job after each installation and as a CronJob that renews. It writes only what
is missing or due, so it may be run at any time. Exit status 1 with one sentence where the API
server refuses; the Job repeats it.
"""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from gpukube.client import HttpKubeClient
from gpukube.errors import ConfigError, KubeError
from gpukube.issuing.plan import Plan, PlanError, client_plan, server_plan, webhook_plan
from gpukube.issuing.secrets import CertificateIssuer, RenewalError


def main(arguments: list[str] | None = None) -> int:
    """Run once; the exit status."""
    options = parser().parse_args(arguments)
    try:
        written = asyncio.run(_run(plan_of(options), options.kubeconfig))
    except (PlanError, ConfigError, KubeError, RenewalError) as error:
        print(f"certificates: error: {error}", file=sys.stderr)
        return 1
    print(f"certificates: {written} objects written" if written else "certificates: all are valid")
    return 0


async def _run(plan: Plan, kubeconfig: Path | None) -> int:
    async with await HttpKubeClient.connect(
        kubeconfig, user_agent="gpushare-certificates"
    ) as client:
        return await CertificateIssuer(client, plan, datetime.now(UTC)).renew()


def plan_of(options: argparse.Namespace) -> Plan:
    """What a command line requests.

    Raises:
        PlanError: it cannot be carried out.
    """
    servers = [server_plan(text, options.valid_days) for text in options.server]
    clients = [client_plan(text, options.valid_days) for text in options.client]
    names = {each.secret for each in servers}
    webhooks = tuple(webhook_plan(text) for text in options.webhook)
    for needed in [each.authority for each in clients] + [each.secret for each in webhooks]:
        if needed not in names:
            raise PlanError(f"no --server names the Secret {needed}")
    secrets = tuple(servers + clients)
    return Plan(options.namespace, options.authorities, secrets, webhooks)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="gpukube.issuing",
        description="Issue and renew the certificates of a gpushare release.",
        epilog="example: --namespace gpushare --authorities gpushare-authorities "
        "--server gpushare-webhook=gpushare-webhook.gpushare.svc "
        "--webhook gpushare-webhook@gpushare-webhook=pods.gpushare.io",
    )
    made.add_argument("--namespace", required=True, help="namespace of the Secrets")
    made.add_argument("--authorities", required=True, help="Secret that keeps the authorities")
    made.add_argument(
        "--server", action="append", default=[], help="SECRET=NAME[,NAME...] of a server"
    )
    made.add_argument(
        "--client", action="append", default=[], help="SECRET@SERVER=NAME of a client"
    )
    made.add_argument(
        "--webhook",
        action="append",
        default=[],
        help="CONFIGURATION@SECRET=WEBHOOK[,WEBHOOK...] that trust the authority of the Secret",
    )
    made.add_argument("--valid-days", type=int, default=365, help="validity (default: 365)")
    made.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    return made


if __name__ == "__main__":
    sys.exit(main())
