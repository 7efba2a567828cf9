"""Many scrapers cost what one costs."""

import asyncio

from gpukube.server.scrapes import MOST_TEXTS, PIECE_BYTES, SharedScrape

SECONDS = 60.0


class Figures:
    """Counts how often it is made."""

    made = 0

    async def render(self) -> bytes:
        self.made += 1
        return str(self.made).encode()


async def test_those_who_wait_share_one_text() -> None:
    """The first is answered at once; all who come within the pause get the next text together."""
    figures = Figures()
    scrape = SharedScrape(figures.render, every=0.2)
    async with asyncio.timeout(SECONDS):
        assert await scrape.text() == b"1"
        assert await asyncio.gather(*(scrape.text() for _ in range(50))) == [b"2"] * 50
    assert figures.made == 2


async def test_a_text_is_never_older_than_the_question() -> None:
    """A request while a text is being made gets the one after it."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    figures = Figures()

    async def render() -> bytes:
        begun.set()
        await go_on.wait()
        return await figures.render()

    scrape = SharedScrape(render, every=0)
    async with asyncio.timeout(SECONDS):
        first = asyncio.create_task(scrape.text())
        await begun.wait()
        second = asyncio.create_task(scrape.text())
        go_on.set()
        assert (await first, await second) == (b"1", b"2")


async def test_a_client_that_leaves_takes_nothing_from_the_others() -> None:
    """The text is made for all of them."""
    scrape = SharedScrape(Figures().render, every=0.1)
    async with asyncio.timeout(SECONDS):
        await scrape.text()
        leaving, staying = (asyncio.create_task(scrape.text()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == b"2"


async def test_a_long_text_is_sent_in_pieces() -> None:
    """Nothing is lost, and no piece is larger than one may be."""
    text = bytes(range(256)) * 1000
    scrape = SharedScrape(Figures().render)
    sent = [piece async for piece in scrape.pieces(text)]
    assert b"".join(sent) == text
    assert max(map(len, sent)) <= PIECE_BYTES


async def test_clients_that_do_not_read_keep_few_texts() -> None:
    """The memory of the process would be filled with one text a second; all are answered."""
    figures = Figures()
    scrape = SharedScrape(figures.render, every=0)
    slow = []
    for _ in range(3 * MOST_TEXTS):
        slow.append(scrape.pieces(await scrape.text()))
        await anext(slow[-1])
    assert figures.made == MOST_TEXTS
    assert await scrape.text() == str(MOST_TEXTS).encode()
    for one in slow:
        await one.aclose()
    assert await scrape.text() == str(MOST_TEXTS + 1).encode()
