"""Owns the sruns of one user on one host, so that all dashboards of a job share one step.

A process of its own: the first dashboard starts it (`join`), and it ends with the last step.
A dashboard connects to its socket, once for each set of nodes: it sends a request (a line of JSON),
gets an answer (another), and from then on the nodes' lines, as srun joins them. What it sends are
the agent's modules, then lines for the agents. A line of a byte 0 and text says why all ends.

srun is never signalled while its step runs: its input is closed when the last dashboard has left,
the agents end with 0, and srun with them. One that stays behind (its node is gone) is killed, its
child first: that child would end the step with 0:9 when it sees srun die. So agents that are
still there end by themselves, for want of heartbeats. When this process is killed, srun's input
ends as well.
"""

#: s without a dashboard before a step ends: who starts again finds it still there
GRACE_S = 5.0
