"""Takes the pictures of the live page and of a report, from a run that is there.

  python -m docs.screenshots WORK_DIR [--out docs/img]

writes `live.png` (the top of the page of `jaxagent live WORK_DIR`) and `report-head.png` (the
top of WORK_DIR/report.html), 1300 pixels wide. Needs the extras `live` and `dev`, and
chromium. Those of the docs are of the run of `docs/tutorial.ipynb`.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from benchmarks import browser
from benchmarks.live import served

WIDTH, HEIGHT = 1300, 900
HERE = pathlib.Path(__file__).parent


def take(work: pathlib.Path, out: pathlib.Path) -> list[pathlib.Path]:
  """Writes both pictures; returns their files.

  work: a work directory with a report. Raises ValueError where it has none.
  """
  report = work / 'report.html'
  if not report.is_file():
    raise ValueError(
      f'{work} has no report.html; give the work directory of a run that is complete.'
    )
  out.mkdir(parents=True, exist_ok=True)
  files = [out / 'live.png', out / 'report-head.png']
  with served(work) as (_, url), browser.launched() as opened:
    page = opened.new_page(viewport={'width': WIDTH, 'height': HEIGHT})
    page.goto(url)
    page.wait_for_selector('#plots .uplot')
    # Where a run lies on this machine is no part of the docs.
    page.locator('#root').evaluate(
      '(root, name) => root.textContent = name', work.name
    )
    page.screenshot(path=files[0])
    page.goto(report.resolve().as_uri())
    page.screenshot(path=files[1])
  return files


def main() -> int:
  parser = argparse.ArgumentParser(prog='python -m docs.screenshots')
  parser.add_argument('work_dir', type=pathlib.Path, metavar='WORK_DIR')
  parser.add_argument('--out', type=pathlib.Path, default=HERE / 'img')
  flags = parser.parse_args()
  try:
    files = take(flags.work_dir, flags.out)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  for file in files:
    print(f'{file}: {file.stat().st_size / 1000:.0f} kB')
  return 0


if __name__ == '__main__':
  sys.exit(main())
