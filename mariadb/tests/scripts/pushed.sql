-- Conditions that are pushed down to an index, of reads that lock entries of unique indexes.
CREATE TABLE t (id INT PRIMARY KEY, c BINARY(4), a INT, note TEXT, UNIQUE KEY (c), UNIQUE KEY u (a));
INSERT INTO t SELECT seq, seq, seq, 'x' FROM seq_100_to_200;
INSERT INTO t VALUES (1, 'ab', 1, 'y'), (2, '', 2, 'y'), (3, 'abcd', 3, 'y'), (4, 'abce', 4, 'y');
SELECT id, note FROM t FORCE INDEX (c) WHERE c IN ('ab', '') ORDER BY id FOR UPDATE;
SELECT id, note FROM t FORCE INDEX (c) WHERE c IN ('abcd', 'ab') ORDER BY id FOR UPDATE;
SELECT id, note FROM t FORCE INDEX (u) WHERE a IN (3, 4, 150) AND id > 3 ORDER BY id FOR UPDATE;
SELECT id, note FROM t FORCE INDEX (u) WHERE a IN (3, 4, 150) AND id > 3 ORDER BY id LOCK IN SHARE MODE;
SELECT id, note FROM t FORCE INDEX (u) WHERE a IN (3, 4, 150) AND id > 3 ORDER BY id;
UPDATE t FORCE INDEX (u) SET note = 'z' WHERE a IN (3, 4, 150) AND id > 3;
SELECT id, note FROM t WHERE note <> 'x' ORDER BY id;
