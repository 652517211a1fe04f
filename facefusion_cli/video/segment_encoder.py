"""A clip encoded in parts that are kept on the disk until all of them are joined."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import av
from av.codec.context import Flags
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from torch import Tensor

from facefusion_cli.errors import EncodeError
from facefusion_cli.video.encode_thread import ClipEncoder
from facefusion_cli.video.encoders import configure
from facefusion_cli.video.frames import HostBatch
from facefusion_cli.video.pacing import Pacer, Shown
from facefusion_cli.video.segments import Checkpoint, SegmentFile, SegmentStore


class SegmentEncoder(ClipEncoder):
    """A ClipEncoder whose packets go to a store; finishing writes them all into the output.

    Each part has an encoder of its own, so it can be made without those before it. A part ends
    when the first batch behind it arrives, for only then is it known how long its last frame
    stands. The last part is not kept: it is joined at once.

    Args:
        *arguments: ClipEncoder's.
        store: Where parts are kept; encoding goes on behind those that are there.
        **more: ClipEncoder's.
    """

    def __init__(self, *arguments: Any, store: SegmentStore, **more: Any) -> None:
        if store.segments:
            more["start"] = Fraction(store.segments[-1].start)
        super().__init__(*arguments, **more)
        self._store = store
        self.frames = sum(segment.frames for segment in store.segments)
        self._report.count("frames_out", self.frames)
        self._behind: Checkpoint | None = None
        self._part: SegmentFile | None = None
        self._head = b""
        self._tick = 0

    def encode(self, batch: HostBatch, behind: Checkpoint | None = None) -> None:
        """Encodes a batch; see ClipEncoder.

        Args:
            batch: Frames.
            behind: Given where a part ends with this batch.
        """
        if self._behind is not None:
            with self._report.timer("write"):
                self._end_part(self._behind, batch.pts[0])
        self._behind = behind
        super().encode(batch)

    def drop(self) -> None:
        """Lets go of the part that is being made."""
        if self._part is not None:
            self._part.drop()
            self._part = None

    def _begin(self, batch: HostBatch) -> Pacer[tuple[Tensor, ...]]:
        pacer = super()._begin(batch)
        if self._store.segments:
            first, last = self._store.segments[0], self._store.segments[-1]
            origin = None if last.origin is None else Fraction(last.origin)
            pacer.resume(first.first, last.last, origin)
        return pacer

    def _show(self, shown: Shown[tuple[Tensor, ...]]) -> None:
        if self._part is None:
            self._begin_part()
        self._tick = shown.tick
        super()._show(shown)

    def _begin_part(self) -> None:
        context = av.CodecContext.create(self._codec, "w")
        assert isinstance(context, VideoCodecContext)
        configure(context, self._plan)
        # The output's header has what the first packet of each part would have otherwise.
        context.flags |= self._video.codec_context.flags & Flags.global_header
        context.open()
        self._coder, self._sent = context, 0
        self._head = bytes(context.extradata or b"")
        earlier = self._store.segments[-1].head if self._store.segments else None
        if earlier not in {None, hashlib.sha256(self._head).hexdigest()}:
            raise EncodeError(
                "the encoder is not the one that made the earlier segments",
                path=self._store.folder,
                hint="remove this folder and begin anew",
            )
        self._part = self._store.begin(self._time_base)

    def _end_part(self, behind: Checkpoint, following: Fraction) -> None:
        pacer = self._pacer
        assert pacer is not None
        for shown in pacer.close(following):
            if self._stop.is_set():
                return
            self._show(shown)
        if self._part is None:
            return
        self._encode(None)
        segments = self._store.segments
        self._part.finish(
            behind,
            frames=self.frames - sum(segment.frames for segment in segments),
            first=pacer.first or 0,
            last=self._tick,
            following=following,
            start=pacer.start,
            origin=pacer.origin,
            head=self._head,
        )
        self._part = None

    def _write(self, packet: Packet[VideoStream]) -> None:
        assert self._part is not None
        self._part.add(packet)

    def _complete(self) -> None:
        """Joins: writes the packets of all parts, and the sound beside them."""
        for packet in self._store.packets(self._part):
            if self._stop.is_set():
                return
            packet.stream = self._video
            super()._write(packet)
        self.drop()
