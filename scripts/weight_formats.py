"""Readers for the three formats in which the shipped networks were published.

ONNX is read from its protobuf wire format, TFLite from its FlatBuffers layout and dlib's .dat from
its own serialisation, so that building the models needs none of those libraries. Each reader
returns fp32 numpy arrays in the order and layout of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class FormatError(ValueError):
    """The bytes are not what the format says."""


# ---- ONNX ---------------------------------------------------------------------------------------


def wire_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Fields of one protobuf message: (number, integer) or (number, bytes).

    Raises:
        FormatError: The message ends inside a field, or has a wire type protobuf does not use.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data):
                raise FormatError("protobuf message ends inside a number")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
            continue
        if wire not in (1, 2, 5):
            raise FormatError(f"protobuf wire type {wire}")
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        if at + size > len(data):
            raise FormatError("protobuf message ends inside a field")
        yield number, data[at : at + size]
        at += size


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise FormatError("a number where bytes belong")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_bytes(value)).decode()


@dataclass(slots=True)
class OnnxNode:
    """One operator of the graph."""

    op: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def _onnx_node(data: memoryview) -> OnnxNode:
    node = OnnxNode()
    for number, value in wire_fields(data):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 4:
            node.op = _text(value)
    return node


def _onnx_tensor(data: memoryview) -> tuple[str, Array | None]:
    """Name and fp32 value of a TensorProto; None where it holds another type."""
    name, kind, shape, raw = "", 0, [], memoryview(b"")
    for number, value in wire_fields(data):
        if number == 1:
            if isinstance(value, int):
                shape.append(value)
            else:
                shape.extend(int(v) for v in _packed(value))
        elif number == 2 and isinstance(value, int):
            kind = value
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = _bytes(value)
    if kind != 1:
        return name, None
    return name, np.frombuffer(raw, "<f4").reshape(shape)


def _packed(data: memoryview) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def read_onnx(data: bytes) -> tuple[list[OnnxNode], dict[str, Array]]:
    """Operators in graph order, and fp32 initialisers by name.

    An initialiser that an Identity operator hands on is found under both names.
    """
    nodes: list[OnnxNode] = []
    tensors: dict[str, Array] = {}
    for number, graph in wire_fields(memoryview(data)):
        if number != 7:
            continue
        for part, value in wire_fields(_bytes(graph)):
            if part == 1:
                nodes.append(_onnx_node(_bytes(value)))
            elif part == 5:
                name, tensor = _onnx_tensor(_bytes(value))
                if tensor is not None:
                    tensors[name] = tensor
    if not nodes:
        raise FormatError("no ONNX graph in these bytes")
    for node in nodes:
        if node.op == "Identity" and node.inputs[0] in tensors:
            tensors[node.outputs[0]] = tensors[node.inputs[0]]
    return nodes, tensors


# ---- TFLite -------------------------------------------------------------------------------------

TFLITE_FLOAT32 = 0
"""TensorType of the schema."""


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A FlatBuffers table: fields by number, as the schema orders them. Absent ones read as 0."""

    data: bytes
    at: int

    def _field(self, number: int) -> int | None:
        vtable = self.at - _scalar(self.data, self.at, "<i4")
        slot = 4 + 2 * number
        if slot >= _scalar(self.data, vtable, "<u2"):
            return None
        offset = _scalar(self.data, vtable + slot, "<u2")
        return self.at + offset if offset else None

    def integer(self, number: int, kind: str) -> int:
        """A scalar field of a numpy type such as "<u4"."""
        at = self._field(number)
        return 0 if at is None else _scalar(self.data, at, kind)

    def vector(self, number: int, kind: str) -> NDArray[Any]:
        """A vector of scalars of a numpy type."""
        at = self._field(number)
        if at is None:
            return np.empty(0, kind)
        at += _scalar(self.data, at, "<u4")
        count = _scalar(self.data, at, "<u4")
        if at + 4 + count * np.dtype(kind).itemsize > len(self.data):
            raise FormatError("flatbuffer vector reaches past the end")
        return np.frombuffer(self.data, kind, count, at + 4)

    def tables(self, number: int) -> list[FlatTable]:
        """A vector of tables."""
        at = self._field(number)
        if at is None:
            return []
        first = at + _scalar(self.data, at, "<u4") + 4
        offsets = self.vector(number, "<u4")
        places = [first + 4 * i + int(o) for i, o in enumerate(offsets)]
        return [FlatTable(self.data, place) for place in places]


