"""Plots, sparks and bars as rows of cells: free of any screen library.

A canvas says which line each cell belongs to, not which colour it has: a change of theme needs no
new plot, and monochrome is the same text.
"""
