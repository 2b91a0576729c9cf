"""The screen: the only import of textual. Reads the store, knows no connection."""
