"""This node's readings for Prometheus: `gpumon exporter`."""
