-- Rows: what is refused, and what follows.
CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(10), KEY (v));
CREATE TABLE c (id INT PRIMARY KEY, a INT REFERENCES p (id), b INT, FOREIGN KEY (b) REFERENCES p (id) ON DELETE CASCADE ON UPDATE NO ACTION, CONSTRAINT zz FOREIGN KEY (b) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE SET NULL);
SHOW CREATE TABLE c;
INSERT INTO c VALUES (1, 1, NULL);
INSERT INTO p VALUES (1, 'a'), (2, 'b');
INSERT INTO c VALUES (1, 1, NULL), (2, NULL, 2);
DELETE FROM p WHERE id = 1;
UPDATE p SET id = 7 WHERE id = 1;
UPDATE c SET a = 3 WHERE id = 2;
UPDATE c SET a = 2 WHERE id = 2;
SELECT * FROM c;
INSERT IGNORE INTO c VALUES (5, 55, 5); SHOW WARNINGS;
DELETE IGNORE FROM p; SHOW WARNINGS;
SELECT * FROM p;
DROP TABLE p;
TRUNCATE p;
CREATE OR REPLACE TABLE p (id INT PRIMARY KEY);
SELECT constraint_name, unique_constraint_name, update_rule, delete_rule, table_name, referenced_table_name FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE();
SELECT constraint_name, table_name, column_name, ordinal_position, position_in_unique_constraint, referenced_table_name, referenced_column_name FROM information_schema.key_column_usage WHERE table_schema = DATABASE() AND referenced_table_name IS NOT NULL;
-- Names.
RENAME TABLE p TO q; SHOW CREATE TABLE c;
RENAME TABLE c TO d; SHOW CREATE TABLE d;
RENAME TABLE d TO c, q TO p;
ALTER TABLE c ADD CONSTRAINT yy FOREIGN KEY (a) REFERENCES p (id);
SHOW CREATE TABLE c;
ALTER TABLE c DROP FOREIGN KEY yy;
ALTER TABLE c ADD FOREIGN KEY (a) REFERENCES nope (id);
ALTER TABLE c DROP COLUMN a, ALGORITHM=COPY;
ALTER TABLE p DROP COLUMN id, ALGORITHM=COPY;
ALTER TABLE c MODIFY a BIGINT;
ALTER TABLE p MODIFY id BIGINT;
ALTER TABLE c CHANGE a aa INT, ALGORITHM=COPY;
ALTER TABLE p ENGINE=MyISAM;
ALTER TABLE c FORCE, ALGORITHM=COPY;
ALTER TABLE p FORCE, ALGORITHM=COPY;
SHOW CREATE TABLE c;
DELETE FROM p WHERE id = 1;
INSERT INTO c VALUES (9, 9, NULL);
CREATE TABLE like_c LIKE c; SHOW CREATE TABLE like_c; DROP TABLE like_c;
-- What cannot be.
CREATE TABLE n (id INT PRIMARY KEY, a BIGINT, FOREIGN KEY (a) REFERENCES p (id));
CREATE TABLE n (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES nope (id));
CREATE TABLE n (id INT PRIMARY KEY, a INT NOT NULL, FOREIGN KEY (a) REFERENCES p (id) ON DELETE SET NULL);
CREATE TABLE n (id INT PRIMARY KEY, a VARCHAR(10), FOREIGN KEY (a(3)) REFERENCES p (v));
CREATE TABLE n (id INT PRIMARY KEY, a INT, CONSTRAINT zz FOREIGN KEY (a) REFERENCES p (id));
CREATE TEMPORARY TABLE n (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES p (id));
CREATE TABLE n (id INT, a INT, FOREIGN KEY (a) REFERENCES p (id)) PARTITION BY HASH (id);
ALTER TABLE p PARTITION BY HASH (id);
DROP TABLE c, p;
-- A table that refers to itself.
CREATE TABLE s (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES s (id) ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO s VALUES (1, 1), (2, 1), (3, 2);
UPDATE s SET id = 9 WHERE id = 3;
UPDATE s SET id = 10 WHERE id = 1;
DELETE FROM s WHERE id = 1; SELECT * FROM s;
DROP TABLE s;
CREATE TABLE s (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES s (id));
INSERT INTO s VALUES (1, 1), (2, 1), (3, 2);
DELETE FROM s WHERE id = 1;
DELETE FROM s;
DELETE FROM s ORDER BY id DESC;
SELECT * FROM s;
TRUNCATE s; DROP TABLE s;
-- No deeper than 15 levels, and then nothing has gone.
CREATE TABLE deep (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES deep (id) ON DELETE CASCADE);
INSERT INTO deep SELECT seq, NULLIF(seq - 1, 0) FROM seq_1_to_20;
DELETE FROM deep WHERE id = 1;
DELETE FROM deep WHERE id = 4;
DELETE FROM deep WHERE id = 5;
SELECT COUNT(*) FROM deep;
DELETE FROM deep WHERE id = 6;
SELECT COUNT(*) FROM deep;
DROP TABLE deep;
-- Texts, in the collation of the parent, and several columns.
CREATE TABLE pt (a VARCHAR(10) PRIMARY KEY, b INT, UNIQUE (b));
CREATE TABLE ct (a VARCHAR(20), b INT, FOREIGN KEY (a) REFERENCES pt (a) ON UPDATE CASCADE, FOREIGN KEY (b) REFERENCES pt (b));
INSERT INTO pt VALUES ('a', 1), ('b', 2); INSERT INTO ct VALUES ('A', 1), ('B ', 2), (NULL, 2);
UPDATE pt SET a = 'A' WHERE a = 'a'; SELECT * FROM ct;
UPDATE pt SET a = 'C' WHERE a = 'b'; SELECT * FROM ct;
UPDATE pt SET b = b + 0;
UPDATE pt SET b = 5 WHERE b = 1;
UPDATE pt SET b = NULL WHERE b = 1;
INSERT INTO ct VALUES ('zz', 1);
REPLACE INTO pt VALUES ('C', 2);
INSERT INTO pt VALUES ('C', 2) ON DUPLICATE KEY UPDATE a = 'D'; SELECT * FROM ct;
DROP TABLE ct, pt;
CREATE TABLE p2 (x INT, y INT, z INT, PRIMARY KEY (x, y), KEY (y, z));
CREATE TABLE c2 (id INT PRIMARY KEY, x INT, y INT, k INT, FOREIGN KEY (x, y) REFERENCES p2 (x, y) ON DELETE SET NULL ON UPDATE CASCADE, FOREIGN KEY (k) REFERENCES p2 (y));
INSERT INTO p2 VALUES (1, 1, 1), (1, 2, 2), (2, 2, 3);
INSERT INTO c2 VALUES (1, 1, 1, 2), (2, 1, NULL, NULL), (3, 2, 2, NULL), (4, NULL, 7, NULL);
INSERT INTO c2 VALUES (5, 2, 1, NULL);
INSERT INTO c2 VALUES (5, NULL, NULL, 3);
UPDATE p2 SET x = 5 WHERE x = 1 AND y = 1; SELECT * FROM c2;
DELETE FROM p2 WHERE x = 5; SELECT * FROM c2;
UPDATE p2 SET z = 9; SELECT * FROM p2;
DROP TABLE c2, p2;
-- Grandchildren, and a statement that fails far down leaves nothing.
CREATE TABLE g1 (id INT PRIMARY KEY, v INT);
CREATE TABLE g2 (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES g1 (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE g3 (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES g2 (id));
INSERT INTO g1 VALUES (1, 1), (2, 2), (3, 3); INSERT INTO g2 VALUES (1, 1), (2, 1), (3, 2), (4, 3); INSERT INTO g3 VALUES (1, 2);
DELETE FROM g1 WHERE id = 1;
DELETE IGNORE FROM g1; SELECT * FROM g1; SELECT * FROM g2; SELECT * FROM g3;
UPDATE g1 SET id = id + 10; SELECT * FROM g2;
BEGIN; DELETE FROM g3; DELETE FROM g1; SELECT COUNT(*) FROM g2; ROLLBACK; SELECT COUNT(*) FROM g2;
DELETE g1, g3 FROM g1 STRAIGHT_JOIN g3; SELECT * FROM g2;
SELECT * FROM g1;
-- Without checks.
SET foreign_key_checks = 0;
INSERT INTO g3 VALUES (7, 70); DROP TABLE g2; CREATE TABLE early (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES later (id));
INSERT INTO early VALUES (1, 1);
SET foreign_key_checks = 1;
INSERT INTO early VALUES (2, 2);
INSERT INTO g3 VALUES (8, 1);
CREATE TABLE later (id INT PRIMARY KEY); INSERT INTO later VALUES (2);
INSERT INTO early VALUES (2, 2), (3, 3);
INSERT INTO early VALUES (2, 2);
DELETE FROM later;
SHOW CREATE TABLE early;
DROP TABLE g3, g1, early, later;
-- Virtual columns of a child, and rows without a primary key.
CREATE TABLE pv (id INT PRIMARY KEY);
CREATE TABLE cv (a INT, b INT AS (a * 2) VIRTUAL, t TEXT, KEY (b), FOREIGN KEY (a) REFERENCES pv (id) ON UPDATE CASCADE ON DELETE SET NULL);
INSERT INTO pv VALUES (1), (2); INSERT INTO cv (a, t) VALUES (1, 'one'), (1, REPEAT('x', 20)), (2, 'two');
UPDATE pv SET id = 5 WHERE id = 1; SELECT b, t FROM cv FORCE INDEX (b) WHERE b > 0 ORDER BY b, t;
DELETE FROM pv WHERE id = 2; SELECT a, b, t FROM cv ORDER BY t; CHECK TABLE cv;
DROP TABLE cv, pv;
-- A cascade that would make a duplicate names the child's index. (It named the parent's, which had none.)
CREATE TABLE pd (id INT PRIMARY KEY, v INT); CREATE TABLE cd (id INT PRIMARY KEY, a INT, UNIQUE KEY only_one (a), FOREIGN KEY (a) REFERENCES pd (id) ON UPDATE CASCADE);
INSERT INTO pd VALUES (1, 1); INSERT INTO cd VALUES (1, 1);
SET foreign_key_checks = 0; INSERT INTO cd VALUES (2, 2); SET foreign_key_checks = 1;
UPDATE pd SET id = 2 WHERE id = 1;
SELECT * FROM pd; SELECT * FROM cd;
DROP TABLE cd, pd;
-- A row that an earlier row's removal has let go of its parent stays. (It was removed.)
CREATE TABLE pt (id INT PRIMARY KEY); CREATE TABLE ct (x INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES pt (id) ON DELETE CASCADE, FOREIGN KEY (a) REFERENCES ct (x) ON DELETE SET NULL);
INSERT INTO pt VALUES (1), (7);
SET foreign_key_checks = 0; INSERT INTO ct VALUES (1, 1), (2, 1), (7, 7); SET foreign_key_checks = 1;
DELETE FROM pt WHERE id = 1; SELECT * FROM ct;
DROP TABLE ct, pt;
-- A child that an outer join has left on a row of NULLs. (A cascade took its columns for NULLs.)
CREATE TABLE pn (id INT PRIMARY KEY); CREATE TABLE cn (id INT PRIMARY KEY, a INT, v INT, KEY kv (v), FOREIGN KEY (a) REFERENCES pn (id) ON DELETE CASCADE);
CREATE TABLE gn (a INT, FOREIGN KEY (a) REFERENCES cn (id) ON DELETE CASCADE);
INSERT INTO pn VALUES (1), (2); INSERT INTO cn VALUES (1, 1, 10), (2, 2, 20); INSERT INTO gn VALUES (1), (2);
SELECT pn.id, cn.v FROM pn LEFT JOIN cn ON cn.id = pn.id + 100 ORDER BY pn.id;
DELETE FROM pn WHERE id = 1;
SELECT v FROM cn FORCE INDEX (kv) WHERE v > 0; SELECT * FROM gn;
CHECK TABLE cn, gn;
DROP TABLE gn, cn, pn;
-- More rows of a child than are looked up at a time.
CREATE TABLE pm (id INT PRIMARY KEY); CREATE TABLE cm (a INT, v INT, KEY (v), FOREIGN KEY (a) REFERENCES pm (id) ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO pm VALUES (1), (2); INSERT INTO cm SELECT 1 + seq % 2, seq FROM seq_1_to_5001;
UPDATE pm SET id = 3 WHERE id = 1; SELECT a, COUNT(*) FROM cm GROUP BY a;
DELETE FROM pm WHERE id = 3; SELECT a, COUNT(*), SUM(v) FROM cm GROUP BY a;
CHECK TABLE cm;
DROP TABLE cm, pm;
-- A table that refers to itself, and whose statement fails. (It waited for its own opening for ever.)
CREATE TABLE ts (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES ts (id)) SELECT 1 AS id, 1 AS p UNION ALL SELECT 2, 77;
SHOW TABLES;
-- The index of a parent, in a statement that is no SELECT. (It was NULL.)
CREATE TABLE pu (id INT PRIMARY KEY, u INT, UNIQUE KEY theirs (u)); CREATE TABLE cu (a INT, FOREIGN KEY (a) REFERENCES pu (u));
CREATE TABLE names SELECT unique_constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE();
SELECT * FROM names;
DROP TABLE names, cu, pu;
-- A temporary table with the name of a parent. (The real table's keys refused its change.)
CREATE TABLE pt (id INT PRIMARY KEY); CREATE TABLE ct (a INT, FOREIGN KEY (a) REFERENCES pt (id));
CREATE TEMPORARY TABLE pt (x INT); ALTER TABLE pt MODIFY x BIGINT, ALGORITHM=COPY;
DROP TEMPORARY TABLE pt; DROP TABLE ct, pt;
-- A parent that is not there. (DROP was refused.)
SET foreign_key_checks = 0; CREATE TABLE ce (a INT, FOREIGN KEY (a) REFERENCES pe (id)); SET foreign_key_checks = 1;
DROP TABLE IF EXISTS pe;
CREATE TABLE pe (id INT PRIMARY KEY); SHOW TABLES; DROP TABLE pe;
DROP TABLE ce, pe;
-- A key that is there already, beside a copy. (Its own name was taken.)
CREATE TABLE pi (id INT PRIMARY KEY); CREATE TABLE ci (id INT PRIMARY KEY, a INT, CONSTRAINT once FOREIGN KEY (a) REFERENCES pi (id));
ALTER TABLE ci ADD COLUMN x INT FIRST, ADD CONSTRAINT once FOREIGN KEY IF NOT EXISTS (a) REFERENCES pi (id);
SHOW CREATE TABLE ci;
ALTER TABLE ci ADD COLUMN y INT FIRST, DROP FOREIGN KEY IF EXISTS never, DROP CONSTRAINT once;
SHOW CREATE TABLE ci; DROP TABLE ci, pi;
