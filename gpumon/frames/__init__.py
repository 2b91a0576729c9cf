"""Frames: what one node did from one bucket border to another, and what makes them of samples.

A frame is complete in itself: the headers in force, rollups, who was on which device and when,
counters at begin and end, events. Frames of one node that follow each other are joined by
`Frame.extend`, whoever made them: live (`Framer`), a recording, a file of plain lines. Nothing else
aggregates samples.
"""
