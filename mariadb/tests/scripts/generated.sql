CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT (1 + 2), b INT AS (a * 2) VIRTUAL, c INT AS (a + id) STORED,
  d VARCHAR(20) DEFAULT (CONCAT('d', a)), j JSON, k VARCHAR(10) AS (JSON_VALUE(j, '$.k')) VIRTUAL,
  KEY (b), UNIQUE KEY (c), KEY (k, b), CHECK (a < 100), CONSTRAINT pair CHECK (d <> 'bad'));
INSERT INTO t (id) VALUES (1);
INSERT INTO t (id, a, j) VALUES (2, 5, '{"k": "one"}'), (3, 6, '{"k": "two"}');
SELECT * FROM t ORDER BY id;
INSERT INTO t (id, a) VALUES (4, 100);
INSERT INTO t (id, d) VALUES (4, 'bad');
INSERT INTO t (id, b) VALUES (4, 1);
INSERT INTO t (id, a) VALUES (4, 4), (5, 3);
INSERT INTO t (id, a, j) VALUES (4, 9, 'no json');
SELECT id, b FROM t WHERE b > 6 ORDER BY b;
SELECT id FROM t WHERE c = 7;
SELECT k, b FROM t FORCE INDEX (k) WHERE k >= 'o' ORDER BY k;
UPDATE t SET a = a + 1;
SELECT id, a, b, c FROM t ORDER BY id;
UPDATE t SET j = JSON_SET(j, '$.k', 'three') WHERE k = 'two';
SELECT id, k FROM t WHERE k = 'three';
DELETE FROM t WHERE b = 8;
SELECT COUNT(*) FROM t;
REPLACE INTO t (id, a) VALUES (9, 7 - 9 + 1);
SELECT id, a, b, c, d FROM t ORDER BY id;
ALTER TABLE t ADD COLUMN v INT AS (a % 3) VIRTUAL;
ALTER TABLE t ADD KEY (v);
ALTER TABLE t ADD COLUMN s INT AS (a % 3) STORED;
SELECT id, v, s FROM t ORDER BY v, id;
ALTER TABLE t DROP COLUMN k;
ALTER TABLE t ADD CONSTRAINT small CHECK (a < 5);
ALTER TABLE t DROP CONSTRAINT pair;
INSERT INTO t (id, d) VALUES (20, 'bad');
CHECK TABLE t;
-- Columns that a SELECT * does not show.
CREATE TABLE i (id INT PRIMARY KEY, hidden INT INVISIBLE DEFAULT 8, KEY (hidden));
INSERT INTO i VALUES (1), (2);
SELECT * FROM i WHERE hidden = 8 ORDER BY id;
SELECT id, hidden FROM i ORDER BY id;
ALTER TABLE i ADD COLUMN more INT INVISIBLE;
INSERT INTO i VALUES (3);
SELECT * FROM i ORDER BY id;
-- An index that the optimizer does not use.
ALTER TABLE i ALTER INDEX hidden IGNORED;
SELECT * FROM i WHERE hidden = 8 ORDER BY id;
DROP TABLE t, i;
-- Virtual columns in indexes of partitions, and in reads of many ranges. The server merges partitions by
-- records of its own, in which nothing had computed them, and nothing did for rows of a batch.
CREATE TABLE s (id BIGINT PRIMARY KEY, c VARCHAR(20), v VARCHAR(30) AS (CONCAT(c, '!')) VIRTUAL, n BIGINT AS (id * 2) VIRTUAL, d DECIMAL(8, 2) AS (id / 4) VIRTUAL, x INT, KEY (x, v), KEY (v), KEY (n DESC, v), KEY (d)) PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO s (id, c, x) SELECT seq, CONCAT('', CHAR(97 + seq * 7 % 20)), seq % 3 FROM seq_1_to_12;
SELECT MIN(v), MAX(v), MIN(n), MAX(n), MIN(d), MAX(d) FROM s;
SELECT v FROM s WHERE x = 1 ORDER BY v;
SELECT x, MIN(v), MAX(v) FROM s GROUP BY x;
SET optimizer_switch = 'mrr=on,mrr_cost_based=off,mrr_sort_keys=on';
SELECT id, v, c FROM s FORCE INDEX (x) WHERE x IN (1, 2) AND v > 'd!' ORDER BY id;
SELECT id, v, n FROM s FORCE INDEX (v) WHERE v IN ('b!', 'c!', 'd!', 'h!') ORDER BY v;
SELECT id, v FROM s WHERE id IN (3, 5, 7) AND n > 8 ORDER BY id;
CREATE TABLE one (id INT PRIMARY KEY, k INT, a INT, v INT AS (a * 2) VIRTUAL, t TEXT AS (CONCAT('t', a)) VIRTUAL, KEY (k), KEY (v, k));
INSERT INTO one (id, k, a) VALUES (1, 1, 10), (2, 2, 20), (3, 3, 30);
SELECT id, v, t FROM one FORCE INDEX (k) WHERE k IN (1, 3) ORDER BY id;
SELECT id FROM one FORCE INDEX (k) WHERE k IN (1, 3) AND v > 25;
SELECT id, t FROM one WHERE id IN (1, 2) AND t > 't1' ORDER BY id;
SET join_cache_level = 6;
CREATE TABLE j (k INT);
INSERT INTO j VALUES (0), (2);
SELECT j.k, s.id, s.v FROM j STRAIGHT_JOIN s FORCE INDEX (x) ON s.x = j.k WHERE s.n > 6 ORDER BY s.id;
SELECT one.id, one.v, one.t FROM j STRAIGHT_JOIN one FORCE INDEX (k) ON one.k = j.k WHERE one.v > 6;
SET optimizer_switch = DEFAULT, join_cache_level = DEFAULT;
UPDATE s SET c = 'zz' WHERE v IN ('b!', 'e!');
SELECT id, v FROM s FORCE INDEX (v) WHERE v >= 'r' ORDER BY v, id;
REPLACE INTO s (id, c, x) VALUES (2, 'q', 7), (30, 'q', 7);
INSERT INTO s (id, c, x) VALUES (2, 'q', 7) ON DUPLICATE KEY UPDATE c = CONCAT(v, 'r'), x = n;
SELECT id, v, n, x FROM s ORDER BY id;
CHECK TABLE s, one;
DROP TABLE s, one, j;
-- A virtual BLOB of a new row beside a UNIQUE that the server checks by a hash. The look for a duplicate
-- computed that of another row in its place, and freed it.
CREATE TABLE lu (id INT PRIMARY KEY, b TEXT, u TEXT, v TEXT AS (CONCAT(b, REPEAT('v', 100))) VIRTUAL, KEY kv (v(200)), UNIQUE (u));
INSERT INTO lu (id, b, u) SELECT seq, CONCAT('b', seq), CONCAT('u', seq) FROM seq_1_to_20;
REPLACE INTO lu (id, b, u) VALUES (101, 'new', 'u3'), (102, 'newer', 'u5');
INSERT INTO lu (id, b, u) VALUES (103, 'other', 'u7') ON DUPLICATE KEY UPDATE b = CONCAT(VALUES(b), id);
INSERT IGNORE INTO lu (id, b, u) VALUES (104, 'none', 'u7'), (105, 'some', 'u105');
UPDATE lu SET b = CONCAT(b, 'x'), u = CONCAT(u, 'x') WHERE id % 4 = 0;
UPDATE IGNORE lu SET b = 'same', u = 'u9' WHERE id = 10;
SELECT id, b, LEFT(v, 12), LENGTH(v) FROM lu FORCE INDEX (kv) WHERE v > 'a' ORDER BY id;
CHECK TABLE lu;
DROP TABLE lu;
-- Virtual columns of a virtual column, one of them in an index.
CREATE TABLE vv (id INT PRIMARY KEY, a INT, v1 INT AS (a + 1) VIRTUAL, v2 INT AS (v1 * 2) VIRTUAL, v3 INT AS (v2 + 5) VIRTUAL, v4 INT AS (a * 100) VIRTUAL, KEY (v3));
INSERT INTO vv (id, a) SELECT seq, seq % 7 FROM seq_1_to_30;
UPDATE vv SET a = a + 10 WHERE id % 3 = 0; DELETE FROM vv WHERE id % 5 = 0;
SELECT id, v3 FROM vv FORCE INDEX (v3) WHERE v3 > 20 ORDER BY v3, id;
CHECK TABLE vv;
DROP TABLE vv;
