-- What a provider does not bill between the begin and the end of an instance: the time in which it moved it to another machine.

CREATE TABLE unbilled (
    instance  TEXT NOT NULL,
    from_ms   BIGINT NOT NULL,
    to_ms     BIGINT NOT NULL,
    PRIMARY KEY (instance, from_ms)
);
