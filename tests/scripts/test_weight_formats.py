"""Readers of published weights, on small files made here byte by byte."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import weight_formats
from weight_formats import FormatError, read_dlib_resnet, read_onnx, read_tflite, wire_fields

# ---- ONNX ----


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def chunk(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def onnx_tensor(name: str, values: np.ndarray, *, packed: bool) -> bytes:
    dims = values.shape
    shape = (
        chunk(1, b"".join(map(varint, dims))) if packed else b"".join(number(1, d) for d in dims)
    )
    return shape + number(2, 1) + chunk(8, name.encode()) + chunk(9, values.tobytes())


def onnx_node(op: str, inputs: list[str], output: str) -> bytes:
    names = b"".join(chunk(1, i.encode()) for i in inputs)
    return names + chunk(2, output.encode()) + chunk(4, op.encode())


@pytest.mark.parametrize("packed", [True, False])
def test_onnx_nodes_initialisers_and_aliases(packed: bool) -> None:
    weight = np.arange(300, dtype=np.float32).reshape(150, 2)
    indices = number(1, 1) + number(2, 7) + chunk(8, b"shape") + chunk(9, bytes(8))
    graph = (
        chunk(1, onnx_node("Identity", ["w"], "again"))
        + chunk(1, onnx_node("Conv", ["x", "again"], "y"))
        + chunk(5, onnx_tensor("w", weight, packed=packed))
        + chunk(5, indices)
    )
    nodes, tensors = read_onnx(number(1, 8) + chunk(7, graph))
    assert [(n.op, n.inputs, n.outputs) for n in nodes] == [
        ("Identity", ["w"], ["again"]),
        ("Conv", ["x", "again"], ["y"]),
    ]
    # The int64 tensor is no weight; Identity gives the initialiser a second name.
    assert sorted(tensors) == ["again", "w"]
    assert np.array_equal(tensors["again"], weight)


def test_protobuf_fields_of_every_wire_type() -> None:
    data = number(1, 300) + varint(2 << 3 | 1) + bytes(8) + varint(3 << 3 | 5) + b"abcd"
    fields = [(n, v if isinstance(v, int) else bytes(v)) for n, v in wire_fields(memoryview(data))]
    assert fields == [(1, 300), (2, bytes(8)), (3, b"abcd")]


@pytest.mark.parametrize(
    "data", [b"\x08", b"\x0a\x05abc", b"\x0b", b"\x09\x00", b"\x08\xff\xff"], ids=repr
)
def test_damaged_protobuf(data: bytes) -> None:
    with pytest.raises(FormatError):
        list(wire_fields(memoryview(data)))


def test_no_graph() -> None:
    with pytest.raises(FormatError, match="no ONNX graph"):
        read_onnx(number(1, 8))


# ---- TFLite ----


class FlatBuilder:
    """Writes tables front to back, children after parents, and patches offsets once known."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0\0\0\0TFL3")

    def patch(self, at: int) -> None:
        """What follows is what the offset at this place points to."""
        self.data += bytes(-len(self.data) % 4)
        struct.pack_into("<I", self.data, at, len(self.data) - at)

    def table(self, fields: dict[int, str]) -> dict[int, int]:
        """A table with inline fields {number: struct letter}; returns where each one lies."""
        count = max(fields, default=-1) + 1
        places, offset = {}, 4
        for field, letter in fields.items():
            offset += -offset % struct.calcsize(letter)
            places[field] = offset
            offset += struct.calcsize(letter)
        at = len(self.data)
        self.data += bytes(offset + -offset % 4)
        vtable = len(self.data)
        struct.pack_into("<i", self.data, at, at - vtable)
        slots = [places.get(field, 0) for field in range(count)]
        self.data += struct.pack(f"<{2 + count}H", 4 + 2 * count, offset, *slots)
        return {field: at + place for field, place in places.items()}

    def set(self, at: int, letter: str, value: int) -> None:
        struct.pack_into(f"<{letter}", self.data, at, value)

    def vector(self, at: int, values: np.ndarray) -> None:
        self.patch(at)
        self.data += struct.pack("<I", len(values)) + values.tobytes()

    def tables(self, at: int, count: int) -> list[int]:
        """A vector of tables; returns where to patch each one's offset."""
        self.vector(at, np.zeros(count, "<u4"))
        return [len(self.data) - 4 * count + 4 * i for i in range(count)]


