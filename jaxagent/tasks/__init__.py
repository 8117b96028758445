"""Command line over task folders: `python -m jaxagent.tasks --help`."""
