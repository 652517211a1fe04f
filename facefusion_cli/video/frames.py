"""Batches of planes to the frames an encoder takes, with as few copies as possible."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import av
import torch
from av.video.reformatter import VideoReformatter
from torch import Tensor

from facefusion_cli.types import FrameBatch
from facefusion_cli.video.encoders import EncodingPlan
from facefusion_cli.video.gif_palette import FRAME_FORMAT, Palettes

_SWS_MATRICES = {"bt709": 1, "bt601": 5, "bt2020": 9, "rgb": 1}
"""libswscale's numbers."""
_RANGE_LIMITED, _RANGE_FULL = 1, 2
# libswscale's flags: bicubic, chroma to and from every column (its default drops each second one of
# RGB sources, and makes RGB greenish), rounding that is exact.
_SWSCALE = 0x4 | 0x2000 | 0x4000 | 0x40000


@dataclass(frozen=True, slots=True)
class HostBatch:
    """A batch whose planes are (or, once ready, will be) in the host's memory."""

    planes: tuple[Tensor, ...]
    """Y, U, V and, where there is one, alpha: [N,H,W] each."""
    pts: tuple[Fraction, ...]
    ready: torch.cuda.Event | None

    def wait(self) -> None:
        """Returns when the planes may be read."""
        if self.ready is not None:
            self.ready.synchronize()


def download(batch: FrameBatch) -> HostBatch:
    """Planes in the host's memory: themselves when they are there, else copied into pinned memory.

    The copy is queued on the current stream and not waited for. Pinned memory comes from torch's
    caching allocator, which hands the same few blocks out again while an encoder keeps up.
    """
    planes = batch.planes if batch.alpha is None else (*batch.planes, batch.alpha)
    if planes[0].device.type == "cpu":
        rows = tuple(p if p.stride(-1) == 1 else p.contiguous() for p in planes)
        return HostBatch(rows, batch.pts, None)
    if planes[0].device.type != "cuda":
        return HostBatch(tuple(p.cpu() for p in planes), batch.pts, None)
    with torch.cuda.device(planes[0].device):
        host = tuple(
            torch.empty(p.shape, dtype=p.dtype, pin_memory=True).copy_(p, non_blocking=True)
            for p in planes
        )
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()
    return HostBatch(host, batch.pts, ready)


class FrameMaker:
    """Makes the encoder's frames from planes, as one clip's plan says."""

    def __init__(self, plan: EncodingPlan) -> None:
        self._plan = plan
        source = av.VideoFormat(plan.source_format, 16, 16)
        self._divisors = [(16 // c.width, 16 // c.height) for c in source.components]
        self._reformatter = VideoReformatter()
        self._palettes: Palettes | None = None
        self._format = plan.pixel_format
        if av.VideoFormat(plan.pixel_format).has_palette:
            self._format = FRAME_FORMAT
            alpha = any(c.is_alpha for c in source.components)
            self._palettes = Palettes(plan.size, alpha=alpha)
        self._same = plan.source_format == self._format and (
            source.is_rgb or plan.source_range == (plan.tags[3] or _RANGE_LIMITED)
        )

    def frame(self, planes: tuple[Tensor, ...]) -> av.VideoFrame:
        """One frame; it shares the planes' memory where nothing must be converted.

        Args:
            planes: Y, U, V and alpha where the plan has it, [H,W] each, rows contiguous. They must
                not change until the frame was encoded.
        """
        plan = self._plan
        height, width = planes[0].shape
        if (width, height) != plan.size:
            planes = tuple(
                _padded(p, -(-plan.size[0] // sx), -(-plan.size[1] // sy))
                for p, (sx, sy) in zip(planes, self._divisors, strict=True)
            )
        sx, sy = self._divisors[1]
        if plan.size[0] % sx or plan.size[1] % sy:
            frame = _copied(planes, plan.source_format)
        else:
            frame = av.VideoFrame.from_dlpack(planes, format=plan.source_format)
        if not self._same:
            frame = self._convert(frame)
        if self._palettes is not None:
            return self._palettes.apply(frame)
        # Some encoders (ProRes) write the tags of their frames, not those they were opened with.
        frame.colorspace, frame.color_primaries = plan.tags[0], plan.tags[1]
        frame.color_trc, frame.color_range = plan.tags[2], plan.tags[3]
        return frame

    def _convert(self, frame: av.VideoFrame) -> av.VideoFrame:
        plan = self._plan
        from_rgb, to_rgb = frame.format.is_rgb, av.VideoFormat(self._format).is_rgb
        if from_rgb and to_rgb:
            return self._reformatter.reformat(frame, format=self._format, threads=1)
        # From YUV to YUV the matrix stays what it is: only range, subsampling and depth change.
        source, target = _SWS_MATRICES[plan.source_matrix], _SWS_MATRICES["bt709"]
        return self._reformatter.reformat(
            frame,
            format=self._format,
            src_colorspace=None if from_rgb else source,
            dst_colorspace=target if from_rgb else source,
            src_color_range=_RANGE_FULL if from_rgb else plan.source_range,
            dst_color_range=_RANGE_FULL if to_rgb else plan.tags[3] or _RANGE_LIMITED,
            interpolation=_SWSCALE,
            threads=1,
        )


def _padded(plane: Tensor, width: int, height: int) -> Tensor:
    """The plane with its last column and row repeated up to a size."""
    h, w = plane.shape
    if (w, h) == (width, height):
        return plane
    out = torch.empty((height, width), dtype=plane.dtype)
    out[:h, :w] = plane
    out[:h, w:] = plane[:, -1:]
    out[h:] = out[h - 1]
    return out


def _copied(planes: tuple[Tensor, ...], pixel_format: str) -> av.VideoFrame:
    """A frame of its own memory: PyAV shares no odd-sized planes of subsampled formats."""
    height, width = planes[0].shape
    frame = av.VideoFrame(width, height, pixel_format)
    for target, plane in zip(frame.planes, planes, strict=True):
        item = plane.element_size()
        flat = torch.frombuffer(target, dtype=plane.dtype).view(-1, target.line_size // item)
        flat[: plane.shape[0], : plane.shape[1]] = plane
    return frame
