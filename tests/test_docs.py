"""The pages say what the results say."""

import pytest

from benchmarks import tables


@pytest.mark.parametrize('page', tables.PAGES)
def test_tables_are_those_of_the_results(page):
  """Else: python -m benchmarks.tables."""
  text = (tables.ROOT / page).read_text()
  assert tables.fill(text) == text


def test_a_name_that_is_no_table_is_an_error():
  with pytest.raises(KeyError, match='nonsense'):
    tables.fill('<!-- table: nonsense -->\n<!-- end of table -->')
