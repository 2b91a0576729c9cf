"""What reports and screens say today, as text: a change is read as a diff.

    python -m tests.golden --write                   # after a wanted change
    python -m tests.golden --write --only screens    # or: --only reports

`pages/` has the pages of `gpumon report --format text`, `verdicts/` what their JSON says in
numbers, ids and lines without a sentence, `screens/` the rows of every screen. Pages and verdicts
are those of every case of the corpus, by family, and of simulated jobs, by kind.
"""
