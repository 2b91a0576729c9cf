"""What a stream passes between its source and the store."""
