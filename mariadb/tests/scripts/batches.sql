-- Rows of many ranges, and of joins, that are looked up together.
SET optimizer_switch='mrr=on,mrr_sort_keys=on';
SET join_cache_level=6;
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), c INT, note TEXT, KEY (a), KEY ab (a, b), UNIQUE KEY (c));
INSERT INTO t SELECT seq, seq % 50, CONCAT('b', seq % 7), IF(seq % 11, seq, NULL), REPEAT('x', seq % 300) FROM seq_1_to_2000;
CREATE TABLE outer_one (id INT PRIMARY KEY, a INT, c INT);
INSERT INTO outer_one SELECT seq, seq * 3 % 60, seq * 7 FROM seq_1_to_300;
SELECT id, LENGTH(note) FROM t FORCE INDEX (a) WHERE a IN (3, 4, 48, 77) ORDER BY id;
SELECT id, b FROM t FORCE INDEX (a) WHERE a BETWEEN 10 AND 12 OR a > 47 ORDER BY id;
SELECT COUNT(*), SUM(LENGTH(note)) FROM t FORCE INDEX (a) WHERE a BETWEEN 5 AND 45 AND id % 3 = 1;
SELECT COUNT(*), SUM(LENGTH(note)) FROM t FORCE INDEX (ab) WHERE a IN (1, 2, 3) AND b > 'b2' AND b < 'b6';
SELECT a, id FROM t FORCE INDEX (a) WHERE a IN (7, 9) ORDER BY a, id LIMIT 5;
SELECT id, c FROM t FORCE INDEX (c) WHERE c IS NULL OR c IN (5, 6, 7, 11) ORDER BY id LIMIT 20;
SELECT id, LENGTH(note) FROM t FORCE INDEX (PRIMARY) WHERE id IN (5, 6000, 7, 1999, 3) ORDER BY id;
SELECT COUNT(*), SUM(t.id), SUM(LENGTH(note)) FROM outer_one o STRAIGHT_JOIN t FORCE INDEX (a) ON t.a = o.a;
SELECT COUNT(*), SUM(t.id), SUM(LENGTH(note)) FROM outer_one o STRAIGHT_JOIN t FORCE INDEX (c) ON t.c = o.c;
SELECT COUNT(*), SUM(t.id), SUM(LENGTH(note)) FROM outer_one o STRAIGHT_JOIN t ON t.id = o.c WHERE t.b <> 'b3';
SELECT COUNT(*), COUNT(t.id) FROM outer_one o LEFT JOIN t FORCE INDEX (c) ON t.c = o.c;
SELECT COUNT(*), COUNT(t.id) FROM outer_one o LEFT JOIN t FORCE INDEX (a) ON t.a = o.a AND LENGTH(t.note) > 100;
SELECT COUNT(*) FROM outer_one o WHERE EXISTS (SELECT 1 FROM t WHERE t.a = o.a AND LENGTH(t.note) > 250);
SELECT COUNT(*) FROM outer_one o WHERE o.a IN (SELECT t.a FROM t WHERE t.b = 'b1' AND LENGTH(t.note) > 10);
SELECT COUNT(*), SUM(t.id) FROM outer_one o STRAIGHT_JOIN t FORCE INDEX (ab) ON t.a = o.a AND t.id > o.id WHERE t.b LIKE 'b%';
-- A transaction that has written reads row by row, and finds its own rows.
BEGIN;
UPDATE t SET a = 3 WHERE id = 10;
DELETE FROM t WHERE id = 3;
SELECT id, a FROM t FORCE INDEX (a) WHERE a IN (3, 10) ORDER BY id;
-- What a join pushes down to the index is checked where its rows come one by one.
SELECT COUNT(*), SUM(t.id) FROM outer_one o STRAIGHT_JOIN t FORCE INDEX (ab) ON t.a = o.a AND t.id > o.id WHERE LENGTH(t.note) >= 0;
ROLLBACK;
SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE;
BEGIN;
SELECT COUNT(*), SUM(t.id) FROM outer_one o STRAIGHT_JOIN t FORCE INDEX (ab) ON t.a = o.a AND t.id > o.id WHERE LENGTH(t.note) >= 0;
COMMIT;
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
UPDATE t FORCE INDEX (a) SET b = 'new' WHERE a IN (1, 2);
DELETE FROM t WHERE a IN (1, 30) AND LENGTH(note) > 200;
SELECT COUNT(*), SUM(id) FROM t;
