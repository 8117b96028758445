"""What the stages of a run share: tasks, sandbox, grader, models, engine."""
