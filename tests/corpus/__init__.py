"""The labelled corpus: recordings made by rule, and what gpumon must say of each.

`python -m tests.corpus` prints the confusion table, `--write` puts it into docs/corpus.md.
"""
