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
