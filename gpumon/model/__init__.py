"""Plain data: readings, fields, samples, series. Standard library only, Python 3.9 and later."""
