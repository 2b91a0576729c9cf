"""What the samples of a run say: pure functions of samples, without files, threads or a clock."""
