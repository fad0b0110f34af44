-- What nodes measure of themselves.

-- name: keep_gauges
-- Write gauges into their place, unless what is there is of the same time; of a node that is gone, keep none.
INSERT INTO node_gauges (node, place, at_ms, gauges)
SELECT node.id, CAST(:place AS BIGINT), CAST(:now AS BIGINT), CAST(:gauges AS TEXT) FROM node WHERE node.id = :node AND node.state <> 'gone'
ON CONFLICT (node, place) DO UPDATE SET at_ms = excluded.at_ms, gauges = excluded.gauges WHERE node_gauges.at_ms < :before

-- name: gauges_of_node
SELECT place, at_ms AS gauges_ms, gauges FROM node_gauges WHERE node = :node ORDER BY place

-- name: forget_gauges
DELETE FROM node_gauges WHERE node IN (SELECT id FROM node WHERE state = 'gone')
