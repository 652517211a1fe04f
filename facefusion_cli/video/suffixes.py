"""Output suffixes and the formats they mean."""

from __future__ import annotations

CONTAINERS = {
    ".mp4": "mp4",
    ".mov": "mov",
    ".mkv": "matroska",
    ".webm": "webm",
    ".gif": "gif",
}
"""Video suffix to FFmpeg's name of the container."""

IMAGES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
"""Image suffix to Pillow's name of the format."""

PICTURES = {*IMAGES, ".tif", ".tiff", ".bmp", ".heic", ".heif", ".avif"}
"""Suffixes by which a file in a folder of images is meant to be one, be it readable or not."""
