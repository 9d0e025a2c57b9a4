-- Which of two duplicates is found: that of the index that was made first, whatever order the server
-- has its keys in.
CREATE TABLE t (id INT, c TEXT, b BIT(11), UNIQUE KEY k0 (c(10)));
ALTER TABLE t ADD UNIQUE KEY u1 (b);
INSERT INTO t VALUES (1, 'a', b'1'), (2, 'b', b'10'), (3, 'c', b'11');
INSERT INTO t VALUES (4, 'a', b'10');
INSERT INTO t VALUES (4, 'a', b'10') ON DUPLICATE KEY UPDATE id = id + 10;
INSERT INTO t VALUES (4, 'a', b'10') ON DUPLICATE KEY UPDATE b = b'11';
UPDATE t SET c = 'a', b = b'1' WHERE c = 'b';
SELECT id, c, HEX(b) FROM t ORDER BY c;
-- A REPLACE takes the place of the rows of both.
REPLACE INTO t VALUES (6, 'a', b'10');
SELECT id, c, HEX(b) FROM t ORDER BY c;
DELETE FROM t;
INSERT INTO t VALUES (1, 'a', b'1'), (2, 'b', b'10'), (3, 'c', b'11');
-- One that is made again is the last.
ALTER TABLE t DROP KEY k0;
ALTER TABLE t ADD UNIQUE KEY k0 (c(10));
INSERT INTO t VALUES (4, 'a', b'10');
INSERT INTO t VALUES (4, 'a', b'10') ON DUPLICATE KEY UPDATE id = id + 100;
UPDATE t SET c = 'a', b = b'1' WHERE c = 'b';
SELECT id, c, HEX(b) FROM t ORDER BY c;
-- A copy has them in the server's order.
ALTER TABLE t DROP KEY u1;
ALTER TABLE t ADD UNIQUE KEY u1 (b);
INSERT INTO t VALUES (4, 'a', b'10');
ALTER TABLE t FORCE;
INSERT INTO t VALUES (4, 'a', b'10');
INSERT INTO t VALUES (4, 'a', b'10') ON DUPLICATE KEY UPDATE id = id + 1000;
REPLACE INTO t VALUES (5, 'a', b'10');
SELECT id, c, HEX(b) FROM t ORDER BY c;
CHECK TABLE t;
