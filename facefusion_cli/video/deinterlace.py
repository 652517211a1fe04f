"""Interlaced frames to progressive ones, one for one."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import av.error
from av.filter import Graph
from av.video.frame import VideoFrame


class Deinterlacer:
    """FFmpeg's bwdif over a stream; frames not marked interlaced pass unchanged.

    Output frames lag one behind the input. Their pts count in their own time_base.
    """

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._made_for: tuple[int, int, str] | None = None

    def push(self, frame: VideoFrame, time_base: Fraction) -> Iterator[VideoFrame]:
        """Gives a frame in, and what is ready out."""
        kind = (frame.width, frame.height, frame.format.name)
        if kind != self._made_for:
            yield from self.flush()
            self._graph = _graph(*kind, time_base)
            self._made_for = kind
        assert self._graph is not None
        self._graph.vpush(frame)
        yield from self._ready()

    def flush(self) -> Iterator[VideoFrame]:
        """The last frame, after the end of the stream."""
        if self._graph is None:
            return
        self._graph.vpush(None)
        yield from self._ready()
        self._graph = self._made_for = None

    def _ready(self) -> Iterator[VideoFrame]:
        assert self._graph is not None
        while True:
            try:
                yield self._graph.vpull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return


def _graph(width: int, height: int, pixel_format: str, time_base: Fraction) -> Graph:
    graph = Graph()
    graph.threads = 1
    graph.link_nodes(
        graph.add_buffer(
            width=width,
            height=height,
            format=av.VideoFormat(pixel_format, width, height),
            time_base=time_base,
        ),
        graph.add("bwdif", mode="send_frame", parity="auto", deint="interlaced"),
        graph.add("buffersink"),
    ).configure()
    return graph
