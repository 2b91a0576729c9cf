"""Evidence of recordings, also from their digests."""

from __future__ import annotations

from math import ceil, floor

from gpumon.analysis import digest as digests
from gpumon.analysis.gather import Gathering, Items
from gpumon.analysis.gather_node import NodeGathering
from gpumon.analysis.room import WHOLE, Room
from gpumon.model.ticks import Digest


class _Chain:
    """Of a node of which only digests were taken: how they go on."""

    def __init__(self, stream: bytes) -> None:
        self.stream = stream
        self.layout = digests.Layout(b"", [])
        self.state = b""  # of the newest; b"" once the node has it
        self.items: list[Items] = []  # what each was made of


class RunGathering(Gathering):
    """Takes digests, too.

    Each must go on where the one before it ended, with nothing else of the node before or between;
    of others it takes what they were made of. So it does of all that came of a node when one of its
    digests is malformed.
    """

    def __init__(self, room: Room = WHOLE) -> None:
        super().__init__(room)
        self._chains: dict[str, _Chain] = {}

    def _instead(self, node: str, digest: Digest) -> list[Items]:
        chain = self._chains.get(node)
        if chain is None and node not in self._nodes and digest.number == 0:
            chain = self._chains[node] = _Chain(digest.stream)
        if chain is None or (chain.stream, len(chain.items)) != (digest.stream, digest.number):
            return [*self._before(node), digest.items]
        chain.items.append(digest.items)
        try:
            self._append(self._of(node), chain, digests.opened(digest.data))
        except digests.MALFORMED:
            return self._undone(node)
        # while its items can still be read
        return self._before(node) if digest.is_last else []

    def _append(self, gathered: NodeGathering, chain: _Chain, found: digests.Digested) -> None:
        news = digests.news_of(found)
        for header in news.headers:
            self._take_header(gathered, header)
        gathered.take_news(news.events, news.devices)
        while self._step_s < found.step_s:
            self._double()
        if found.width:
            begin, end = found.first * found.step_s, (found.first + found.width) * found.step_s
            self._make_room(begin, end - found.step_s)
            gathered.take_extent(floor(begin / self._step_s), ceil(end / self._step_s) - 1)
        if found.directory != chain.layout.directory:
            chain.layout = digests.layout(gathered, found.directory)
        digests.take_bins(found, chain.layout, self._step_s)
        chain.state = found.state

    def _before(self, node: str) -> list[Items]:
        """The node goes on from its newest digest by other items."""
        chain = self._chains.get(node)
        if chain is None or not chain.state:
            return []
        try:
            digests.restore(self._nodes[node], chain.state)
        except digests.MALFORMED:
            return self._undone(node)
        del self._chains[node]
        return []

    def _undone(self, node: str) -> list[Items]:
        """Forget what came of a node; gives what it came from."""
        self._nodes[node] = NodeGathering(node, self._room)
        return self._chains.pop(node).items
