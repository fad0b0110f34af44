-- Pools that operators make: all servers of a database rent for them. `seen` is what the provider's driver said last, as JSON.

CREATE TABLE pool (
    name                          TEXT PRIMARY KEY,
    id                            TEXT NOT NULL,     -- marks what is rented, where a provider has no place of our own
    driver                        TEXT NOT NULL,
    provider                      TEXT NOT NULL,     -- a section of the servers' settings files; '' for the driver's own
    settings                      TEXT NOT NULL,     -- the driver's, as JSON
    secret                        TEXT NOT NULL,     -- its name; the servers know where to find it
    nodes_min                     BIGINT NOT NULL,
    nodes_max                     BIGINT NOT NULL,
    offers                        TEXT NOT NULL,     -- patterns of those that may be rented, as JSON; all if there are none
    price_max_micro_usd_per_hour  BIGINT,
    trust                         BIGINT,            -- of all its nodes; NULL for what the driver says of each
    state                         TEXT NOT NULL,     -- active, paused, removing
    version                       BIGINT NOT NULL,
    changed_ms                    BIGINT NOT NULL,   -- or somebody asked to look at the provider now
    seen                          TEXT NOT NULL DEFAULT '{}',
    seen_ms                       BIGINT
);
