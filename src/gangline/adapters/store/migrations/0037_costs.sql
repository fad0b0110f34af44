-- What a span of time cost is read from the lines that end in it or after it.

CREATE INDEX ledger_time ON ledger (to_ms);
