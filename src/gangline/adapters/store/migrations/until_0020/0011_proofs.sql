-- What a node proved of itself before it joined. Those that are here already are trusted until they go.
ALTER TABLE node ADD COLUMN kinds TEXT NOT NULL DEFAULT ',lora,sample,scratch,';   -- of the jobs whose libraries it has, each between commas
ALTER TABLE node ADD COLUMN problems TEXT NOT NULL DEFAULT '{}';                    -- JSON: a sentence for each kind that it lacks, and for what failed
ALTER TABLE node ADD COLUMN proof_failed BIGINT NOT NULL DEFAULT 0;                -- 1: it may have no job at all, whatever its machine's record
CREATE INDEX node_failed_proof ON node (pool, joined_ms) WHERE proof_failed = 1;
