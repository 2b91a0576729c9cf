"""All nodes as a heat map, and one of them in full."""
