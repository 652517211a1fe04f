"""Vertices of the 468-point mesh by the part of the face they describe.

Numbers are those of the published MediaPipe face mesh. Left and right are the subject's.
"""

from __future__ import annotations


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split())


OVAL = _numbers(
    "10 338 297 332 284 251 389 356 454 323 361 288 397 365 379 378 400 377 152 148 176 149 150 136"
    " 172 58 132 93 234 127 162 21 54 103 67 109"
)
"""The outline of the face, a closed loop; the only boundary of the mesh."""
OVAL_LOW = _numbers(
    "389 356 454 323 361 288 397 365 379 378 400 377 152 148 176 149 150 136 172 58 132 93 234 127"
    " 162"
)
"""The outline below the forehead, from temple round the chin to temple."""
FOREHEAD_BROW = _numbers("70 63 105 66 107 9 336 296 334 293 300")
FOREHEAD_MID = _numbers("71 68 104 69 108 151 337 299 333 298 301")
FOREHEAD_TOP = _numbers("21 54 103 67 109 10 338 297 332 284 251")
"""Rows of the forehead in eleven columns, from the image's left to its right."""
EYE_RIGHT = _numbers("33 7 163 144 145 153 154 155 133 173 157 158 159 160 161 246")
EYE_LEFT = _numbers("263 249 390 373 374 380 381 382 362 398 384 385 386 387 388 466")
LIPS_OUTER = _numbers("61 146 91 181 84 17 314 405 321 375 291 409 270 269 267 0 37 39 40 185")
LIPS_INNER = _numbers("78 95 88 178 87 14 317 402 318 324 308 415 310 311 312 13 82 81 80 191")
BROW_RIGHT = _numbers("70 63 105 66 107 55 65 52 53 46")
BROW_LEFT = _numbers("300 293 334 296 336 285 295 282 283 276")
CHEEK_LEFT = _numbers("280 411 425 266 330 347 346 352 376 427 436 426 423")
CHEEK_RIGHT = _numbers("50 187 205 36 101 118 117 123 147 207 216 206 203")
NOSE = _numbers("6 45 4 275")
"""Cheeks and nose as sets whose convex hulls are bare skin on nearly every face."""
NOSE_TIP = _numbers("1 4 5")
FACE_CENTRE = _numbers("6 197 195 5 4")
"""The bridge of the nose: what the outline is measured from."""
EYE_OUTER_RIGHT, EYE_OUTER_LEFT = 33, 263
LIP_TOP, LIP_BOTTOM = 13, 14
RIGID = _numbers(
    "33 133 362 263 168 6 197 195 5 4 1 2 98 327 9 151 10 234 454 127 356 93 323 132 361 109 338 67"
    " 297 103 332"
)
"""Vertices that expressions hardly move."""
CARRY_CONTROLS = _numbers("33 133 362 263 1 2 4 5 6 168 197 98 327 48 278 105 66 334 296 9 151")
"""Where the two faces' shapes are compared: eye corners, nose, brows, forehead."""
