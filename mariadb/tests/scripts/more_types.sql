CREATE TABLE t (id INT PRIMARY KEY, u UUID, i6 INET6, i4 INET4, j JSON, g GEOMETRY, p POINT NOT NULL, e ENUM('b', 'a', 'c'), s SET('x', 'y', 'z'),
  b BIT(13), f FLOAT, ts TIMESTAMP(6) NULL, y YEAR, c TEXT COMPRESSED, vb VARBINARY(8), mt MEDIUMTEXT CHARACTER SET latin1,
  KEY (u), KEY (i6), KEY (i4), KEY (e), KEY (s), KEY (b), KEY (f), KEY (ts), KEY (y), KEY (vb), KEY (mt(5)), UNIQUE (j));
INSERT INTO t VALUES
  (1, '123e4567-e89b-12d3-a456-426655440000', '::1', '1.2.3.4', '{"a": 1}', ST_GeomFromText('LINESTRING(0 0, 1 1)'), POINT(1, 2), 'b', 'x,z',
   b'1010', 1.25, '2020-01-01 00:00:00.000001', 1999, REPEAT('long ', 100), x'00ff', 'text'),
  (2, '00000000-0000-0000-0000-000000000001', 'ff::', '255.0.0.1', '[1, 2]', NULL, POINT(-1, 5), 'a', '', b'1', -1e20, '2019-01-01 00:00:00', 2020, NULL, '', ''),
  (3, NULL, NULL, NULL, NULL, NULL, POINT(0, 0), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT id, u, i6, i4, j, ST_AsText(g), ST_AsText(p), e, s, HEX(b), f, ts, y, LENGTH(c), HEX(vb), mt FROM t ORDER BY id;
SELECT id FROM t WHERE u > '0' ORDER BY u;
SELECT id FROM t WHERE i6 > '::' ORDER BY i6;
SELECT id FROM t WHERE i4 >= '1.2.3.4' ORDER BY i4 DESC;
SELECT id FROM t ORDER BY e, id;
SELECT id FROM t WHERE e IN ('a', 'c');
SELECT id FROM t ORDER BY s DESC, id;
SELECT id FROM t WHERE b = b'1010';
SELECT id FROM t WHERE f < 1.25;
SELECT id FROM t WHERE ts >= '2019-06-01' ORDER BY ts;
SELECT id FROM t WHERE y BETWEEN 1990 AND 2000;
SELECT id FROM t WHERE mt = 'text';
INSERT INTO t (id, p, j) VALUES (4, POINT(0, 0), '{"a": 1}');
INSERT INTO t (id, p, j) VALUES (4, POINT(0, 0), '{"a": 2}');
INSERT INTO t (id) VALUES (5);
UPDATE t SET g = ST_GeomFromText('POINT(3 4)'), c = 'short' WHERE id = 1;
SELECT ST_AsText(g), c FROM t WHERE id = 1;
ALTER TABLE t DROP COLUMN b;
SELECT id FROM t WHERE i4 = '1.2.3.4';
CHECK TABLE t;
-- UNIQUE on whole values of any length.
CREATE TABLE h (id INT PRIMARY KEY, b LONGBLOB, UNIQUE (b));
INSERT INTO h VALUES (1, REPEAT('a', 3000000)), (2, CONCAT(REPEAT('a', 2999999), 'b'));
INSERT INTO h VALUES (3, REPEAT('a', 3000000));
UPDATE h SET b = REPEAT('a', 3000000) WHERE id = 2;
DELETE FROM h WHERE id = 1;
UPDATE h SET b = REPEAT('a', 3000000) WHERE id = 2;
SELECT id, LENGTH(b), MD5(b) FROM h;
-- Keys of the greatest length.
CREATE TABLE k (a VARCHAR(768) CHARACTER SET utf8mb4 PRIMARY KEY, b INT);
INSERT INTO k VALUES (REPEAT('ä', 768), 1), (REPEAT('ä', 767), 2);
SELECT b FROM k WHERE a = REPEAT('A', 767);
CREATE TABLE too_long (a VARCHAR(769) CHARACTER SET utf8mb4 PRIMARY KEY);
DROP TABLE t, h, k;
