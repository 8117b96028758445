"""The live page: every run below a folder, from its files alone.

`python -m jaxagent.live DIR` (`jaxagent live DIR`) reads what runs write and writes
nothing; a run does not know of it. Everything that a policy wrote is hostile.
"""
