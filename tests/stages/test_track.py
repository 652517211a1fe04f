"""Which frames the detector sees, what is carried between them, and stable ids."""

from dataclasses import replace
from fractions import Fraction

import torch

from facefusion_cli.stages.landmark import Regions
from facefusion_cli.stages.track import CERTAIN_STILL, Tracker, doubtful
from facefusion_cli.types import ColorSpec, Faces, FrameBatch, PlaneLayout, cat_faces
from facefusion_cli.zoo.topology import load_topology


def batch(levels: list[int], first: int = 0) -> FrameBatch:
    """Flat frames of the given luma levels."""
    y = torch.stack([torch.full((90, 160), v, dtype=torch.uint8) for v in levels])
    c = torch.full((len(levels), 45, 80), 128, dtype=torch.uint8)
    pts = tuple(Fraction(first + i, 25) for i in range(len(levels)))
    return FrameBatch((y, c, c.clone()), ColorSpec(), PlaneLayout(), pts, first)


def faces(*spots: tuple[int, float, float]) -> Faces:
    """Faces about 150 px high, as (frame, x, y) of the middle."""
    model = load_topology().vertices_cm * torch.tensor([8.0, -8.0, -8.0])
    mesh = torch.stack([model + torch.tensor([x, y, 0.0]) for _, x, y in spots])
    xy = mesh[..., :2]
    return Faces(
        frame=torch.tensor([k for k, _, _ in spots]),
        box=torch.cat([xy.amin(1), xy.amax(1)], -1),
        score=torch.linspace(0.99, 0.95, len(spots)),
        points5=xy[:, [33, 263, 1, 61, 291]],
        mesh=mesh,
    )


def test_the_first_batch_is_detected_whole_and_later_ones_at_their_end() -> None:
    tracker = Tracker()
    assert tracker.keyframes(batch([100] * 4)) == [0, 1, 2, 3]
    tracker.track(batch([100] * 4), faces((3, 300, 300)))
    assert tracker.keyframes(batch([100] * 4, 4)) == [3]


def test_a_cut_sends_every_frame_to_the_detector() -> None:
    tracker = Tracker()
    tracker.keyframes(batch([100] * 4))
    tracker.track(batch([100] * 4), faces((3, 300, 300)))
    assert tracker.keyframes(batch([100, 100, 160, 160], 4)) == [0, 1, 2, 3]
    # A cut between two batches is one too.
    assert tracker.keyframes(batch([30] * 4, 8)) == [0, 1, 2, 3]
    assert tracker.keyframes(batch([30] * 4, 12)) == [3]


def test_regions_between_two_known_ends_lie_on_the_line() -> None:
    tracker = Tracker()
    tracker.track(batch([100]), faces((0, 100, 200)))
    regions = tracker.carry(batch([100] * 4), faces((3, 140, 200)))
    assert regions is not None
    assert regions.frame.tolist() == [0, 1, 2]
    step = (regions.centre[1:, 0] - regions.centre[:-1, 0]).tolist()
    assert [round(s, 3) for s in step] == [10.0, 10.0]


def test_nothing_is_carried_where_a_face_came_or_went() -> None:
    tracker = Tracker()
    tracker.track(batch([100]), faces((0, 100, 200)))
    assert tracker.carry(batch([100] * 4), faces((3, 105, 200), (3, 500, 200))) is None
    assert tracker.carry(batch([100] * 4), faces((3, 900, 200))) is None


def test_ids_follow_faces_that_move_and_are_new_for_new_ones() -> None:
    tracker = Tracker()
    four = batch([100] * 4)
    walk = faces(*((k, 100 + 15 * k, 200) for k in range(4)), *((k, 500, 200) for k in (2, 3)))
    tracked = tracker.track(four, walk)
    assert tracked.frame.tolist() == [0, 1, 2, 2, 3, 3]
    assert tracked.track is not None
    by_place = {
        (int(f), bool(x > 400)): int(t)
        for f, x, t in zip(tracked.frame, tracked.mesh[:, 1, 0], tracked.track, strict=True)
    }
    assert {by_place[k, False] for k in range(4)} == {0}
    assert {by_place[k, True] for k in (2, 3)} == {1}
    again = tracker.track(batch([100], 4), faces((0, 505, 200), (0, 160, 200)))
    assert again.track is not None
    assert sorted(again.track.tolist()) == [0, 1]
    assert again.track[again.mesh[:, 1, 0] > 400].tolist() == [1]


def test_two_meshes_on_one_face_are_one() -> None:
    tracked = Tracker().track(batch([100]), faces((0, 300, 200), (0, 303, 201)))
    assert len(tracked) == 1
    assert round(float(tracked.score[0]), 3) == 0.99


def scored(score: float, *spots: tuple[int, float, float]) -> Faces:
    found = faces(*spots)
    return replace(found, score=torch.full_like(found.score, score))


def test_a_track_counts_once_it_was_certain() -> None:
    tracker = Tracker()
    four = batch([100] * 4)
    foliage = scored(0.86, *((k, 300, 200) for k in range(4)))
    assert len(tracker.track(four, foliage)) == 0
    # One certain look is enough: for the rest of its batch and for later, doubtful looks.
    late = cat_faces([scored(0.5, (0, 300, 200), (1, 300, 200)), scored(0.95, (2, 300, 200))])
    assert len(tracker.track(batch([100] * 3, 4), late)) == 3
    assert len(tracker.track(batch([100], 7), scored(0.3, (0, 300, 200)))) == 1
    # Another place is another track.
    assert len(tracker.track(batch([100], 8), scored(0.3, (0, 900, 200)))) == 0


def test_a_still_asks_for_less() -> None:
    assert len(Tracker(CERTAIN_STILL).track(batch([100]), scored(0.6, (0, 300, 200)))) == 1
    assert len(Tracker(CERTAIN_STILL).track(batch([100]), scored(0.2, (0, 300, 200)))) == 0


def test_doubt_names_the_frames() -> None:
    zeros = torch.zeros(4)
    regions = Regions(torch.tensor([0, 1, 1, 2]), torch.zeros(4, 2), zeros, zeros, zeros)
    assert doubtful(torch.tensor([0.9, 0.9, 0.2, 0.1]), regions) == [1, 2]


def test_a_tracker_goes_on_from_a_saved_state() -> None:
    def run(tracker: Tracker, first: int) -> list[object]:
        frames = batch([100 + first] * 4, first)
        keys = tracker.keyframes(frames)
        found = tracker.track(frames, faces((0, 100 + first, 200), (3, 130 + first, 200)))
        assert found.track is not None
        return [keys, found.track.tolist()]

    whole = Tracker()
    expected = [run(whole, first) for first in (0, 4, 8)]
    before = Tracker()
    begun = [run(before, first) for first in (0, 4)]
    after = Tracker()
    after.restore(before.state(), torch.device("cpu"))
    assert [*begun, run(after, 8)] == expected
    # Nothing seen yet is a state too; without one the third batch would be detected whole.
    fresh = Tracker()
    fresh.restore(Tracker().state(), torch.device("cpu"))
    assert run(fresh, 0) == expected[0]
    assert run(Tracker(), 8) != expected[2]
