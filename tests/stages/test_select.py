"""Which faces get the source."""

from dataclasses import replace

import torch

from facefusion_cli.stages.select import Selector
from facefusion_cli.types import Faces


def faces(*rows: tuple[int, int, float]) -> Faces:
    """Faces as (frame, track, side)."""
    side = torch.tensor([s for _, _, s in rows])
    zero = torch.zeros(len(rows))
    return replace(
        Faces(
            frame=torch.tensor([f for f, _, _ in rows]),
            box=torch.stack([zero, zero, side, side], -1),
            score=zero + 0.9,
            points5=torch.zeros(len(rows), 5, 2),
        ),
        track=torch.tensor([t for _, t, _ in rows]),
    )


def test_all_means_all() -> None:
    assert Selector("all").select(faces((0, 0, 10), (0, 1, 99))).identity.tolist() == [0, 0]


def test_largest_picks_one_a_frame() -> None:
    chosen = Selector("largest").select(faces((0, 0, 50), (0, 1, 99), (1, 0, 50), (1, 1, 99)))
    assert chosen.identity.tolist() == [-1, 0, -1, 0]


def test_two_faces_of_a_size_do_not_take_turns() -> None:
    selector = Selector("largest")
    assert selector.select(faces((0, 0, 100), (0, 1, 99))).identity.tolist() == [0, -1]
    assert selector.select(faces((0, 0, 99), (0, 1, 105))).identity.tolist() == [0, -1]
    # Clearly larger, it is.
    assert selector.select(faces((0, 0, 99), (0, 1, 180))).identity.tolist() == [-1, 0]


def test_a_frame_without_the_chosen_face_takes_the_largest_there() -> None:
    selector = Selector("largest")
    selector.select(faces((0, 0, 100)))
    assert selector.select(faces((0, 1, 40), (0, 2, 60))).identity.tolist() == [-1, 0]
