"""The run as one self-contained HTML file."""

from jaxagent.report.page import write_report

__all__ = ['write_report']
