"""Ways to find the pixels of an image that belong to something.

Those of `mask_of` take grey images [height, width], those of `contrail_of` eight frames
of a band in kelvin [height, width, 8]. All return bool [height, width].
"""

from jaxagent.stand_ins.ways.way import Way

MASK_OF = (
  Way(
    0.4,
    'the pixels below percentile {n}',
    """
def mask_of(grey):
  return grey < np.percentile(grey, {n})
""",
    (30, 90, 10),
  ),
  Way(
    0.4,
    'the pixels above the mean',
    """
def mask_of(grey):
  return grey > grey.mean()
""",
  ),
  Way(
    0.6,
    'the pixels darker than {n}',
    """
def mask_of(grey):
  return grey < {n}
""",
    (60, 180, 10),
  ),
  Way(
    0.6,
    'means of windows of {n} pixels',
    """
def mask_of(grey):
  from scipy.ndimage import uniform_filter

  return uniform_filter(grey, {n}) < grey.mean()
""",
    (3, 31, 2),
  ),
  Way(
    0.7,
    'the spread in windows of {n} pixels',
    """
def mask_of(grey):
  from scipy.ndimage import uniform_filter

  mean = uniform_filter(grey, {n})
  spread = np.sqrt((uniform_filter(grey**2, {n}) - mean**2).clip(0))
  return spread < spread.mean()
""",
    (3, 31, 2),
  ),
  Way(
    0.8,
    'a spread below {n} around each pixel',
    """
def mask_of(grey):
  from scipy.ndimage import uniform_filter

  mean = uniform_filter(grey, 11)
  return (uniform_filter(grey**2, 11) - mean**2).clip(0) < {n} ** 2
""",
    (4, 40, 2),
  ),
  Way(
    0.6,
    'slopes down the columns, means of windows of {n} pixels',
    """
def mask_of(grey):
  from scipy.ndimage import uniform_filter

  slopes = uniform_filter(np.gradient(grey, axis=0) ** 2, {n})
  return slopes < slopes.mean()
""",
    (3, 31, 2),
  ),
  Way(
    0.6,
    'slopes along the rows, means of windows of {n} pixels',
    """
def mask_of(grey):
  from scipy.ndimage import uniform_filter

  slopes = uniform_filter(np.gradient(grey, axis=1) ** 2, {n})
  return slopes < slopes.mean()
""",
    (3, 31, 2),
  ),
)
CONTRAIL_OF = (
  Way(
    0.5,
    'the coldest {n} in a thousand pixels',
    """
def contrail_of(band):
  now = band[..., 4]
  return now < np.quantile(now, {n} / 1000)
""",
    (5, 100, 5),
  ),
  Way(
    0.8,
    'the mean of windows of {n} pixels',
    """
def contrail_of(band):
  from scipy.ndimage import uniform_filter

  now = band[..., 4]
  return now < uniform_filter(now, {n}) - COLDER
""",
    (5, 41, 2),
  ),
  Way(
    0.6,
    'what cooled since frame {n}',
    """
def contrail_of(band):
  return band[..., 4] < band[..., {n} - 1] - COLDER
""",
    (1, 4),
  ),
  Way(
    0.7,
    'what cooled, in windows of {n} pixels',
    """
def contrail_of(band):
  from scipy.ndimage import uniform_filter

  change = band[..., 4] - band[..., :2].mean(axis=-1)
  return change < uniform_filter(change, {n}) - COLDER
""",
    (5, 41, 2),
  ),
  Way(
    0.5,
    'a median of {n} pixels first',
    """
def contrail_of(band):
  from scipy.ndimage import median_filter

  now = median_filter(band[..., 4], {n})
  return now < np.median(now) - COLDER
""",
    (2, 7),
  ),
  Way(
    0.3,
    'the warm pixels',
    """
def contrail_of(band):
  now = band[..., 4]
  return now > np.median(now) + COLDER
""",
  ),
)
