# A transaction that locks more ranges than locks have memory for: they become one on the table.
create table small (x int primary key);
insert into small select seq from seq_1_to_6000;
create table big (id int primary key, v int, w int, key (v));
insert into big select seq, seq, 0 from seq_1_to_6000;
create table other (id int primary key);
begin;
insert into other select b.id from small s straight_join big b force index (v) on b.v = s.x;
update small s straight_join big b force index (v) on b.v = s.x set b.w = b.w + 1;
select count(*) from other;
select sum(w), count(*) from big;
commit;
set session transaction isolation level serializable;
begin;
select count(b.w) from small s straight_join big b force index (v) on b.v = s.x;
update small s straight_join big b force index (v) on b.v = s.x set b.w = b.w + 1;
select sum(w), count(*) from big;
commit;
