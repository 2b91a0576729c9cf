"""A Prometheus server as a source: its answers become the samples that recordings hold."""
