"""Iris: eye contour and iris from one eye crop.

Ablavatski, Vakunov, Grishchenko, Raveendran, Zhdanovich 2020, "Real-time Pupil Tracking from
Monocular Video for Digital Puppetry"; the weights are those of MediaPipe's iris_landmark.tflite.

Input: a levelled eye crop of CROP x CROP pixels, RGB 0..1, centred between the eye's corners, side
SIDE_PER_EYE times their distance. The network knows the eye on the image's left of an unmirrored
face (the subject's right eye); the other one goes in flipped left to right, and comes out so.
"""

from __future__ import annotations

from torch import Tensor, nn

from facefusion_cli.nets.blaze import Bottleneck, PReLU, SameConv2d

CROP = 64
"""Side of the input in pixels."""
SIDE_PER_EYE = 2.3
"""Side of the crop per distance between the corners of the eye."""
CONTOUR_POINTS = 71
IRIS_POINTS = 5


def _branch(outputs: int) -> nn.Sequential:
    return nn.Sequential(  # side after it
        *(Bottleneck(128, 128), Bottleneck(128, 128)),  # 8
        *(Bottleneck(128, 128, stride=2), Bottleneck(128, 128), Bottleneck(128, 128)),  # 4
        *(Bottleneck(128, 128, stride=2), Bottleneck(128, 128), Bottleneck(128, 128)),  # 2
        nn.Conv2d(128, outputs, 2),  # 1
    )


class Iris(nn.Module):
    """The network. Weights come from models/iris.safetensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(SameConv2d(3, 64, stride=2), PReLU(64))
        self.trunk = nn.Sequential(
            *(Bottleneck(64, 64) for _ in range(4)),  # 32
            *(Bottleneck(64, 128, stride=2), *(Bottleneck(128, 128) for _ in range(4))),  # 16
            Bottleneck(128, 128, stride=2),  # 8
        )
        self.contour = _branch(CONTOUR_POINTS * 3)
        self.iris = _branch(IRIS_POINTS * 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points of each eye crop.

        Args:
            x: [N,3,64,64] RGB 0..1.

        Returns:
            contour: [N,71,3] x, y in crop pixels and z on the same scale: lids, then rings around
                them and the brow.
            iris: [N,5,3] centre of the iris, then four points of its rim.
        """
        x = self.trunk(self.stem(x))
        contour = self.contour(x).reshape(-1, CONTOUR_POINTS, 3)
        return contour, self.iris(x).reshape(-1, IRIS_POINTS, 3)
