-- The checkpoints of a span of time are counted for the server's metrics.

CREATE INDEX checkpoint_committed ON checkpoint (committed_ms);
