"""Tasks, workspaces, actions, parsers, prompts, grading."""
