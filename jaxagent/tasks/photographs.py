"""Photographs and textures that scikit-image ships.

Its files are read from a folder of packages and never imported (`kit.Packaged`). They are
all PNG, which every decoder reads alike.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from jaxagent.tasks import kit

_SHA256 = {
  'astronaut': '88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5',
  'brick': '7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf',
  'camera': 'b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a',
  'chelsea': '596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb',
  'coffee': 'cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7',
  'coins': 'f8d773fc9cfa6f4d8e5942dc34d0a0788fcaed2a4fefbbed0aef5398d7ef4cba',
  'grass': 'b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89',
  'gravel': 'c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12',
  'ihc': 'f8dd1aa387ddd1f49d8ad13b50921b237df8e9b262606d258770687b0ef93cef',
  'motorcycle_left': 'db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179',
  'page': '341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3',
  'text': 'bd84aa3a6e3c9887850d45d606c96b2e59433fbef50338570b63c319e668e6d1',
}


def _path(name: str) -> str:
  return f'skimage/data/{name}.png'


def packaged(*names: str) -> kit.Packaged:
  """Names the files of these pictures, such as 'coffee', with their checksums."""
  return kit.Packaged(
    'scikit-image', '0.26.0', {_path(name): _SHA256[name] for name in names}
  )


def decoded(files: Mapping[str, bytes], name: str, mode: str) -> np.ndarray:
  """Decodes a picture, uint8: [height, width, 3] of 'RGB', [height, width] of 'L'."""
  from PIL import Image

  return np.asarray(Image.open(io.BytesIO(files[_path(name)])).convert(mode))


def tiles(picture: np.ndarray, size: int) -> list[np.ndarray]:
  """Cuts a picture into squares, none over another; what is left over is dropped.

  picture: [height, width, ...]. Returns arrays [size, size, ...], row by row.
  """
  height, width = (length // size for length in picture.shape[:2])
  return [
    picture[r * size : (r + 1) * size, c * size : (c + 1) * size]
    for r in range(height)
    for c in range(width)
  ]
