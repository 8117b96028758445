"""An Ideator that is trained to advise a frozen Implementer (paper 001)."""
