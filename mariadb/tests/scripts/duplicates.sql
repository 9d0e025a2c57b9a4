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
-- UNIQUE that the server checks by a hash. It looked behind the write, where UPDATE IGNORE cannot take a row
-- back, and a handler of a function kept one.
CREATE TABLE l (id INT PRIMARY KEY, x BLOB, y INT, UNIQUE (x));
INSERT INTO l VALUES (1, 'a', 0), (2, 'b', 0), (3, NULL, 0), (4, NULL, 0);
UPDATE IGNORE l SET x = 'a' WHERE id = 2;
UPDATE IGNORE l SET x = 'c', y = 1;
SELECT * FROM l;
INSERT IGNORE INTO l VALUES (5, 'a', 0), (6, 'c', 0), (7, 'g', 0);
REPLACE INTO l VALUES (8, 'c', 3);
INSERT INTO l VALUES (9, 'c', 3) ON DUPLICATE KEY UPDATE y = y + 1, x = 'd';
INSERT INTO l VALUES (9, 'd', 3);
UPDATE l SET x = 'g' WHERE id = 8;
UPDATE l SET id = id + 10 ORDER BY id DESC;
SELECT * FROM l;
CREATE TABLE lh (x TEXT, y INT, UNIQUE (x, y));
INSERT INTO lh VALUES ('a', 1), ('a', 2), ('b', 1);
UPDATE IGNORE lh SET y = 1;
UPDATE lh SET y = 1 WHERE x = 'a';
INSERT IGNORE INTO lh SELECT * FROM lh;
SELECT * FROM lh ORDER BY x, y;
CREATE TABLE lp (id INT, x TEXT, UNIQUE (x));
INSERT INTO lp VALUES (1, 'a'), (2, 'b'), (3, 'c');
UPDATE IGNORE lp SET x = 'b';
DELIMITER //
CREATE FUNCTION put(i INT, t TEXT) RETURNS INT DETERMINISTIC BEGIN DECLARE CONTINUE HANDLER FOR 1062 SET @d = @d + 1; INSERT INTO lp VALUES (i, t); RETURN i; END//
DELIMITER ;
SET @d = 0;
BEGIN;
SELECT put(10, 'b'), put(11, 'e'), put(12, 'e'), @d;
COMMIT;
SELECT * FROM lp ORDER BY id;
CREATE TABLE wo (id INT, s DATE, e DATE, PERIOD FOR p (s, e), UNIQUE (id, p WITHOUT OVERLAPS));
INSERT INTO wo VALUES (1, '2000-01-01', '2001-01-01'), (1, '2001-01-01', '2002-01-01');
INSERT INTO wo VALUES (1, '2000-06-01', '2000-07-01');
UPDATE IGNORE wo SET e = '2001-06-01' WHERE s = '2000-01-01';
UPDATE wo SET e = '2001-06-01' WHERE s = '2000-01-01';
SELECT * FROM wo ORDER BY s;
CREATE TABLE wx (g INT, s DATE, e DATE, x TEXT, PERIOD FOR p (s, e), UNIQUE (x), UNIQUE (g, p WITHOUT OVERLAPS));
INSERT INTO wx VALUES (1, '2000-01-01', '2001-01-01', 'a'), (2, '2000-01-01', '2001-01-01', 'b');
UPDATE IGNORE wx SET x = 'a';
UPDATE IGNORE wx SET g = 1;
SELECT * FROM wx ORDER BY g;
CHECK TABLE l, lh, lp, wo, wx;
DROP FUNCTION put;
DROP TABLE l, lh, lp, wo, wx;
