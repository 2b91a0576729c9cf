"""The reference pages and the manual page, written from the code: `python -m docs.generate`.

The command line comes from the parsers, keys from the tables of keys, settings and rules from their
declarations. What the code cannot supply (the meaning of an environment variable) stands in
`facts.py`, and `tests/docs/test_reference.py` compares it with the code.
"""
