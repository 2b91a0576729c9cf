"""From what a job used to what the next one should ask for: memory, CPUs, GPUs, time.

`amounts`, `cores`, `gpus`, `nodes` and `slowdown` work out how much; `changes` writes it in the
form of the user's own request; `recommend` makes one consistent set of that. `gate` refuses what
the run does not prove (`proof`) and gives findings the lines of that set. `directives` changes the
request where it stands.
"""
