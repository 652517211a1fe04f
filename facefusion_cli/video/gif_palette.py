"""Frames for a GIF: a palette of its own for each, so that the clip is never held in memory."""

from __future__ import annotations

from fractions import Fraction

import av
import av.filter

FRAME_FORMAT = "bgra"
"""What a palette is made from."""
_DITHER = "bayer:bayer_scale=4"
"""An ordered pattern: error diffusion has less error in a still picture, but the noise of it
crawls over what stands still."""


class Palettes:
    """Makes frames of 256 colours, one at a time, by FFmpeg's median cut and an ordered dither.

    Args:
        size: Width and height.
        alpha: Keep transparency, as far as one colour of the palette can: alpha below half is
            clear, the rest opaque.
    """

    def __init__(self, size: tuple[int, int], *, alpha: bool) -> None:
        graph = av.filter.Graph()
        graph.threads = 1
        self._source = graph.add_buffer(
            width=size[0],
            height=size[1],
            format=av.VideoFormat(FRAME_FORMAT),
            time_base=Fraction(1, 100),
        )
        both = graph.add("split")
        palette = graph.add("palettegen", f"stats_mode=single:reserve_transparent={int(alpha)}")
        use = graph.add("paletteuse", f"new=1:dither={_DITHER}")
        self._sink = graph.add("buffersink")
        self._source.link_to(both)
        both.link_to(palette, 0, 0)
        both.link_to(use, 1, 0)
        palette.link_to(use, 0, 1)
        use.link_to(self._sink)
        graph.configure()
        self._graph, self._count = graph, 0

    def apply(self, frame: av.VideoFrame) -> av.VideoFrame:
        """The frame with a palette; FRAME_FORMAT in, pal8 out, its times are the caller's."""
        frame.pts, frame.time_base = self._count, Fraction(1, 100)
        self._count += 1
        self._source.push(frame)
        made = self._sink.pull()
        assert isinstance(made, av.VideoFrame)
        return made
