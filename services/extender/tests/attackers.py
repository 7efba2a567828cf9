"""Clients of an attacker as a process: `python attackers.py ADDRESS COUNT SCRAPERS HALF PORT ...`.

Half-open clients connect again as soon as they are thrown out; scrapers ask for metrics in a loop.
``HALF`` is what a half-open client sends, in hexadecimal. Ends with its standard input.
"""

import asyncio
import sys
from contextlib import suppress

PAUSE_SECONDS = 2.0
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def hold(address: str, port: int, half: bytes) -> None:
    """Keep half a request open."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0)
            )
            writer.write(half)
            await reader.read()
            writer.close()
        await asyncio.sleep(PAUSE_SECONDS)


async def scrape(address: str, port: int) -> None:
    """Ask for metrics without a pause, over one connection as long as it lasts."""
    while True:
        with suppress(OSError, EOFError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0)
            )
            while True:
                writer.write(SCRAPE)
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
        await asyncio.sleep(PAUSE_SECONDS)


async def main(address: str, count: str, scrapers: str, half: str, *ports: str) -> None:
    """Attack every port until standard input ends."""
    jobs = [hold(address, int(p), bytes.fromhex(half)) for p in ports for _ in range(int(count))]
    jobs += [scrape(address, int(p)) for p in ports for _ in range(int(scrapers))]
    tasks = [asyncio.create_task(job) for job in jobs]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
