# Reads that an index answers alone, and conditions that are checked on entries.
create table t (id int primary key, i int, u bigint unsigned, d date, dt datetime(3), ti time(2),
  n decimal(10,3), e enum('x','y','z'), s set('p','q'), b binary(4), vb varbinary(10), y year,
  txt varchar(20), key (i), key (u), key (d, dt), key (ti, n), key (e desc, s), key (b, vb desc),
  key (y, i desc), key (txt, i), unique (i, u));
insert into t values
 (1, -5, 1, '2020-02-29', '2020-02-29 01:02:03.456', '-10:00:00.5', -1.5, 'x', 'p', 'ab', x'00ff00', 1999, 'a'),
 (2, 7, 18446744073709551615, '1999-01-01', null, '00:00:01', 99.125, 'y', 'p,q', x'00ff', '', 2020, 'B'),
 (3, null, null, null, '1970-01-02 00:00:00', null, null, null, '', '', null, 0, 'c '),
 (4, 2147483647, 9, '2038-12-31', '2000-01-01 00:00:00.001', '838:59:58', 0, 'z', 'q', 'zz', 'a\0b', 1970, null);
select i from t force index (i) order by i;
select i, id from t force index (i) where i > -10 order by i desc;
select u from t force index (u) order by u;
select d, dt, id from t force index (d) where d > '1990-01-01' order by d, dt;
select ti, n from t force index (ti) order by ti;
select e, s from t force index (e) where e is not null order by e desc, s;
select hex(b), hex(vb) from t force index (b) where b >= '' order by b, vb desc;
select y, i from t force index (y) where y >= 1970 order by y, i desc;
select txt from t force index (txt) where txt > '' order by txt;
select i from t force index (txt) where txt > '' and i > 0 order by txt;
select id, txt, d from t force index (txt) where txt >= 'a' and i < 100 order by txt;
select id, n, d from t force index (ti) where ti > '-20:00:00' and n > 0 order by ti;
select count(*) from t force index (d) where d between '1999-01-01' and '2021-01-01' and dt is null;
begin;
update t set i = 8 where id = 2;
select i, id from t force index (i) order by i;
delete from t where id = 4;
select i, id from t force index (i) order by i;
insert into t (id, i) values (9, 9);
select i, id from t force index (i) where i > 0 order by i desc;
rollback;
select i, id from t force index (i) order by i;
select distinct y from t;
select max(i), min(d) from t;
# A primary key that entries do not give back, and virtual columns.
create table w (k varchar(10), a int, v int as (a * 2) virtual, primary key (k), key (a), key (v));
insert into w (k, a) values ('One', 1), ('two', 2), ('THREE', 3);
select k, a from w force index (a) where a > 1 order by a;
select k from w force index (a) where a > 0 and k > 'p' order by a;
select a from w force index (a) order by a;
select v from w force index (v) where v > 2 order by v;
select k, v from w force index (v) where v > 2 order by v;
select max(k), count(*) from w;
begin;
update w set a = 20 where k = 'two';
select v from w force index (v) order by v;
select v from w force index (v) order by v desc for update;
commit;
# A unique index on a virtual column, read with locks: the column was not computed.
create table vu (id int primary key, a int, v int as (a * 2) virtual, unique (v));
insert into vu (id, a) values (1, 5), (2, 7), (3, null);
select v from vu where v = 10 lock in share mode;
select v, id from vu where v = 14 for update;
create table vs (v int);
insert into vs select v from vu where v = 14;
insert into vs select b.v from vs a join vu b on b.v = a.v where a.v > 0;
update vs set v = (select v from vu where v = 10) where v > 0 limit 1;
select v from vs order by v;
# Without a primary key.
create table h (a int, b int, key (a));
insert into h values (3, 1), (1, 2), (2, null);
select a from h force index (a) order by a;
delete from h where a in (select a from (select a from h force index (a) where a > 1) x);
select * from h;
# A condition on the primary key, checked on entries whose own columns do not come back: the end of
# the range was compared with what the record had before, and rows were left out.
create table f (id int primary key, x float, y varchar(10), z int, key (x desc), key (y), key fz (x, z));
insert into f values (1, 1, 'a', 1), (2, 2, 'b', 2), (3, 1024, 'c', 3), (4, -5, 'd', 4), (5, null, null, 5);
select x from f force index (x) where x >= 1024 and id < 54;
select x from f force index (x) where x between 1 and 3 and id < 54 order by x;
select y from f force index (y) where y <= 'b' and id < 54 order by y;
select y from f force index (y) where y between 'b' and 'c' and id > 1 order by y desc;
select x, z from f force index (fz) where x < 100 and z > 0 order by x;
select count(distinct x) from f where x >= 1024 and id < 54;
-- A key of a prefix of binary columns: it gave the columns back cut, and over those of another index.
CREATE TABLE b1 (id INT, c BINARY(6) NOT NULL, x INT, PRIMARY KEY (c(2), id), KEY k (c), KEY kx (x));
INSERT INTO b1 VALUES (1, 'abc', 1), (2, 'a', 1), (3, 'abd', 2);
SELECT id, x FROM b1 FORCE INDEX (k) WHERE c = 'abc\0\0\0';
SELECT id, HEX(c) FROM b1 FORCE INDEX (kx) WHERE x >= 1 ORDER BY x, id;
SELECT HEX(c) FROM b1 FORCE INDEX (kx) WHERE x = 1 AND c > 'ab' ORDER BY id;
CREATE TABLE b2 (id INT PRIMARY KEY, c VARBINARY(30), d BLOB, KEY k (c(2), id), KEY w (c), KEY kd (d(2))) PARTITION BY HASH (id) PARTITIONS 2;
INSERT INTO b2 VALUES (1, 'abc', 'xyz'), (2, 'a', 'xy'), (3, NULL, NULL), (4, 'ab', 'x');
SELECT c FROM b2 FORCE INDEX (k) WHERE c >= 'a' ORDER BY c;
SELECT c FROM b2 FORCE INDEX (w) WHERE c >= 'a' ORDER BY c;
SELECT id FROM b2 FORCE INDEX (k) WHERE c = 'abc' ORDER BY id;
SELECT id, d FROM b2 FORCE INDEX (kd) WHERE d >= 'xy' ORDER BY id;
CREATE TABLE b3 (id INT, c VARBINARY(30) NOT NULL, v VARBINARY(40) AS (CONCAT(c, '!')) VIRTUAL, UNIQUE (c(1), id), UNIQUE (c), KEY (v(2)), KEY (v));
INSERT INTO b3 (id, c) VALUES (1, 'abc'), (2, 'a'), (3, 'b');
SELECT c, v FROM b3 FORCE INDEX (v) WHERE v > 'a' ORDER BY v;
SELECT v FROM b3 FORCE INDEX (v_2) WHERE v > 'a' ORDER BY v;
SELECT c FROM b3 FORCE INDEX (c) WHERE c > 'a' ORDER BY c;
CHECK TABLE b1, b2, b3;
DROP TABLE b1, b2, b3;
