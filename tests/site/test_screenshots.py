"""Pictures of the docs are taken by a script, of any run that is there."""

import pytest

from benchmarks import browser as browser_lib
from docs import screenshots
from tests.live import written

pytestmark = pytest.mark.slow


@pytest.mark.skipif(browser_lib.CHROMIUM is None, reason=browser_lib.MISSING)
def test_both_pictures_are_of_the_run_that_is_named(tmp_path):
  pytest.importorskip('starlette', reason="needs pip install '.[live]'")
  pytest.importorskip('playwright', reason='needs pip install playwright')
  work = tmp_path / 'run'
  written.whole(work, 12)
  (work / 'report.html').write_text('<h1>A report</h1>')
  files = screenshots.take(work, tmp_path / 'img')
  assert [file.name for file in files] == ['live.png', 'report-head.png']
  sizes = [file.stat().st_size for file in files]
  assert sizes[0] > 20_000 > sizes[1] > 1_000  # one full, one with a heading


def test_a_run_without_a_report_is_refused(tmp_path):
  with pytest.raises(ValueError, match='no report.html; give the work dir'):
    screenshots.take(tmp_path, tmp_path / 'img')
