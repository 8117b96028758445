"""Text models the system asks: expert, editor, instrumenter."""
