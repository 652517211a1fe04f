"""The networks that ship with ffx, ready to run: weights verified, on the device, in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from facefusion_cli.errors import ModelCorrupt
from facefusion_cli.nets.dlib_resnet import DlibResNet
from facefusion_cli.nets.face_mesh import FaceMesh
from facefusion_cli.nets.iris import Iris
from facefusion_cli.nets.retinaface import RetinaFace
from facefusion_cli.report import Report
from facefusion_cli.zoo.manifest import REINSTALL, load_manifest, read_verified

Net = TypeVar("Net", bound=nn.Module)


def load_retinaface(device: torch.device | str = "cpu", report: Report | None = None) -> RetinaFace:
    """Face detection; see nets/retinaface.py for its input.

    Args:
        device: Where the weights go, fp32.
        report: Where the file's sha256 is recorded.

    Raises:
        ModelMissing: The weights file is absent.
        ModelCorrupt: It differs from the manifest, or holds other tensors than the network.
    """
    return _load("retinaface", RetinaFace, device, report)


def load_face_mesh(device: torch.device | str = "cpu", report: Report | None = None) -> FaceMesh:
    """Dense landmarks; see nets/face_mesh.py. Arguments and errors as load_retinaface."""
    return _load("face_mesh", FaceMesh, device, report)


def load_iris(device: torch.device | str = "cpu", report: Report | None = None) -> Iris:
    """Lids and irises; see nets/iris.py. Arguments and errors as load_retinaface."""
    return _load("iris", Iris, device, report)


def load_dlib_resnet(
    device: torch.device | str = "cpu", report: Report | None = None
) -> DlibResNet:
    """Identity vectors; see nets/dlib_resnet.py. Arguments and errors as load_retinaface."""
    return _load("dlib_resnet", DlibResNet, device, report)


def _load(
    name: str, make: Callable[[], Net], device: torch.device | str, report: Report | None
) -> Net:
    file = load_manifest()[name]
    data = read_verified(file, report)
    with torch.device("meta"):  # no time for random weights that the file replaces at once
        net = make()
    try:
        net.load_state_dict(load(data), assign=True)
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelCorrupt(
            f"the weights of {file.title} do not fit the network ({reason})",
            path=file.path,
            hint=REINSTALL,
        ) from error
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    # torch's convolutions on CPUs run the depthwise networks up to twice as fast in this order.
    return net.eval().to(device=device).to(memory_format=torch.channels_last)