def _scalar(data: bytes, at: int, kind: str) -> int:
    if not 0 <= at <= len(data) - np.dtype(kind).itemsize:
        raise FormatError("flatbuffer points past its end")
    return int(np.frombuffer(data, kind, 1, at)[0])


def read_tflite(data: bytes, output: int) -> list[Array]:
    """Constant fp32 tensors that an output depends on, in execution order.

    Args:
        data: The file. Field numbers below are those of TFLite's published schema.
        output: Which output of the model.
    """
    if data[4:8] != b"TFL3":
        raise FormatError("no TFLite model in these bytes")
    model = FlatTable(data, _scalar(data, 0, "<u4"))
    graphs, buffers = model.tables(2), model.tables(4)
    if not graphs or not buffers:
        raise FormatError("a TFLite model without graph or buffers")
    tensors, outputs = graphs[0].tables(0), graphs[0].vector(2, "<i4")
    operators = graphs[0].tables(3)
    needed = {int(outputs[output])}
    weights: list[Array] = []
    # Operators are stored so that each stands after those it reads: backwards finds them all.
    for operator in reversed(operators):
        if needed.isdisjoint(int(t) for t in operator.vector(2, "<i4")):
            continue
        inputs = [int(t) for t in operator.vector(1, "<i4")]
        needed.update(inputs)
        for tensor in (tensors[i] for i in reversed(inputs)):
            raw = buffers[tensor.integer(2, "<u4")].vector(0, "<u1")
            if tensor.integer(1, "<i1") == TFLITE_FLOAT32 and raw.size:
                weights.append(raw.view("<f4").reshape(tensor.vector(0, "<i4")))
    return weights[::-1]


# ---- dlib ---------------------------------------------------------------------------------------


def dlib_integer(data: bytes, at: int) -> tuple[int, int]:
    """One of dlib's integers and the offset after it.

    A control byte (low nibble: how many bytes follow; 0x80: negative), then little-endian bytes.
    """
    if at >= len(data):
        raise FormatError("dlib file ends inside a number")
    control = data[at]
    size = control & 0x0F
    if size > 8 or at + 1 + size > len(data):
        raise FormatError(f"no dlib integer at byte {at}")
    value = int.from_bytes(data[at + 1 : at + 1 + size], "little")
    return (-value if control & 0x80 else value), at + 1 + size


def dlib_tensor(data: bytes, at: int) -> tuple[Array, int]:
    """One tensor (version 2, then n, k, nr, nc, then raw fp32) and the offset after it."""
    version, at = dlib_integer(data, at)
    if version != 2:
        raise FormatError(f"dlib tensor of version {version} at byte {at}")
    shape = []
    for _ in range(4):
        size, at = dlib_integer(data, at)
        shape.append(size)
    count = int(np.prod(shape))
    if count < 0 or at + 4 * count > len(data):
        raise FormatError(f"dlib tensor {shape} reaches past the end")
    value = np.frombuffer(data, "<f4", count, at).reshape(shape)
    return value, at + 4 * count


def read_dlib_resnet(data: bytes) -> list[tuple[str, Array]]:
    """(tag, tensor) of every con_4, affine_ and fc_2 layer, in file order: input to output."""
    layers: list[tuple[str, Array]] = []
    at = 0
    tags = (b"con_4", b"affine_", b"fc_2")
    while True:
        found = [(p, t) for t in tags if (p := data.find(t, at)) >= 0]
        if not found:
            break
        start, tag = min(found)
        at = start + len(tag)
        if tag == b"fc_2":
            for _ in range(2):
                _, at = dlib_integer(data, at)
        try:
            tensor, after = dlib_tensor(data, at)
        except FormatError:
            # The same letters inside a longer tag or inside raw numbers are no layer.
            continue
        layers.append((tag.decode(), tensor))
        at = after
    if not layers:
        raise FormatError("no dlib layers in these bytes")
    return layers
