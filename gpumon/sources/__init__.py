"""Where samples come from, on the user's side. Every source feeds a sink with the same stream."""
