# ALTER TABLE in place: what it allows, and what rows of before and after it have.
set sql_mode='';
create table t (id int primary key, a int not null, b varchar(20), bits bit(3), key (b));
insert into t values (1, 10, 'one', b'101'), (2, 20, 'two', null), (3, 30, null, b'010');
alter table t add column c int, algorithm=instant;
alter table t add column d int not null default 7, algorithm=instant;
alter table t add column e varchar(30) default 'text', add column f decimal(8,2) not null default 1.25, algorithm=instant;
select * from t order by id;
insert into t (id, a) values (4, 40);
update t set b='TWO' where id=2;
update t set d=d+1, f=null where id in (1, 3);
select id, a, b, hex(bits), c, d, e, f from t order by id;
alter table t alter column d set default 99;
alter table t rename column e to ee, algorithm=instant;
insert into t (id, a) values (5, 50);
select id, d, ee from t order by id;
alter table t add column g datetime(3) default '2020-01-02 03:04:05.678', algorithm=instant;
alter table t add column h enum('x','y') not null, add column i set('p','q') default 'q', algorithm=instant;
alter table t add column j text, algorithm=instant;
alter table t add column k bit(11) not null default b'10000000001', algorithm=instant;
update t set j=repeat('j', 300) where id=2;
select id, d, g, h, i, length(j), hex(k) from t order by id;
select id from t force index (b) where b >= 'o' order by b;
# Indexes: with rows of all ages.
alter table t add key (d), algorithm=nocopy;
alter table t add unique key u (a), add key gd (g desc, d), algorithm=nocopy;
select id, d from t force index (d) where d > 0 order by d, id;
select id, a from t force index (u) order by a desc;
select id, g from t force index (gd) where g > '2000-01-01' order by id;
insert into t (id, a) values (6, 10);
update t set a=a+1 order by a desc;
delete from t where id=3;
insert into t (id, a, d) values (7, 70, 3);
select id, d from t force index (d) where d > 0 order by d, id;
check table t;
alter table t add unique key (h), algorithm=nocopy;
alter table t drop key d, algorithm=nocopy;
alter table t rename key gd to dg, algorithm=inplace;
alter table t drop key u, add key d2 (d, id), algorithm=nocopy;
insert into t (id, a) values (8, 21);
select id, d from t force index (d2) where d < 50 order by d, id;
select id from t force index (dg) where g is not null order by g desc, d, id;
show create table t;
check table t;
truncate table t;
insert into t (id, a) values (1, 1), (2, 2);
select id, a, d, g, h, hex(k) from t order by id;
select id from t force index (d2) where d > 0 order by d, id;
check table t;
# A copy forgets what was changed in place.
alter table t add column z int first;
insert into t (id, a) values (3, 3);
alter table t add column y int default 5, algorithm=instant;
select id, a, d, y, z from t order by id;
alter table t force;
select id, a, d, y, z from t order by id;
check table t;
rename table t to t2;
insert into t2 (id, a) values (4, 4);
select id, y from t2 where y = 5 order by id;
# Without a primary key, with large rows, and with text.
create table h (x longtext, y varchar(10) collate utf8mb4_unicode_ci);
insert into h values (repeat('a', 1500000), 'One'), ('b', 'two'), (null, null);
alter table h add column z int default 3, algorithm=instant;
alter table h add key (y), add key (x(10)), algorithm=nocopy;
update h set z = 4 where y = 'ONE';
select length(x), y, z from h force index (y) where y > '' order by y;
select length(x), y, z from h force index (x) where x like 'a%';
alter table h drop column y;
select length(x), z from h order by z, x;
check table h;
# A unique key that has a value twice, and one on NULLs.
create table d (id int primary key, v int, w int);
insert into d values (1, 1, null), (2, 2, null), (3, 1, null);
alter table d add unique key (v);
alter table d add unique key (w), algorithm=nocopy;
insert into d values (4, 4, 4), (5, 5, 4);
select * from d order by id;
alter table d drop primary key, add primary key (v, id);
alter table d add key (v), add primary key (id);
show create table d;
# Columns that are dropped, before and behind others that were added.
create table c (id int primary key, a int, b varchar(10), big varchar(300), t text, d datetime(2),
  n decimal(9,2), e enum('p','q'), f double, ch char(6), bi binary(3));
insert into c (id, a, b, big, t, d, n, e, f, ch, bi) values
  (1, 10, 'one', repeat('x', 300), 'text', '2020-01-02 03:04:05.6', 1.5, 'p', 2.5, 'ch', 'bi'),
  (2, null, null, null, null, null, null, null, null, null, null),
  (3, 30, '', '', '', '1999-01-01', -3, 'q', -1, '', '');
alter table c drop column b, algorithm=instant;
select * from c order by id;
insert into c (id, a, big, t) values (4, 40, 'four', 'four');
alter table c add column x int not null default 9, algorithm=instant;
alter table c drop column big, drop column n, algorithm=instant;
insert into c (id, t, x) values (5, repeat('t', 70000), 1);
update c set f=f+1 where id=1;
select id, a, length(t), d, e, f, ch, hex(bi), x from c order by id;
alter table c drop column t, algorithm=instant;
alter table c drop column d, drop column ch, algorithm=instant;
alter table c add column b varchar(40) default 'again', algorithm=instant;
select id, a, e, f, hex(bi), x, b from c order by id;
alter table c drop column x, algorithm=instant;
alter table c drop column f, drop column bi, drop column e, algorithm=instant;
update c set a=a+1, b=concat(b, id) where id < 4;
select * from c order by id;
alter table c add key (a), algorithm=nocopy;
select id from c force index (a) where a > 0 order by a;
alter table c drop column a;
select * from c order by id;
check table c;
alter table c force;
select * from c order by id;
truncate table c;
alter table c add column z int default 3, algorithm=instant;
insert into c (id) values (1);
alter table c drop column b, algorithm=instant;
select * from c order by id;
show create table c;
# The server was killed by a rename of an index of a table with partitions, which went half the way
# in place.
create table p (id int primary key, a int, key k (a)) partition by hash(id) partitions 3;
insert into p values (1, 1), (2, 2), (3, 3), (4, 4);
alter table p rename key k to kk;
alter table p rename key if exists none to other;
alter table p add column b int default 4;
alter table p add key (b, a);
alter table p drop column a;
select * from p where b = 4 order by id;
check table p;
