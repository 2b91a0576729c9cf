"""The catalogue, one file per family; each has its `RULES`."""
