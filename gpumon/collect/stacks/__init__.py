"""Where the Python processes of a node stand, when our reader asks for it."""
