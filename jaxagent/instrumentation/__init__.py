"""Milestones of a program that trains a model (paper 003, section 3.2).

A program is run with marks put in: one after its imports, one after its data is
loaded, and so on. What of it was reached when it failed earns partial credit.
Marks are never put in by the policy: by a syntax tree (`places`), or by a frozen
language model whose answer is used for nothing but where they go
(`language_model`).
"""

from jaxagent.instrumentation.program import Instrumented, Instrumenter
from jaxagent.instrumentation.syntax import SyntaxInstrumenter

__all__ = ['Instrumented', 'Instrumenter', 'SyntaxInstrumenter']
