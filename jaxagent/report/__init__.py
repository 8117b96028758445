"""The run as self-contained HTML files."""

from jaxagent.report.page import Contents, write_report
from jaxagent.report.tree import write_tree

__all__ = ['Contents', 'write_report', 'write_tree']
