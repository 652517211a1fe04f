"""Face mesh: 468 points in three dimensions from one face crop.

Kartynnik, Ablavatski, Grishchenko, Grundmann 2019, "Real-time Facial Surface Geometry from
Monocular Video on Mobile GPUs"; the weights are those of MediaPipe's face_landmark.tflite.

Input: an upright face crop of CROP x CROP pixels, RGB 0..1, eyes level, the face about two thirds
of its side. No other normalisation.
"""

from __future__ import annotations

from torch import Tensor, nn

from facefusion_cli.nets.blaze import BlazeBlock, PReLU, SameConv2d

CROP = 192
"""Side of the input in pixels."""
POINTS = 468


class FaceMesh(nn.Module):
    """The network. Weights come from models/face_mesh.safetensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(SameConv2d(3, 16, stride=2), PReLU(16))
        self.trunk = nn.Sequential(  # side after it
            *(BlazeBlock(16, 16), BlazeBlock(16, 16)),  # 96
            *(BlazeBlock(16, 32, stride=2), BlazeBlock(32, 32), BlazeBlock(32, 32)),  # 48
            *(BlazeBlock(32, 64, stride=2), BlazeBlock(64, 64), BlazeBlock(64, 64)),  # 24
            *(BlazeBlock(64, 128, stride=2), BlazeBlock(128, 128), BlazeBlock(128, 128)),  # 12
            *(BlazeBlock(128, 128, stride=2), BlazeBlock(128, 128), BlazeBlock(128, 128)),  # 6
        )
        self.points = nn.Sequential(
            *(BlazeBlock(128, 128, stride=2), BlazeBlock(128, 128), BlazeBlock(128, 128)),  # 3
            *(nn.Conv2d(128, 32, 1), PReLU(32), BlazeBlock(32, 32)),
            nn.Conv2d(32, POINTS * 3, 3),  # 1
        )
        self.score = nn.Sequential(
            BlazeBlock(128, 128, stride=2),
            *(nn.Conv2d(128, 32, 1), PReLU(32), BlazeBlock(32, 32)),
            nn.Conv2d(32, 1, 3),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points and score of each crop.

        Args:
            x: [N,3,192,192] RGB 0..1.

        Returns:
            points: [N,468,3] x, y in crop pixels, not clipped, pixel centres at whole numbers
                (mirrored crops give points symmetric about 95.3; 95.5 would be exact, and 96 if
                pixels counted from their edge), and z on the same scale, relative to the head's
                centre, smaller towards the viewer.
            score: [N] logit that the crop holds a face; sigmoid makes it a probability.
        """
        x = self.trunk(self.stem(x))
        return self.points(x).reshape(-1, POINTS, 3), self.score(x).reshape(-1)
