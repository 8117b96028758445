"""The run as self-contained HTML files."""

from jaxagent.report.page import write_report
from jaxagent.report.tree import write_tree

__all__ = ['write_report', 'write_tree']
