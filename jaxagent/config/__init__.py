"""Options of a run: sections, rules between them, the command line."""
