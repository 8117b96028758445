"""Pictures of the tasks: scikit-learn's photographs and what is cut from them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def luminance(name: str) -> np.ndarray:
  """Gives grey values in [0, 255] of a photograph, float64 [height, width].

  name: 'china.jpg' or 'flower.jpg'.
  """
  from sklearn.datasets import load_sample_image

  return load_sample_image(name).astype(float).mean(axis=2)


def windows(
  lines: np.ndarray,
  lags: int,
  ahead: int,
  counts: tuple[int, int],
  seed: int,
) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
  """Draws windows of grey values and the value some steps after each.

  Whole lines are either in train or hidden; a window occurs once.

  Args:
    lines: [lines, length].
    lags: length of a window.
    ahead: steps from its last value to the label.
    counts: windows drawn for train and for the hidden rows.

  Returns:
    windows [N, lags] with columns t0, t1, ...; labels [N]; is_train, bool [N].
  """
  rng = np.random.RandomState(seed)
  hidden_line = rng.permutation(len(lines)) < len(lines) * 0.4
  rows, values, is_train = [], [], []
  for hidden, count in zip((False, True), counts):
    pool = np.flatnonzero(hidden_line == hidden)
    for _ in range(count):
      line = lines[pool[rng.randint(len(pool))]]
      start = rng.randint(len(line) - lags - ahead)
      rows.append(line[start : start + lags])
      values.append(line[start + lags + ahead - 1])
      is_train.append(not hidden)
  x = pd.DataFrame(np.array(rows), columns=[f't{i}' for i in range(lags)])
  keep = ~x.duplicated().to_numpy()
  y = pd.Series(np.array(values)[keep])
  return x[keep].reset_index(drop=True), y, np.array(is_train)[keep]


def disc(
  size: int, row: float, column: float, radius: float | np.ndarray
) -> np.ndarray:
  """Draws a filled shape, bool [size, size].

  radius: of a circle, or one for each angle from 0 to 2 pi, evenly spaced.
  """
  rows, columns = np.mgrid[:size, :size]
  rows, columns = rows - row, columns - column
  reach = np.asarray(radius, dtype=float).reshape(-1).round(6)
  turn = (np.arctan2(rows, columns) / (2 * np.pi)) % 1.0
  # Nearest of the given angles; the mean would round a spike off.
  near = np.round((turn * len(reach)).round(6)).astype(int) % len(reach)
  return rows**2 + columns**2 <= reach[near] ** 2


def ground(
  rng: np.random.RandomState, size: int, spread: float, smooth: float
) -> np.ndarray:
  """Draws patches of light and shade around 0, float64 [size, size].

  Args:
    spread: standard deviation.
    smooth: pixels over which a patch reaches.
  """
  from scipy.ndimage import gaussian_filter

  values = gaussian_filter(rng.normal(0, 1, (size, size)), smooth, mode='wrap')
  return values / values.std() * spread


def clipped(image: np.ndarray) -> np.ndarray:
  """Rounds an image to whole numbers in [0, 255], uint8."""
  return np.clip(np.round(image), 0, 255).astype(np.uint8)


def encoded(image: np.ndarray, form: str) -> bytes:
  """Encodes an image as 'png' or 'jpeg'.

  image: uint8, [height, width] or [height, width, 3].
  """
  import io

  from PIL import Image

  out = io.BytesIO()
  Image.fromarray(image).save(out, form)
  return out.getvalue()


def dicom(image: np.ndarray, number: int) -> bytes:
  """Encodes a slice as DICOM, explicit little endian without compression.

  Tags and encoding: DICOM PS3.5 section 7 and annex A.2, PS3.10 section 7.1.

  Args:
    image: uint16, [height, width], at most 12 bits a pixel.
    number: of the slice, its InstanceNumber.
  """
  import struct

  def element(group: int, tag: int, kind: str, value: bytes) -> bytes:
    fill = b'\0' if kind in ('UI', 'OW', 'OB') else b' '
    value += fill * (len(value) % 2)
    head = struct.pack('<HH2s', group, tag, kind.encode())
    size = '<HI' if kind in ('OW', 'OB') else '<H'
    sizes = (0, len(value)) if kind in ('OW', 'OB') else (len(value),)
    return head + struct.pack(size, *sizes) + value

  def short(tag: int, value: int) -> bytes:
    return element(0x28, tag, 'US', struct.pack('<H', value))

  meta = element(2, 1, 'OB', b'\0\1')
  meta += element(2, 2, 'UI', b'1.2.840.10008.5.1.4.1.1.2')  # CT image
  meta += element(2, 3, 'UI', f'2.25.{number}'.encode())
  meta += element(2, 0x10, 'UI', b'1.2.840.10008.1.2.1')
  height, width = image.shape
  body = element(8, 0x60, 'CS', b'CT')
  body += element(0x20, 0x13, 'IS', str(number).encode())
  body += short(2, 1) + element(0x28, 4, 'CS', b'MONOCHROME2')
  body += short(0x10, height) + short(0x11, width)
  body += short(0x100, 16) + short(0x101, 12) + short(0x102, 11)
  body += short(0x103, 0)
  body += element(0x7FE0, 0x10, 'OW', image.astype('<u2').tobytes())
  length = element(2, 0, 'UL', struct.pack('<I', len(meta)))
  return b'\0' * 128 + b'DICM' + length + meta + body


def run_lengths(mask: np.ndarray) -> str:
  """Encodes a mask as starts and lengths, counted from 1 down the columns.

  mask: bool [height, width]. Returns '' for an empty mask.
  """
  flat = np.concatenate([[0], mask.T.ravel().astype(int), [0]])
  starts = np.flatnonzero(np.diff(flat) == 1) + 1
  ends = np.flatnonzero(np.diff(flat) == -1) + 1
  pairs = zip(starts, ends - starts, strict=True)
  return ' '.join(f'{start} {length}' for start, length in pairs)
