-- What nodes measure of themselves: load, memory, disk and temperature. A node has at most 205 rows.

CREATE TABLE node_gauges (
    node   TEXT   NOT NULL,
    place  BIGINT NOT NULL,     -- 0: the newest; 1 to 60: a minute of the last hour; 61 to 204: ten minutes of the last day
    at_ms  BIGINT NOT NULL,
    gauges TEXT   NOT NULL,     -- JSON; of a point of the past, shares alone
    PRIMARY KEY (node, place)
);
