"""Sounds of the stand-ins: calls, noise, and files that hold them."""

from __future__ import annotations

import io
import wave

import numpy as np


def wav(samples: np.ndarray, rate: int) -> bytes:
  """Encodes a recording as a WAV file of one channel and 16 bits a sample.

  samples: in [-1, 1], [N]; what is beyond is clipped.
  """
  whole = np.round(np.clip(samples, -1, 1) * 32767).astype('<i2')
  out = io.BytesIO()
  with wave.open(out, 'wb') as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(rate)
    file.writeframes(whole.tobytes())
  return out.getvalue()


def tone(hertz: np.ndarray, rate: int) -> np.ndarray:
  """Makes a tone that swells and fades, in [-1, 1], float64 [N].

  hertz: its pitch at each sample, [N].
  """
  phase = 2 * np.pi * np.cumsum(hertz) / rate
  return np.sin(phase) * np.hanning(len(hertz))


def noise(rng: np.random.RandomState, count: int, dark: float) -> np.ndarray:
  """Draws noise of standard deviation 1, float64 [count].

  dark: from 0, all pitches alike, to below 1, low ones alone.
  """
  from scipy.signal import lfilter

  values = lfilter([1.0], [1.0, -dark], rng.normal(0, 1, count))
  return values / values.std()