def tflite_model(operators: list[tuple[list[int], list[int]]], outputs: list[int]) -> bytes:
    """Tensors 0 to 3; 1 and 3 hold weights [1,2] and [3,4,5], tensor 2 holds int32 ones."""
    ints = np.ones(2, "<i4").view("<u1")
    content = [None, np.array([1, 2], "<f4"), ints, np.array([3, 4, 5], "<f4"), None, None]
    b = FlatBuilder()
    b.patch(0)
    model = b.table({2: "I", 4: "I"})
    (graph_at,) = b.tables(model[2], 1)
    buffers_at = b.tables(model[4], len(content))
    b.patch(graph_at)
    graph = b.table({0: "I", 2: "I", 3: "I"})
    tensors_at = b.tables(graph[0], len(content))
    b.vector(graph[2], np.array(outputs, "<i4"))
    operators_at = b.tables(graph[3], len(operators))
    for i, (at, values) in enumerate(zip(tensors_at, content, strict=True)):
        b.patch(at)
        tensor = b.table({0: "I", 1: "b", 2: "I"})
        b.set(tensor[1], "b", 2 if i == 2 else 0)
        b.set(tensor[2], "I", i)
        b.vector(tensor[0], np.array([1 if values is None else values.size], "<i4"))
    for at, (inputs, results) in zip(operators_at, operators, strict=True):
        b.patch(at)
        operator = b.table({1: "I", 2: "I"})
        b.vector(operator[1], np.array(inputs, "<i4"))
        b.vector(operator[2], np.array(results, "<i4"))
    for at, values in zip(buffers_at, content, strict=True):
        b.patch(at)
        if values is None:
            b.table({})
        else:
            b.vector(b.table({0: "I"})[0], values.view("<u1"))
    return bytes(b.data)


def test_tflite_weights_of_one_output_in_execution_order() -> None:
    # 0 -(weights 1, integers 2)-> 4, then 4 -(weights 3)-> 5: outputs 5 and 4.
    data = tflite_model([([0, 1, 2], [4]), ([4, 3], [5])], [5, 4])
    assert [w.tolist() for w in read_tflite(data, 0)] == [[1, 2], [3, 4, 5]]
    assert [w.tolist() for w in read_tflite(data, 1)] == [[1, 2]]


def test_damaged_tflite() -> None:
    data = tflite_model([([0, 1], [4])], [4])
    with pytest.raises(FormatError, match="no TFLite model"):
        read_tflite(b"\0" * 64, 0)
    refused = 0
    for size in range(8, len(data)):
        try:  # what lies behind the cut may be weights that this output does not need
            assert [w.tolist() for w in read_tflite(data[:size], 0)] == [[1, 2]]
        except FormatError:
            refused += 1
    assert refused > 0.8 * len(data)


# ---- dlib ----


def dlib_int(value: int) -> bytes:
    size = max(1, (abs(value).bit_length() + 7) // 8)
    return bytes([size | (0x80 if value < 0 else 0)]) + abs(value).to_bytes(size, "little")


def dlib_tensor(values: list[float]) -> bytes:
    head = b"".join(map(dlib_int, (2, len(values), 1, 1, 1)))
    return head + np.array(values, "<f4").tobytes()


@pytest.mark.parametrize("value", [0, 1, 255, 256, 70000, -5])
def test_dlib_integers(value: int) -> None:
    data = b"x" + dlib_int(value) + b"rest"
    assert weight_formats.dlib_integer(data, 1) == (value, len(data) - 4)


def test_dlib_layers_in_order_and_what_only_looks_like_one() -> None:
    data = (
        b"loss_metric_2 con_4 is mentioned here"
        + (b"con_4" + dlib_tensor([1, 2, 3]))
        + (b"affine_" + dlib_tensor([4, 5]))
        + (b"fc_2" + dlib_int(128) + dlib_int(0) + dlib_tensor([6]))
    )
    layers = [(tag, values.ravel().tolist()) for tag, values in read_dlib_resnet(data)]
    assert layers == [("con_4", [1, 2, 3]), ("affine_", [4, 5]), ("fc_2", [6])]


@pytest.mark.parametrize(
    "data", [b"", b"nothing", b"con_4" + dlib_tensor([1.0, 2.0])[:-1]], ids=["none", "text", "cut"]
)
def test_no_dlib_layers(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_dlib_resnet(data)
